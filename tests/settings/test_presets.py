"""What the project ships is valid: its own params.yaml, every method and task (presets: ``tests/presets``)."""

from __future__ import annotations

from pathlib import Path

import yaml

from regft_core import __version__
from regft_core.runs.project import open_project
from regft_core.settings.project import Project

ROOT = Path(__file__).resolve().parents[2]


#: For tasks that ask how alike two texts are; refused on others.
FOR_VALUES_ALONE = {"zero_shot_similarity"}
FOR_PAIRS = {"pair_cosine"}
#: For tasks whose rows have several labels, of which none is shipped.
FOR_SEVERAL_LABELS = {"label_thresholds"}


def listing(methods: list[str], tasks: list[str]) -> Project:
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["methods"], params["grid"]["tasks"] = methods, tasks
    if params["report"]["reference"] not in methods:
        params["report"]["reference"] = methods[0]
    return open_project(ROOT, params_text=yaml.safe_dump(params, sort_keys=False))


def test_methods_for_some_tasks_alone_can_be_listed() -> None:
    assert listing(["vanilla", *FOR_PAIRS], ["cue_pair"])
    assert listing(["vanilla", "majority", *FOR_VALUES_ALONE], ["cue_regression"])


def test_every_shipped_method_can_be_listed() -> None:
    """All methods at once, on a task of each kind that needs no hub; refusals must be reasons, not crashes."""
    every = {path.stem for path in (ROOT / "pipelines" / "methods").glob("*.yaml")}
    project = listing(sorted(every - FOR_VALUES_ALONE - FOR_PAIRS - FOR_SEVERAL_LABELS), ["cue_sentence", "cue_pair"])
    assert len(project.methods) > 30


def test_the_repository_and_new_projects_are_written_for_this_version() -> None:
    for file in (ROOT / "params.yaml", ROOT / "regft_core" / "shipped" / "project" / "params.yaml.txt"):
        assert yaml.safe_load(file.read_text())["regft"] == __version__
