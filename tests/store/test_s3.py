"""Runs shared through S3, as moto answers for it on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from regft_core.errors import StoreError
from regft_core.runs.store.remote import Remote
from regft_core.runs.store.run_store import RunStore
from regft_core.runs.store.stored_run import run_key
from tests.errors import raises_code
from tests.extras import needs

pytestmark = pytest.mark.slow
IDENTITY = {"number": 1}
KEY = run_key(IDENTITY)


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    s3fs = needs("s3fs", "s3")
    server = needs("moto.server", "s3").ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    name = tmp_path.name.replace("_", "-")  # moto keeps buckets while the process lives
    s3fs.S3FileSystem().mkdir(name)
    yield f"s3://{name}/regft"
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def commit(store: RunStore, by: str) -> None:
    with store.open(KEY, IDENTITY) as run:
        assert run.finished is None
        run.commit({"by": by}, {"weights": {"w": torch.ones(3)}}, {"predictions/dev.jsonl": "{}\n"})


def test_what_one_host_finished_another_has(bucket: str, tmp_path: Path) -> None:
    commit(RunStore(tmp_path / "one", remote=Remote(bucket)), "one")
    other = RunStore(tmp_path / "other", remote=Remote(bucket))
    found, restored = other.get(KEY), other.restore(KEY)
    assert found is not None
    assert (found.result, found.read_text("predictions/dev.jsonl")) == ({"by": "one"}, "{}\n")
    assert restored is not None
    assert torch.equal(restored.load_tensors()["w"], torch.ones(3))
    assert other.verify() == []


def test_a_bucket_that_is_not_there_is_named(bucket: str, tmp_path: Path) -> None:
    store = RunStore(tmp_path / "one", remote=Remote("s3://nowhere/regft"))
    with raises_code(StoreError, "remote-missing", "s3://nowhere/regft"):
        commit(store, "one")
