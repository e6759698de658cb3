"""``training.checkpoint``: the best epoch on rows set aside or, marked, on the dev set; and its place in the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regft_core.data.examples import read_jsonl, write_jsonl
from regft_core.errors import ConfigError, DataError
from regft_core.runs.context import Context
from regft_core.runs.project import open_project
from tests.errors import raises_code
from tests.runs.conftest import TASK, change, edit, job, stored, train, write_method

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


def test_the_code_that_judges_counts_only_where_it_judges(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regft_core.runs import scopes

    phase = Context(job(project, "vanilla")).phase("finetune")
    source = Context(job(project, "vanilla")).source
    plain = scopes.phase_scope([], phase, source, ["classification"], ["accuracy"])
    assert scopes.CHECKPOINT_RULE not in plain.entries
    change(project, training=SPLIT)
    phase = Context(job(project, "vanilla")).phase("finetune")
    assert {scopes.CHECKPOINT_RULE, "regft_core.metrics.accuracy"} <= set(
        scopes.phase_scope([], phase, source, ["classification"], ["accuracy"]).entries
    )
    assert "checkpoint" in Context(job(project, "vanilla")).keys.identity("finetune")["training"]


def test_the_key_has_the_dev_set_that_chooses(project: Path) -> None:
    """Without it a run would be left as it is whose dev set is another."""
    change(project, training=SPLIT)
    dev = project / "work" / "datasets" / TASK / "dev.jsonl"
    rows = dev.read_text()

    def key_with(rows: str) -> str:
        dev.write_text(rows)
        return Context(job(project, "vanilla")).keys.of("finetune")

    less = "".join(rows.splitlines(keepends=True)[1:])
    assert key_with(rows) == key_with(less)
    change(project, training=DEV)
    assert key_with(rows) != key_with(less)


@pytest.mark.parametrize("method", ["ema", "wise_ft"])
def test_what_makes_its_result_after_the_last_step_is_refused(project: Path, method: str) -> None:
    change(project, training=SPLIT, methods=["vanilla", method])
    with raises_code(ConfigError, "bad-composition", "after the last step"):
        open_project(project)


def test_a_share_without_rows_says_so(project: Path) -> None:
    change(project, training={**SPLIT, "checkpoint_share": 0.99})
    with raises_code(DataError, "no-rows-left", "0.99 of 24"):
        train(project, "vanilla")


def test_a_method_may_have_a_rule_of_its_own(project: Path) -> None:
    rule: dict[str, Any] = {"training": {"checkpoint": "best_on_split"}}
    write_method(project, "best", **rule)
    context = Context(job(project, "best"))
    assert context.phase("finetune").training.checkpoint == "best_on_split"
    edit(project / "pipelines" / "methods" / "best.yaml", "best_on_split", "best_on_dev_as_published")
    assert key(project, "best") != context.keys.of("finetune")
