"""An encoder on this disk is looked into before any stage starts, without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from regft_core.settings.read_project import load_project
from tests.settings.conftest import PARAMS, Build, Failures

BERT = {
    "model_type": "bert",
    "hidden_size": 32,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "max_position_embeddings": 64,
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A directory with everything that the validator looks at."""
    directory = tmp_path / "encoder"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(BERT))
    (directory / "model.safetensors").write_bytes(b"")
    (directory / "vocab.txt").write_text("[PAD]")
    return directory


def params(section: str) -> dict[str, str | None]:
    """The settings with this ``model`` section."""
    return {"params.yaml": PARAMS.replace("{name: minilm}", section)}


def test_a_length_above_the_positions(build: Build, registry: dict[str, Any], failures: Failures, model: Path) -> None:
    load_project(build(params(f"{{name: {model}, max_length: 64}}")), registry)
    (problem,) = failures(params(f"\n  name: {model}\n  max_length: 65"))
    assert (problem.file, problem.line, problem.key) == ("params.yaml", 4, "model.max_length")
    assert problem.message.startswith("65 tokens, but")
    assert "position embeddings for 64 only" in problem.message


def test_pickled_weights_a_missing_tokenizer_and_a_length_at_once(failures: Failures, model: Path) -> None:
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    (model / "vocab.txt").unlink()
    found = failures(params(f"{{name: {model}, max_length: 65, revision: main}}"))
    assert [p.key for p in found] == ["model.revision", "model.max_length", "model.name", "model.name"]
    assert "pickle format" in found[2].message
    assert "no tokenizer" in found[3].message
