"""Copies of tiny checkpoints and of classifiers that were loaded once, with the defaults that these tests want."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from regft_core.models.source import ModelSource
from tests.methods.harness import STILL, loaded, source_of, tokenizer_of
from tests.tiny import ARCHITECTURES

#: Every family with its own head, and some pooled.
HEADS = [(name, "head") for name in ARCHITECTURES] + [(name, "mean") for name in ("bert", "xlnet", "modernbert")]
every_head = pytest.mark.parametrize(("architecture", "pooling"), HEADS)


@dataclass
class Loaded:
    source: ModelSource
    model: Any
    tokenizer: Any

    def batch(self, *texts: str) -> dict[str, Any]:
        chosen = texts or ("the film was not good", "a great story and a happy cat", "no")
        return dict(self.tokenizer(list(chosen), padding=True, return_tensors="pt"))


def edited(file: Path, **changes: Any) -> None:
    """Change keys of a JSON file, or begin one; None takes a key out."""
    content = json.loads(file.read_text()) if file.exists() else {}
    content = {key: value for key, value in {**content, **changes}.items() if value is not None}
    file.write_text(json.dumps(content))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A private copy of the tiny BERT that a test may damage."""
    return Path(shutil.copytree(source_of("bert").path, tmp_path / "own"))


@pytest.fixture
def pooling() -> str:
    """What ``load`` builds unless told otherwise; a test that is parametrised over it overrides this."""
    return "head"


@pytest.fixture
def load(pooling: str) -> Callable[..., Loaded]:
    """Build a copy of a loaded classifier of three labels without dropout, unless told otherwise."""

    def build(architecture: str, *, masked_lm: bool = False, **options: Any) -> Loaded:
        source = source_of(architecture, masked_lm)
        usual = {"kind": "classification", "labels": ("no", "maybe", "yes"), "dropout": STILL, "head_seed": 1}
        model = deepcopy(loaded(source, **{**usual, "pooling": pooling, **options}))
        return Loaded(source, model, deepcopy(tokenizer_of(source)))

    return build
