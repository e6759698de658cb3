"""An encoder on this disk is looked into before any stage starts, without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from regft_core.errors import ConfigError, Problem
from regft_core.settings.read_project import load_project

PARAMS = "params.yaml"
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


@pytest.fixture
def check(build: Any, registry: dict[str, Any], files: dict[str, str]) -> Any:
    """The problems of a project with this ``model`` section."""

    def run(section: str) -> list[Problem]:
        root = build({PARAMS: files[PARAMS].replace("{name: minilm}", section)})
        try:
            load_project(root, registry)
        except ConfigError as error:
            return error.problems
        return []

    return run


def test_a_length_above_the_positions(check: Any, model: Path) -> None:
    assert check(f"{{name: {model}, max_length: 64}}") == []
    (problem,) = check(f"\n  name: {model}\n  max_length: 65")
    assert (problem.file, problem.line, problem.key) == (PARAMS, 4, "model.max_length")
    assert problem.message.startswith("65 tokens, but")
    assert "position embeddings for 64 only" in problem.message


def test_pickled_weights_a_missing_tokenizer_and_a_length_at_once(check: Any, model: Path) -> None:
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    (model / "vocab.txt").unlink()
    found = check(f"{{name: {model}, max_length: 65, revision: main}}")
    assert [p.key for p in found] == ["model.revision", "model.max_length", "model.name", "model.name"]
    assert "pickle format" in found[2].message
    assert "no tokenizer" in found[3].message
