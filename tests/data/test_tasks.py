"""The shipped task files: they parse, their labels fit together, the public copies agree."""

from __future__ import annotations

import importlib
import json
import os
import re
from pathlib import Path

import pytest
import yaml

from regft_core.data.prepare import prepare_dataset, resolve_ood
from regft_core.metrics import names
from regft_core.schema.sources import FilesSource, HubSource
from regft_core.schema.tasks import TaskConfig

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
    assert set(NAMES) >= glue | clue | judges


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
    for name, config in task.ood.items():
        judges = resolve_ood(path.stem, name, TASKS)
        assert judges.declaration.kind == task.kind
        # A set of a file of one's own judges once that is there, and is left out, said, until then.
        own_file = isinstance(judges.source, FilesSource) and not isinstance(task.source, FilesSource)
        assert config.if_present or not own_file
    if isinstance(task.source, HubSource):
        pinned = re.fullmatch(r"[0-9a-f]{40}", task.source.revision)
        assert pinned or "Revision to be pinned" in path.read_text()


DUPLICATES = {
    "cola": {"train_within": 19, "dev": 16},
    "stsb": {"train_within": 43, "dev": 6, "sick_relatedness": 0},
    "sick": {"train_within": 30, "dev": 3},
    "paws_qqp": {"train_within": 3, "dev": 43},
}


@pytest.mark.parametrize(
    "name", ["stsb", *(pytest.param(n, marks=pytest.mark.slow) for n in ("sick", "cola", "paws_qqp"))]
)
def test_duplicates_agree_with_an_independent_count(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On public data that are copied into a temporary project, never into the repository."""
    folder = Path(os.environ.get("REGFT_TEST_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no local public data (REGFT_TEST_DATA or ../shared/data)")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    importlib.import_module("real_tasks").materialise(name, tmp_path, folder)
    out = prepare_dataset(tmp_path, name, load(tmp_path / "pipelines" / "tasks"))
    assert json.loads((out / "task.json").read_text())["duplicates"] == DUPLICATES[name]
