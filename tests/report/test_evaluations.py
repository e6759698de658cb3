"""What evaluations found is shown the same way, whatever they are."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regft_core.evaluate.analysis_result import Table
from regft_core.report.evaluations import mean_rows
from regft_core.report.formatting import quantity
from regft_core.statistics.bootstrap import seed_interval
from tests.report.synthetic import Arm, Task

HOSTILE = "<script>alert('x')</script>"


def bins(seed: int) -> dict[str, Any]:
    rows = [["low", 10, 0.2, 0.3 + 0.01 * seed], ["high", 30, 0.8, None if seed else 0.7]]
    plot = {"x": "confidence", "y": "accuracy", "baseline": "confidence"}
    columns = ["bin", "examples", "confidence", "accuracy"]
    return {"columns": columns, "rows": rows, "keys": 1, "weight": "examples", "plot": plot}


def texts(seed: int) -> dict[str, Any]:
    return {"columns": ["idx", "text"], "rows": [[f"r{seed}", HOSTILE]], "keys": 0, "weight": None, "plot": None}


def write(root: Path, method: str, seeds: Any, size: Any = 300, **changes: Any) -> None:
    """An evaluation of every seed, as the stage evaluate writes it; ``changes`` are per seed or for all."""
    runs = []
    for seed in seeds:
        run: dict[str, Any] = {
            "seed": seed,
            "key": "0",
            "status": "ok",
            "error": None,
            "environment": None,
            "scalars": {"dev": {"gap": 0.01 + 0.02 * seed}, "run": {"size": 22_713_216.0}},
            "tables": {"dev": {"bins": bins(seed), "texts": texts(seed)}},
            "ranges": {"gap": [0.0, 1.0]},
            "remarks": [],
        }
        runs.append(run | changes.get(f"seed_{seed}", {}))
    content: Mapping[str, Any] = {
        "description": f"how large {HOSTILE} is",
        "options": {"bins": 5},
        "runs": runs,
    }
    path = root / "work" / "evaluate" / method / "sst2" / str(size) / "evaluations" / "toy.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


@pytest.fixture
def grid(make: Any) -> Any:
    return make({"vanilla": Arm(0.8), "other": Arm(0.9)}, {"sst2": Task(n=60)}, range(3))


def section(html: str) -> str:
    start = html.index('<section id="evaluations">')
    return html[start : html.index("</section>", start)]


def test_numbers_have_means_and_intervals_over_seeds_that_end_where_the_number_does(grid: Any) -> None:
    write(grid.root, "vanilla", range(3))
    write(grid.root, "other", [0])
    report = grid.again()
    (found,) = report.evaluations[0].found
    assert found.places == (("dev", "gap"), ("run", "size"))
    gap, size = (found.numbers["vanilla", *place] for place in found.places)
    assert gap.mean == pytest.approx(0.03)
    low, high = seed_interval([0.01, 0.03, 0.05])
    assert low < 0
    assert gap.interval == (0.0, pytest.approx(high))
    assert size.interval == (22_713_216.0, 22_713_216.0)
    assert found.numbers["other", "dev", "gap"].interval is None
    html = section(report.html)
    assert f'data-value="{gap.mean!r}">0.0300<span class="ci">[0, {quantity(high)}]' in html
    assert "22,713,216" in html
    shown = report.results["sst2-300"]["vanilla"]["evaluations"]["toy"]["dev"]["gap"]
    assert shown == {"mean": gap.mean, "low": 0.0, "high": gap.interval[1], "n": 3}


def test_tables_are_means_by_weight_or_the_first_seed_and_texts_are_escaped(grid: Any) -> None:
    write(grid.root, "vanilla", range(3))
    report = grid.again()
    tables = report.evaluations[0].found[0].tables
    (shown,) = tables["dev", "bins"]
    assert shown.table.rows == (("low", 10.0, 0.2, pytest.approx(0.31)), ("high", 30.0, pytest.approx(0.8), 0.7))
    assert shown.of == "mean of 3 seeds"
    (first,) = tables["dev", "texts"]
    assert (first.of, first.table.rows) == ("seed 0", (("r0", HOSTILE),))
    html = section(report.html)
    assert HOSTILE not in html
    assert "&lt;script&gt;" in html
    assert html.count("<svg") == 1
    assert re.search(r"<details class=\"figures\" open><summary>bins as a figure</summary>", html)


def test_the_mean_of_a_table_is_pooled_by_weight() -> None:
    one = Table(("bin", "n", "x", "word"), (("a", 1, 0.0, "p"),), keys=1, weight="n")
    other = replace(one, rows=(("a", 3, 1.0, "q"), ("b", 0, 5.0, "q")))
    assert mean_rows([one, other]) == (("a", 2.0, 0.75, None), ("b", 0.0, None, "q"))
    alike = [replace(table, weight=None) for table in (one, other)]
    assert mean_rows(alike)[0] == ("a", 2.0, 0.5, None)


def test_remarks_and_failures_say_whom_they_are_about(grid: Any) -> None:
    failed = {"status": "failed", "error": "logits are NaN", "scalars": {}, "tables": {}}
    write(grid.root, "vanilla", range(3), seed_1={"remarks": ["nothing was fitted"]}, seed_2=failed)
    write(grid.root, "other", range(3), **{f"seed_{seed}": {"remarks": ["nothing was fitted"]} for seed in range(3)})
    report = grid.again(None)
    assert report.evaluations[0].found[0].remarks == (
        "vanilla (seeds 1), other: nothing was fitted",
        "vanilla (seeds 2): failed: logits are NaN",
    )
    assert len(report.evaluations[0].found[0].numbers["vanilla", "dev", "gap"].values) == 2
