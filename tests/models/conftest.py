"""Tiny checkpoints, written once per session, and a loader with the defaults that these tests want."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from regft_core.models.load import load_classifier, load_tokenizer
from regft_core.models.source import ModelSource, resolve_model
from regft_core.schema import DropoutConfig
from regft_core.schema.training import EncoderConfig
from tests.tiny import tiny_model_dir

NO_DROPOUT = DropoutConfig(hidden=0.0, attention=0.0)


@dataclass
class Loaded:
    source: ModelSource
    model: Any
    tokenizer: Any

    def batch(self, *texts: str) -> dict[str, Any]:
        chosen = texts or ("the film was not good", "a great story and a happy cat", "no")
        return dict(self.tokenizer(list(chosen), padding=True, return_tensors="pt"))


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture
def pooling() -> str:
    """What ``load`` builds unless told otherwise; a test that is parametrised over it overrides this."""
    return "head"


@pytest.fixture
def load(checkpoints: Path, pooling: str) -> Callable[..., Loaded]:
    def build(
        architecture: str,
        *,
        masked_lm: bool = False,
        dropout: DropoutConfig = NO_DROPOUT,
        head_seed: int = 1,
        kind: str = "classification",
        labels: tuple[str, ...] | None = ("no", "maybe", "yes"),
        **options: Any,
    ) -> Loaded:
        path = tiny_model_dir(checkpoints, architecture, masked_lm=masked_lm)
        source = resolve_model(EncoderConfig(name=str(path)), checkpoints)
        model = load_classifier(
            source, kind=kind, labels=labels, dropout=dropout, head_seed=head_seed, **{"pooling": pooling, **options}
        )
        return Loaded(source, model, load_tokenizer(source))

    return build
