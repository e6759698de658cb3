"""Encoders of the hub: weights that are only pickled are converted once, and no code of a file runs."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from regft_core.errors import ModelError, StoreError
from regft_core.models import hub
from regft_core.models.source import encoder_present, resolve_model
from regft_core.schema.encoder import EncoderConfig
from tests.errors import raises_code
from tests.tiny import tiny_model_dir

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
    assert source.path == hub.converted_directory("someone/encoder", COMMIT, tmp_path)
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
