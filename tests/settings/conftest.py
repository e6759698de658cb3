"""A small valid project that tests break in one place, and fake regularisers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import pytest
from pydantic import Field

from regft_core import shipped
from regft_core.errors import Problem
from regft_core.hooks.base import Regulariser
from regft_core.hooks.declare import Declares
from regft_core.hooks.description import Description
from regft_core.schema import StrictModel
from regft_core.schema.method import Cost
from regft_core.settings import read_project
from regft_core.settings.project import Project
from tests.errors import problems_of


class NoiseConfig(StrictModel):
    scale: float = Field(1e-5, ge=0)
    shape: Literal["normal", "uniform"] = "normal"


class MaskConfig(StrictModel):
    probability: float = Field(0.5, ge=0, le=1)
    taken: bool = True


class Plain(Regulariser):
    """A regulariser that does and costs nothing."""

    name = "plain"
    Config: Any = StrictModel


class Noise(Plain):
    name = "noise"
    Config = NoiseConfig

    @classmethod
    def declare(cls, options: Any) -> Declares:
        return Declares(description=Description(cost=Cost(2.0, 2.0)))


class Mask(Plain):
    """Takes something from an earlier phase unless its options say otherwise."""

    name = "mask"
    Config = MaskConfig

    @classmethod
    def declare(cls, options: Any) -> Declares:
        return Declares(needs={"search": "weights"} if options.taken else {})


class Split(Plain):
    name = "split"


PARAMS = """\
# the only file that users edit
model: {name: minilm}
grid:
  tasks: [opinions]
  sizes: [100, full]
  seeds: [0, 1, 2, 3, 4, 5]
methods:
  - vanilla
  - noise  # plain
  - mask
training:
  epochs: 2
  learning_rate: 2e-5
subsample: {}
report: {}
"""
TASK = """\
source: {kind: files}
splits: {train: opinions/train.csv, dev: opinions/dev.csv}
columns: {text: sentence}
labels: [negative, positive]
metrics: [accuracy, f1_macro]
primary: accuracy
"""
SCORES = """\
kind: regression
source: {kind: files}
splits: {train: opinions/train.csv, dev: opinions/dev.csv}
columns: {text: sentence}
range: [0, 5]
metrics: [pearson]
primary: pearson
"""
VANILLA = "regularisers: {}\ntraining: {}\n"
NOISE = "regularisers:\n  noise: {scale: 1e-5}\ntraining: {}\n"
MASK = "phases:\n  search: {training: {epochs: 2}}\n  finetune:\n    regularisers: {mask: {}}\n"
FILES = {
    "params.yaml": PARAMS,
    "dvc.yaml": "stages: {}\n",
    "pipelines/tasks/opinions.yaml": TASK,
    "pipelines/tasks/films.yaml": TASK,
    "pipelines/tasks/scores.yaml": SCORES,
    "pipelines/methods/vanilla.yaml": VANILLA,
    "pipelines/methods/noise.yaml": NOISE,
    "pipelines/methods/mask.yaml": MASK,
    "data/opinions/train.csv": "sentence,label\nGood,1\n",
    "data/opinions/dev.csv": "sentence,label\nBad,0\n",
}


def edit(text: str, old: str, new: str) -> str:
    """Replace what must be there; where ``old`` is empty, write a line below."""
    assert old in text, old
    return text.replace(old, new) if old else f"{text}{new}\n"


def load_project(root: Path, registry: dict[str, Any], params_text: str | None = None) -> Project:
    """Open a project with other regularisers than those that there are; these are not composed."""
    with patch.object(read_project, "discover", lambda: registry):
        return read_project.open_project(root, params_text=params_text, check_composition=False)


Build = Callable[[dict[str, str | None]], Path]
Load = Callable[[dict[str, Any]], Project]
Failures = Callable[[dict[str, str | None]], list[Problem]]


@pytest.fixture(autouse=True)
def _nothing_is_shipped(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The projects of these tests have files of their own alone; ``test_load.py`` ships one."""
    monkeypatch.setattr(shipped, "FOLDER", tmp_path_factory.mktemp("shipped"))


@pytest.fixture
def registry() -> dict[str, Any]:
    return {"noise": Noise, "mask": Mask, "split": Split}


@pytest.fixture
def files() -> dict[str, str]:
    """Contents of the valid project."""
    return dict(FILES)


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Write the valid project with some files replaced (None: left out); returns its root."""

    def write(changes: dict[str, str | None]) -> Path:
        root = tmp_path / "project"
        for name, content in {**FILES, **changes}.items():
            if content is not None:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(content, encoding="utf-8", newline="")
        return root

    return write


@pytest.fixture
def load(build: Build, registry: dict[str, Any]) -> Load:
    """Open a changed project."""
    return lambda changes: load_project(build(changes), registry)


@pytest.fixture
def failures(build: Build, registry: dict[str, Any]) -> Failures:
    """The problems that a changed project has."""

    return lambda changes: problems_of(load_project, build(changes), registry)
