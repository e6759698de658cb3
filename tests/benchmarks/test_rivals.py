"""The standing benchmark: draws, answers, a rival that can be checked by hand, and the table of stored lines."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def test_no_test_row_is_drawn_and_labels_keep_their_shares(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = load("rival_tasks")
    rows = [{"text": f"text {at % 2900}", "label": "rare" if at % 10 == 0 else "often"} for at in range(3000)]
    task = tasks.Task("classes", "accuracy", lambda data, packages: (rows, None))
    monkeypatch.setitem(tasks.TASKS, "own", task)
    pool, test = task.parts(Path(), Path())
    assert (len(pool), len(test)) == (1900, 1000)
    first, second = (tasks.drawn(pool, "own", 200, draw) for draw in (0, 1))
    assert first == tasks.drawn(pool, "own", 200, 0) != second
    assert not {row["text"] for row in first} & {row["text"] for row in test}
    assert sum(row["label"] == "rare" for row in first) == pytest.approx(
        200 * sum(row["label"] == "rare" for row in pool) / len(pool), abs=1
    )


def test_scores_of_several_labels_and_of_pooled_ones(load: Any) -> None:
    tasks = load("rival_tasks")
    labels = tasks.Task("labels", "f1_micro", None)
    y, names = labels.encoded(["a;b", "c"])
    assert names == ["a", "b", "c"]
    assert labels.decoded(y, names) == ["a;b", "c"]
    assert labels.score(["a;b", "c"], ["a", "a;c"]) == pytest.approx(2 * 2 / (3 + 3))
    assert tasks.Task("classes", "f1_macro", None).score(["a", "a", "b"], ["a", "a", "other"]) == pytest.approx(0.5)


@pytest.mark.parametrize("model", ["lr", "svm"])
def test_a_rare_label_gets_a_threshold(load: Any, model: str) -> None:
    """Every tenth text is about bees, and each model finds them."""
    tasks, rivals = load("rival_tasks"), load("rivals")
    texts = [f"the bee flies to flower {at}" if at % 10 == 0 else f"a car drives to town {at}" for at in range(120)]
    rows = [{"text": text, "label": "bees" if "bee" in text else "else"} for text in texts]
    task = tasks.Task("classes", "f1_macro", None)
    found = rivals.linear("words", model, task, rows[:60], rows[60:], argparse.Namespace(encoder=None))
    assert task.score([row["label"] for row in rows[60:]], found["answers"]) == 1.0
    assert found["folds"] == 1.0


def line(task: str, contestant: str, score: float, draw: int = 0, **more: float) -> dict[str, Any]:
    return {
        "task": task,
        "size": 200,
        "draw": draw,
        "contestant": contestant,
        "metric": "accuracy",
        "score": score,
    } | more


def test_the_table_compares_on_the_same_cells(load: Any) -> None:
    table = load("table")
    names = [f"{block}_{model}" for block in "abcd" for model in ("lr", "svm")]
    lines = [line(task, name, 0.5, folds=0.1, cpu=1.0, seconds=2.0) for task in ("one", "two") for name in names]
    lines += [line("one", "fit", 0.6, expected=0.6, low=0.5, high=0.7), line("two", "fit", 0.7, low=0.8, high=0.9)]
    lines[0] |= {"score": 0.65, "folds": 0.9}
    lines += [line("one", "setfit", 0.9), line("one", "fit", 0.1, draw=1), line("three", "fit", 0.1)]
    cells = table.by_cell(lines, 200)
    assert {task: list(draws) for task, draws in cells.items()} == {"one": [0], "two": [0]}
    rows = {row[0]: row[1:] for row in table.by_contestant(cells)}
    assert rows["a_lr"][:6] == ["2", "2", "57.5", "65.0", "-7.5 (12.5)", "1"]
    assert rows["setfit"][:6] == ["1", "1", "90.0", "60.0", "+30.0", "1"]
    assert rows[table.BY_FOLDS][5:] == ["1", "8", "16"]
    assert rows[table.IN_HINDSIGHT][2:4] == ["70.0", "65.0"]
    assert [row[4] for row in table.by_rival_task(cells)[1:]] == ["1 of 1", "0 of 1", "1 of 2"]
