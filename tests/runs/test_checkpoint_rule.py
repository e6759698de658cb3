"""``training.checkpoint``: the best epoch on rows set aside or, marked, on the dev set; and its place in the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from regft_core.data.examples import read_jsonl, write_jsonl
from regft_core.errors import ConfigError
from regft_core.runs.context import Context
from regft_core.runs.project import open_project
from tests.errors import raises_code
from tests.runs.conftest import TASK, change, job, stored, train

SPLIT = {"checkpoint": "best_on_split", "checkpoint_share": 0.25, "epochs": 3}
DEV = {"checkpoint": "best_on_dev_as_published", "epochs": 3}


def key(root: Path, method: str = "vanilla", phase: str = "finetune") -> str:
    return Context(job(root, method)).keys.of(phase)


def test_the_best_epoch_on_rows_set_aside(project: Path) -> None:
    change(project, training=SPLIT)
    context = Context(job(project, "vanilla"))
    judging = {row.idx for row in context.judging_rows(context.phase("finetune"), None)}
    assert len(judging) == 6
    record = train(project, "vanilla")
    scores = record["checkpoint"]["scores"]
    assert [step for step, _ in scores] == [3, 6, 9]  # 18 rows in batches of 8
    best = max(score for _, score in scores)
    assert record["checkpoint"]["step"] == next(step for step, score in scores if score == best)
    assert record["degraded"] == ["the weights are those of the best epoch on 25% of the training rows, set aside"]
    assert stored(project, record["key"]).identity["checkpoint"]["primary"] == "accuracy"


def test_the_dev_set_is_marked(project: Path) -> None:
    change(project, training=DEV)
    record = train(project, "weight_mixup")  # weight views are in place while an epoch is judged
    assert len(record["checkpoint"]["scores"]) == 3
    assert "the weights are those of the best epoch on the development set, as published" in record["degraded"]


def test_the_rule_and_what_judges_are_in_the_key_of_the_last_phase_alone(project: Path) -> None:
    change(project, training={"epochs": 3})
    last, search = key(project), key(project, "weight_mixup", "search")
    change(project, training={"checkpoint": "last", "checkpoint_share": 0.3})
    assert key(project) == last
    change(project, training=SPLIT)
    split = key(project)
    assert split != last
    assert key(project, "weight_mixup", "search") == search
    change(project, training={"checkpoint_share": 0.5})
    assert key(project) != split
    change(project, training=DEV)
    on_dev = key(project)
    dev = project / "work" / "datasets" / TASK / "dev.jsonl"
    write_jsonl(dev, read_jsonl(dev)[1:])
    assert key(project) != on_dev


@pytest.mark.parametrize("method", ["ema", "wise_ft"])
def test_what_makes_its_result_after_the_last_step_is_refused(project: Path, method: str) -> None:
    change(project, training=SPLIT, methods=["vanilla", method])
    with raises_code(ConfigError, "bad-composition", "after the last step"):
        open_project(project)
