"""The files beside the page, the terminal's table, numbers as text."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regft_core.report import results as numbers
from regft_core.report.results import thinned
from regft_core.runs.work import CurvePoint


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_leaderboard_has_a_row_per_finished_seed(built: Any) -> None:
    found = rows(built.root / "reports" / "tables" / "scores.csv")
    own = [
        float(row["value"])
        for row in found
        if (row["task"], row["method"], row["set"], row["metric"]) == ("sst2", "weight_mixup", "dev", "accuracy")
    ]
    metrics = json.loads((built.root / "reports" / "results.json").read_text())["sst2-300"]["weight_mixup"]
    assert len(own) == metrics["dev"]["accuracy"]["n"] == 5
    assert sum(own) / 5 == pytest.approx(metrics["dev"]["accuracy"]["mean"])


def test_costs_and_runs_have_a_row_per_run(built: Any) -> None:
    runs = rows(built.root / "reports" / "tables" / "runs.csv")
    assert len(runs) == 2 * 6 * 6
    (failed,) = [row for row in runs if row["status"] == "failed" and row["task"] == "sst2"]
    assert (failed["method"], failed["seed"]) == ("weight_mixup", "3")
    assert [row["collapsed"] for row in runs if row["method"] == "weight_mixup_soup"].count("constant") == 2
    costs = rows(built.root / "reports" / "tables" / "costs.csv")
    declared = [float(row["value"]) for row in costs if row["quantity"] == "declared_ratio"]
    assert set(declared) == {1.0, 2.0, 3.8, 4.0}


def test_every_word_beside_the_sets_is_refused_as_a_name_of_a_set(built: Any) -> None:
    from regft_core.evaluate.analysis_result import RUN
    from regft_core.schema.tasks import RESERVED_SETS

    described = [json.loads(path.read_text()) for path in built.root.glob("work/datasets/*/task.json")]
    sets = {name for task in described for name in task["sets"]}
    assert "contrast" in sets
    results = json.loads((built.root / "reports" / "results.json").read_text())
    for methods in (results[block.name] for block in built.report.blocks):
        assert all(set(row) - sets <= set(RESERVED_SETS) for row in methods.values())
    assert RUN in RESERVED_SETS


def shown(root: Path) -> dict[str, Any]:
    """What ``dvc metrics show`` reads: block -> content of its file."""
    return {path.stem: json.loads(path.read_text()) for path in (root / "reports" / "metrics").iterdir()}


def points(share: float) -> float:
    return round(100 * share, 2)


def test_what_dvc_shows_is_a_line_for_each_block_of_the_primary_metric(built: Any) -> None:
    """``dvc exp show`` prints a column per number, by name: method and score come first."""
    shown_of = shown(built.root)
    full = json.loads((built.root / "reports" / "results.json").read_text())
    assert {*shown_of, "shown_times"} == full.keys()
    entry, everything = shown_of["sst2-300"], full["sst2-300"]
    (taken,) = [name for name, own in everything.items() if own.get("decision", {}).get("taken")]
    accuracy = {name: everything[taken][name]["accuracy"] for name in ("dev", "contrast")}
    assert entry == {
        **{
            "method": taken,
            "score": points(accuracy["dev"]["mean"]),
            "set_contrast": points(accuracy["contrast"]["mean"]),
        },
        **{f"score_{side}": points(accuracy["dev"][side]) for side in ("low", "high")},
        "unfinished": 1,
    }
    assert sorted(entry)[:2] == ["method", "score"]


def test_of_many_blocks_dvc_shows_method_and_score(built: Any) -> None:
    blocks = [replace(built.report.blocks[0], task=f"task{i}") for i in range(numbers.WHOLE + 1)]
    assert all(set(own) == {"method", "score", "unfinished"} for own in numbers.primary(blocks).values())


@given(st.integers(1, 400), st.integers(1, 60))
def test_thinning_keeps_the_range_and_the_mean(n: int, most: int) -> None:
    points = [CurvePoint(1, "finetune", i, float(i), None, 1.0) for i in range(1, n + 1)]
    found = thinned(points, most)
    assert len(found) == min(n, most)
    assert found["step"].is_monotonic_increasing
    assert found["step"].iloc[-1] == n
    if n % most == 0 or n <= most:
        assert found["loss"].mean() == pytest.approx((n + 1) / 2)
    assert found["learning_rate"].isna().all()
