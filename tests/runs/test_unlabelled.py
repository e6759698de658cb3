"""Texts without labels: those of the training rows and of the split ``unlabelled``, in a step and in a phase."""

from __future__ import annotations

from pathlib import Path

import pytest

from regft_core.data.examples import UNLABELLED, read_jsonl
from regft_core.disk.reading import read_json
from regft_core.errors import ConfigError, DataError
from regft_core.grid.data import prepare
from regft_core.runs.context import Context
from regft_core.runs.evaluate import evaluate
from regft_core.runs.opened_project import Job, open_project
from regft_core.runs.phase import phase_inputs
from regft_core.runs.train import finetune, search
from regft_core.settings.cost import plan_rows
from tests.promises.kit import change
from tests.small_project import TASK, build, review, write_csv

TEXTS = [f"film number {number} was a {word} one" for number, word in enumerate(["good", "bad", "old"] * 4)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with 16 labelled rows of 32, and a file of texts, three of which are no further ones."""
    splits = {**TASK["splits"], "unlabelled": "more.csv"}
    root = build(tmp_path / "project", tasks={"reviews": {**TASK, "splits": splits}}, methods=["vanilla", "uda"])
    write_csv(root / "data" / "more.csv", [("review",), *((text,) for text in [*TEXTS, TEXTS[0], review(0), " "])])
    return root


def context(root: Path, method: str) -> Context:
    return Context(Job(str(root), method, "reviews", "16", 0))


def test_each_further_text_is_there_once(root: Path) -> None:
    prepare(open_project(root))
    folder = root / "work" / "datasets" / "reviews"
    assert [row.text for row in read_jsonl(folder / UNLABELLED)] == TEXTS
    described = read_json(folder / "task.json")
    assert described["counts"]["unlabelled"] == len(TEXTS)
    assert described["dropped"]["unlabelled"] == {"in another set, or there twice": 2, "without text": 1}
    write_csv(root / "data" / "more.csv", [("review",), (review(0),)])
    with pytest.raises(DataError, match="no text is left"):
        prepare(open_project(root))


def test_a_step_reads_texts_beside_its_rows(root: Path) -> None:
    prepare(open_project(root))
    uda = context(root, "uda")
    inputs = phase_inputs(uda.phase("finetune"), None)
    assert len(inputs.encoded) == 16
    assert len(inputs.unlabelled) == 32 + len(TEXTS)
    assert set(inputs.unlabelled.labels) == {0}
    record = finetune(uda, search(uda))
    assert record["status"] == "ok", record["error"]
    assert any("all training rows, without their labels" in mark for mark in record["degraded"])
    # A forward pass more over three times the rows, and a step over as many: two passes of the one, and three.
    assert record["cost"]["declared_ratio"] == pytest.approx((7 + 2 * 4) / 3)
    assert evaluate(context(root, "uda"), record)["status"] == "ok"
    # Other texts are another run of those that read them alone.
    before = [context(root, name).key("finetune") for name in ("vanilla", "uda")]
    write_csv(root / "data" / "more.csv", [("review",), *((text,) for text in TEXTS[1:])])
    prepare(open_project(root))
    after = [context(root, name).key("finetune") for name in ("vanilla", "uda")]
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False]


def test_self_training_learns_labels_that_its_teacher_is_sure_of(root: Path) -> None:
    change(root, methods=["vanilla", "self_training"])
    prepare(project := open_project(root))
    rows = {row.cell.method: row for row in plan_rows(project)}
    # The teacher, its answers to 44 texts, which are a third of an epoch, an epoch over these, and fine-tuning.
    assert rows["self_training"].cost == pytest.approx(2 + 6 / 3 + 6 + 2)
    own = context(root, "self_training")
    found = search(own)
    assert found["status"] == "ok", found["error"]
    assert len(phase_inputs(own.phase("student"), None).encoded) == 32 + len(TEXTS)
    assert finetune(context(root, "self_training"), found)["status"] == "ok"


def test_the_file_needs_its_texts_and_no_label(root: Path) -> None:
    write_csv(root / "data" / "more.csv", [("text",), ("a film",)])
    with pytest.raises(ConfigError) as found:
        open_project(root)
    (problem,) = found.value.problems
    assert (problem.code, problem.key) == ("column-missing", "columns.text")
