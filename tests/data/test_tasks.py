"""The shipped task files: they parse, their labels fit together, and the public copies agree."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from regft_core.data.prepare import prepare_dataset, resolve_ood
from regft_core.metrics import names
from regft_core.schema.sources import FilesSource, HubSource
from regft_core.schema.tasks import TaskConfig
from tests.shared_data import materialise

ROOT = Path(__file__).resolve().parents[2]
PATHS = sorted((ROOT / "pipelines" / "tasks").glob("*.yaml"))
NAMES = [path.stem for path in PATHS]


def load(folder: Path) -> dict[str, TaskConfig]:
    return {path.stem: TaskConfig.model_validate(yaml.safe_load(path.read_text())) for path in folder.glob("*.yaml")}


TASKS = load(ROOT / "pipelines" / "tasks")


def test_the_promised_tasks_are_there() -> None:
    glue = {"cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte"}
    clue = {"ocnli", "cmnli", "iflytek", "csl", "tnews", "afqmc", "bustm"}
    judges = {"mnli_mm", "snli", "sick", "scitail", "hans", "anli_r1", "anli_r2", "anli_r3", "paws_qqp"}
    judges |= {"imdb_contrast", "imdb_cad"} | {f"advglue_{name}" for name in ("sst2", "qqp", "mnli", "qnli", "rte")}
    assert set(NAMES) >= glue | clue | judges | {"cue_sentence", "cue_pair", "cue_regression"}


@pytest.mark.parametrize("path", PATHS, ids=NAMES)
def test_a_task_file_is_short_explains_itself_and_is_consistent(path: Path) -> None:
    lines = path.read_text().splitlines()
    task = TASKS[path.stem]
    assert lines[0].startswith("# ")
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 120
    allowed = names("classification") if task.kind == "classification" else names("regression")
    assert set(task.metrics) <= set(allowed)
    assert set((task.label_values or {}).values()) <= set(task.labels or ())
    for name in task.ood:
        assert resolve_ood(path.stem, name, TASKS).declaration.kind == task.kind
    if isinstance(task.source, HubSource):
        pinned = re.fullmatch(r"[0-9a-f]{40}", task.source.revision)
        assert pinned or "Revision to be pinned" in path.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_what_judges_a_task_can_be_had_where_the_task_can(name: str) -> None:
    if not isinstance(TASKS[name].source, FilesSource):
        for ood, config in TASKS[name].ood.items():
            # A set of a file of one's own judges once that is there, and is left out, said, until then.
            assert config.if_present or not isinstance(resolve_ood(name, ood, TASKS).source, FilesSource)


@pytest.mark.parametrize("name", ["cue_sentence", "cue_pair", "cue_regression"])
def test_builtin_tasks_prepare_anywhere(name: str, tmp_path: Path) -> None:
    described = json.loads((prepare_dataset(tmp_path, name, TASKS) / "task.json").read_text())
    assert set(described["sets"]) == {"dev", "no_cue", "reversed"}
    assert described["counts"] == {"train": 2000, "dev": 300, "no_cue": 300, "reversed": 300}
    assert described["duplicates"]["dev"] == 0


# Label names of the first training rows that the shared copies' own documentation gives.
DUPLICATES = {
    "cola": {"train_within": 19, "dev": 16},
    "stsb": {"train_within": 43, "dev": 6, "sick_relatedness": 0},
    "sick": {"train_within": 30, "dev": 3},
    "paws_qqp": {"train_within": 3, "dev": 43},
}


@pytest.mark.parametrize(
    "name", ["stsb", "sick", *(pytest.param(n, marks=pytest.mark.slow) for n in ("cola", "paws_qqp"))]
)
def test_duplicates_agree_with_an_independent_count(name: str, tmp_path: Path) -> None:
    materialise(name, tmp_path)
    out = prepare_dataset(tmp_path, name, load(tmp_path / "pipelines" / "tasks"))
    assert json.loads((out / "task.json").read_text())["duplicates"] == DUPLICATES[name]
