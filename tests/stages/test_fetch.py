"""`regft fetch` with the real client libraries against a hub on this machine."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.hub_double import Hub, Repository, serving
from tests.small_project import PARAMS, REPOSITORY, TASK, build, review
from tests.tiny import tiny_model_dir

COMMIT, ENCODER_COMMIT, WRONG = "a" * 40, "b" * 40, "c" * 40
HUB_TASK = TASK | {
    "source": {"kind": "hub", "id": "someone/reviews", "revision": COMMIT},
    "splits": {"train": "train", "dev": "validation"},
    "ood": {
        "shop": {"source": {"kind": "hub", "id": "someone/shop", "revision": "main"}, "split": "test"},
        "placed": {"source": {"kind": "files"}, "split": "placed.csv", "if_present": True},
    },
}


def table(rows: int) -> bytes:
    lines = [f"{review(n)},{('bad', 'good')[n % 2]}" for n in range(rows)]
    return "\n".join(["review,verdict", *lines, ""]).encode()


def bin_only(folder: Path) -> dict[str, bytes]:
    """The files of a tiny encoder whose weights are pickled, two names sharing one tensor."""
    import torch
    from safetensors.torch import load_file

    model = tiny_model_dir(folder, "bert")
    tensors = load_file(model / "model.safetensors")
    name = next(iter(tensors))
    tensors["tied"] = tensors[name]
    out = io.BytesIO()
    torch.save(tensors, out)
    files = {file.name: file.read_bytes() for file in model.iterdir() if file.suffix != ".safetensors"}
    return files | {"pytorch_model.bin": out.getvalue()}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return bin_only(tmp_path_factory.mktemp("encoder"))


@pytest.fixture
def hub(encoder: dict[str, bytes]) -> Iterator[Hub]:
    reviews = Repository("datasets", "someone/reviews", COMMIT, {"train.csv": table(30), "validation.csv": table(12)})
    shop = Repository("datasets", "someone/shop", WRONG, {"test.csv": table(8)})
    with serving(reviews, shop, Repository("models", "someone/encoder", ENCODER_COMMIT, encoder)) as served:
        yield served


@pytest.fixture
def root(tmp_path: Path) -> Path:
    model = {"name": "someone/encoder", "revision": ENCODER_COMMIT, "max_length": 32}
    root = build(tmp_path / "project", tasks={"reviews": HUB_TASK})
    (root / "pipelines" / "presets" / "hubbed.yaml").write_text(yaml.dump(PARAMS | {"model": model}))
    return root


def stage(root: Path, hub_url: str, name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {"HF_ENDPOINT": hub_url, "HF_HOME": str(root.parent / "hf"), "PYTHONPATH": str(REPOSITORY)}
    own |= {"HF_HUB_OFFLINE": "0", "HF_DATASETS_OFFLINE": "0"}
    command = [sys.executable, "-m", "regft_core", name, *arguments]
    every = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", **own, **environment}
    return subprocess.run(command, cwd=root, env=every, capture_output=True, text=True, check=False)


def fetched(root: Path) -> list[str]:
    return sorted(path.parent.name for path in (root / ".datasets").rglob("source.json"))


def test_a_preset_is_planned_and_fetched_once(root: Path, hub: Hub) -> None:
    planned = stage(root, hub.url, "preset", "hubbed", "--plan")
    assert planned.returncode == 0, planned.stderr
    assert "MISSING  someone/encoder at bbbbbbbbbbbb" in planned.stdout
    assert f"MISSING  reviews: someone/reviews at {COMMIT[:12]}, split train" in planned.stdout
    assert "shop (judges reviews): someone/shop at main (moving: no commit is pinned), split test" in planned.stdout
    assert "placed (judges reviews): there is no file data/placed.csv" in planned.stdout
    assert "-> regft fetch --preset hubbed" in planned.stdout
    assert not hub.asked  # a plan asks nobody
    done = stage(root, hub.url, "fetch", "--preset", "hubbed")
    assert done.returncode == 0, done.stderr
    assert "by hand: placed (judges reviews): there is no file data/placed.csv" in done.stdout
    assert fetched(root) == ["test", "train", "validation"]
    shop = next((root / ".datasets" / "someone--shop").rglob("source.json"))
    assert json.loads(shop.read_text())["commit"] == WRONG  # what a moving revision was
    asked = len(hub.asked)
    again = stage(root, hub.url, "fetch", "--preset", "hubbed")
    assert "fetched 0 things" in again.stdout
    assert len(hub.asked) == asked


def test_without_a_network_there_is_one_error_and_what_is_there_stays(root: Path, hub: Hub) -> None:
    url = hub.url
    hub.repositories = hub.repositories[:1]  # the other set is not found, the encoder neither
    first = stage(root, url, "fetch", "--preset", "hubbed")
    assert first.returncode == 5
    assert "2 things could not be fetched" in first.stderr
    assert fetched(root) == ["train", "validation"]
    nobody = stage(root, "http://127.0.0.1:9", "fetch", "--preset", "hubbed", HF_HUB_OFFLINE="1")
    assert nobody.returncode == 3
    assert nobody.stderr.count("regft:") == 1
    assert "hub-unreachable" in nobody.stderr
    assert "by hand: placed (judges reviews): there is no file data/placed.csv" in nobody.stdout
    assert "Traceback" not in nobody.stderr
    assert fetched(root) == ["train", "validation"]


@pytest.mark.slow
def test_a_download_that_is_cut_off_goes_on(root: Path, hub: Hub) -> None:
    hub.broken_after = 50
    cut = stage(root, hub.url, "fetch", "--preset", "hubbed")
    assert cut.returncode != 0
    assert cut.stderr.count("regft:") == 1
    assert "Traceback" not in cut.stderr
    assert fetched(root) == ["test", "train", "validation"]
    assert not list((root / ".models").rglob("*.safetensors"))
    planned = stage(root, hub.url, "preset", "hubbed", "--plan")
    assert "MISSING  someone/encoder" in planned.stdout
    hub.broken_after = None
    rows = [line for line in hub.asked if "/datasets/" in line]
    done = stage(root, hub.url, "fetch", "--preset", "hubbed")
    assert done.returncode == 0, done.stderr
    assert "fetched 1 thing;" in done.stdout
    assert [line for line in hub.asked if "/datasets/" in line] == rows
    assert list((root / ".models").rglob("model.safetensors"))
