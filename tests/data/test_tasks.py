"""The shipped task files: they parse, their labels fit together, the public copies agree; and the generated tasks."""

from __future__ import annotations

import importlib
import json
import os
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from regft_core.data import builtin as words
from regft_core.data.builtin import SPLITS, generate
from regft_core.data.examples import Example, to_jsonl
from regft_core.data.prepare import prepare_dataset, resolve_ood
from regft_core.disk.canonical import sha256_text
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
    for name, config in task.ood.items():
        judges = resolve_ood(path.stem, name, TASKS)
        assert judges.declaration.kind == task.kind
        # A set of a file of one's own judges once that is there, and is left out, said, until then.
        own_file = isinstance(judges.source, FilesSource) and not isinstance(task.source, FilesSource)
        assert config.if_present or not own_file
    if isinstance(task.source, HubSource):
        pinned = re.fullmatch(r"[0-9a-f]{40}", task.source.revision)
        assert pinned or "Revision to be pinned" in path.read_text()


@pytest.mark.parametrize(
    "name", ["cue_regression", *(pytest.param(n, marks=pytest.mark.slow) for n in ("cue_sentence", "cue_pair"))]
)
def test_builtin_tasks_prepare_anywhere(name: str, tmp_path: Path) -> None:
    described = json.loads((prepare_dataset(tmp_path, name, TASKS) / "task.json").read_text())
    assert set(described["sets"]) == {"dev", "no_cue", "reversed"}
    assert described["counts"] == {"train": 2000, "dev": 300, "no_cue": 300, "reversed": 300}
    assert described["duplicates"]["dev"] == 0


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


CUES = {"cue_sentence": words.SENTENCE_CUES, "cue_pair": words.PAIR_CUES, "cue_regression": words.REGRESSION_CUES}
GENERATORS = tuple(CUES)
MANY = {"rows": {"train": 3000, "dev": 3000, "no_cue": 3000, "reversed": 3000}}


def cue(generator: str, example: Example) -> int | None:
    """Which cue the row carries."""
    where = example.text if generator == "cue_sentence" else example.text_pair or ""
    found = [level for level, phrase in enumerate(CUES[generator]) if phrase in where]
    assert len(found) <= 1
    return found[0] if found else None


def without_cue(generator: str, example: Example) -> tuple[str, str | None, int | float]:
    text, pair = example.text, example.text_pair
    for phrase in CUES[generator]:
        text = text.removesuffix(" " + phrase)
        pair = pair.removeprefix(phrase + " ") if pair else pair
    return text, pair, example.label


@pytest.mark.parametrize("generator", GENERATORS)
def test_the_cue_agrees_as_often_as_asked(generator: str) -> None:
    agreement = 0.8
    top = len(CUES[generator]) - 1
    for split in ("train", "dev"):
        rows = generate(generator, split, {**MANY, "agreement": agreement})
        share = sum(cue(generator, row) == int(row.label) for row in rows) / len(rows)
        assert share == pytest.approx(agreement, abs=0.03)  # three standard errors at most
    turned = generate(generator, "reversed", {**MANY, "agreement": agreement})
    share = sum(cue(generator, row) == top - int(row.label) for row in turned) / len(turned)
    assert share == pytest.approx(agreement, abs=0.03)
    assert {cue(generator, row) for row in generate(generator, "no_cue", {})} == {None}


@pytest.mark.parametrize("generator", GENERATORS)
def test_evaluation_splits_differ_in_the_cue_only(generator: str) -> None:
    plain = generate(generator, "no_cue", {})
    for split in ("dev", "reversed"):
        assert [without_cue(generator, row) for row in generate(generator, split, {})] == [
            (row.text, row.text_pair, row.label) for row in plain
        ]


@given(st.sampled_from(GENERATORS), st.sampled_from(SPLITS), st.integers(1, 20), st.integers(1, 20), st.floats(0, 1))
@settings(max_examples=25)
def test_rows_are_a_pure_function_and_more_rows_extend_fewer(
    generator: str, split: str, few: int, more: int, agreement: float
) -> None:
    small = generate(generator, split, {"rows": {split: few}, "agreement": agreement})
    large = generate(generator, split, {"rows": {split: few + more}, "agreement": agreement})
    assert large[:few] == small
    assert len(large) == few + more


def test_content_does_not_change_between_versions() -> None:
    found = {
        name: sha256_text("".join(to_jsonl(generate(name, split, {})) for split in SPLITS))[:16] for name in GENERATORS
    }
    # A change here changes every published number on these tasks: do it on purpose.
    assert found == {
        "cue_sentence": "768267d1b10a1acc",
        "cue_pair": "c2d5f8c404bec312",
        "cue_regression": "b868a51cfc121ce9",
    }
