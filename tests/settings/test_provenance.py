"""Where a setting is from: the file's own words, the class for defaults, the section above, or a layer's file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regft_core.settings.layers import Setting, settings
from regft_core.settings.read_project import load_project
from tests.settings.conftest import Mask, Noise

METHOD = """\
phases:
  search:
    regularisers: {noise: {scale: 1e-5, shape: uniform}}
    training: {epochs: 1, schedule: constant}
  finetune:
    start: search
    regularisers: {mask: {probability: 0.25}}
sources:
  phases.search.training: "paper: section 3"
  phases.search.training.epochs: "code: a/b train.sh:4"
  phases.finetune: "ours: a guess"
"""


class Sourced(Noise):
    sources = {"scale": "paper: table 1", "shape": "paper: table 2"}  # noqa: RUF012


class OwnMask(Mask):
    sources = {"probability": "paper: table 3", "taken": "ours: both are equal"}  # noqa: RUF012


def found(root: Path, registry: dict[str, Any]) -> dict[str, Setting]:
    method = load_project(root, registry).methods["mask"]
    return {one.path: one for one in settings(method, {"noise": Sourced, "mask": OwnMask})}


def test_the_nearest_word_counts(build: Any, registry: dict[str, Any]) -> None:
    own = found(build({"pipelines/methods/mask.yaml": METHOD}), registry)
    noise, mask = "phases.search.regularisers.noise.", "phases.finetune.regularisers.mask."
    assert {path: one.source for path, one in own.items()} == {
        noise + "scale": "paper: table 1",  # the default, written out
        noise + "shape": "",  # not the default, and nothing above says it
        "phases.search.training.epochs": "code: a/b train.sh:4",
        "phases.search.training.schedule": "paper: section 3",
        mask + "probability": "ours: a guess",
        mask + "taken": "ours: both are equal",  # left out
    }  # start: search is wiring
    assert [path for path, one in own.items() if not one.given] == [mask + "taken"]


def test_a_replaced_value_takes_its_source_along(build: Any, registry: dict[str, Any], files: dict[str, str]) -> None:
    layer = "method_settings:\n  mask:\n    phases:\n      search:\n        training: {epochs: 3}\n"
    method = METHOD.replace("epochs: 1", "max_steps: 5").replace("training.epochs", "training.max_steps")
    root = build({"pipelines/methods/mask.yaml": method, "params.yaml": files["params.yaml"] + layer})
    own = found(root, registry)
    assert own["phases.search.training.epochs"].source == "ours: params.yaml:20"
    assert "phases.search.training.max_steps" not in own
