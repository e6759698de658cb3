"""Tiny checkpoints, written once per session, and a loader with the defaults that these tests want."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from regft_core.models.load import load_classifier, load_tokenizer
from regft_core.models.source import ModelSource, resolve_model
from regft_core.schema import DropoutConfig
from regft_core.schema.training import EncoderConfig
from tests.tiny import ARCHITECTURES, tiny_model_dir

#: Every family with its own head, and some pooled.
HEADS = [(name, "head") for name in ARCHITECTURES] + [(name, "mean") for name in ("bert", "xlnet", "modernbert")]
every_head = pytest.mark.parametrize(("architecture", "pooling"), HEADS)
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


@pytest.fixture(scope="session")
def made() -> dict[tuple[Any, ...], Loaded]:
    """Loaded models, to be copied: copying is several times faster than loading."""
    return {}


@pytest.fixture
def load(checkpoints: Path, pooling: str, made: dict[tuple[Any, ...], Loaded]) -> Callable[..., Loaded]:
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
        options = {"pooling": pooling, **options}
        key = (architecture, masked_lm, dropout, head_seed, kind, labels, *sorted(options.items()))
        if key not in made:
            path = tiny_model_dir(checkpoints, architecture, masked_lm=masked_lm)
            source = resolve_model(EncoderConfig(name=str(path)), checkpoints)
            model = load_classifier(source, kind=kind, labels=labels, dropout=dropout, head_seed=head_seed, **options)
            made[key] = Loaded(source, model, load_tokenizer(source))
        return deepcopy(made[key])

    return build
