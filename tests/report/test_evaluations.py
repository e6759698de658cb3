"""What evaluations found is shown the same way, whatever they are: numbers, tables, lines with intervals, sizes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from regft_core.evaluate.analysis_result import Plot, Table
from regft_core.report.evaluations import _found, _table, mean_rows
from regft_core.report.facts import overrides
from regft_core.report.figures import block as figures
from regft_core.report.formatting import quantity
from regft_core.runs.records import EpochScore, EpochScores, Finding, FindingRecord
from regft_core.statistics.bootstrap import seed_interval
from tests.report.grids import terminal
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
            "ranges": {"gap": [0.0, 1.0], "wide": [0.0, 1.0]},
            "remarks": [],
        }
        runs.append(run | changes.get(f"seed_{seed}", {}))
    content: Mapping[str, Any] = {"description": f"how large {HOSTILE} is", "options": {"bins": 5}, "runs": runs}
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
    assert (shown.of, shown.bands[0]) == ("mean of 3 seeds", pytest.approx(seed_interval([0.3, 0.31, 0.32])))
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
    drawn = [replace(table, plot=Plot("n", "x")) for table in (one, other)]
    assert _table("m", dict(enumerate(drawn)), 0.95).bands == {0: pytest.approx(seed_interval([0.375, 1.125]))}
    assert mean_rows([replace(table, weight=None) for table in (one, other)])[0] == ("a", 2.0, 0.5, None)


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


# ------------------------------------------------------------------------------------------------------------ figures


PLOT = {"x": "rate", "y": "accuracy", "group": ["noise"]}


def found(seed: int, shift: float) -> dict[str, Any]:
    """What an evaluation found about one run."""
    rows = [
        [noise, rate, 0.9 - rate * (1 + shift) + 0.01 * seed**2] for noise in ("mask", "sampled") for rate in (0.0, 0.5)
    ]
    curve = {"columns": ["noise", "rate", "accuracy"], "rows": rows, "keys": 2, "plot": PLOT}
    scalars = {"spread": 1e-6 * (1 + shift + seed)}
    return {"scalars": {"dev": scalars}, "tables": {"dev": {"curve": curve}}, "ranges": {}, "over_sizes": ["spread"]}


@pytest.fixture(scope="module")
def sizes(make: Any) -> Any:
    arms = {"vanilla": Arm(0.7), "tdt": Arm(0.9), "off": Arm(0.75, control_for="tdt")}
    built = make(arms, {"sst2": Task(n=60)}, range(3), (100, 300, "full"))
    for i, method in enumerate(arms):
        for size in (100, 300, "full"):
            write(built.root, method, range(3), size, **{f"seed_{seed}": found(seed, 0.2 * i) for seed in range(3)})
    return built, built.again()


def test_neither_a_number_nor_its_difference_has_an_interval_beyond_its_range() -> None:
    values = {"vanilla": [0.0, 1.0], "tdt": [1.0, 0.1]}
    block: Any = SimpleNamespace(described=SimpleNamespace(sets=["dev"]))
    same: Any = {"key": "0", "status": "ok", "tables": {}, "ranges": {"gap": [0.0, 1.0]}}
    findings = {
        method: Finding(
            description="",
            options={},
            runs=[FindingRecord(**same, seed=seed, scalars={"dev": {"gap": gap}}) for seed, gap in enumerate(own)],
        )
        for method, own in values.items()
    }
    number = _found(block, findings, 0.95, "vanilla").numbers["tdt", "dev", "gap"]
    assert number.interval == (0.0, 1.0)
    assert number.versus == (pytest.approx(0.05), (-1.0, 1.0))


def figure(html: str, label: str) -> str:
    """The figure that is read aloud as ``label``."""
    (found,) = [svg for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL) if f'aria-label="{label}"' in svg]
    return found


def test_lines_have_intervals_over_seeds_and_numbers_paired_differences(sizes: Any) -> None:
    _, report = sizes
    entry = next(entry for entry in report.evaluations[0].found if entry.block.name == "sst2-300")
    vanilla = entry.tables["dev", "curve"][0]
    assert vanilla.table.rows[1][:2] == ("mask", 0.5)
    assert vanilla.bands[1] == pytest.approx(seed_interval([0.4, 0.41, 0.44]))
    assert entry.numbers["vanilla", "dev", "spread"].versus is None
    assert entry.numbers["tdt", "dev", "spread"].versus[0] == pytest.approx(2e-7)
    shown = report.results["sst2-300"]["tdt"]["evaluations"]["toy"]["dev"]["spread"]["minus_reference"]
    assert shown["mean"] == pytest.approx(2e-7)
    assert "minus vanilla: +2.00e−07" in report.html


def test_scores_and_numbers_over_the_training_sizes(sizes: Any) -> None:
    built, report = sizes
    assert '<section id="sizes">' in report.html
    titles = [block.title for block in report.blocks]
    assert titles == ["sst2 at full size", "sst2 at 300 rows", "sst2 at 100 rows"]
    boards = re.findall(r'(<summary>[^<]*</summary>)?<div class="board" id="board-([^"]*)">', report.html)
    folds = ["", *(f"<summary>{title}</summary>" for title in titles[1:])]
    assert boards == list(zip(folds, [block.name for block in report.blocks], strict=True))
    shown = terminal(report, 80).splitlines()
    assert sum("mean over seeds" in line for line in shown) == 1
    assert any(titles[1] in line and titles[2] in line for line in shown)
    (forecast,) = report.more_rows
    assert forecast.startswith("With 10000 rows of sst2 instead of 5000, ")
    assert forecast in report.html
    assert "[" in forecast
    single = built.again(seeds=built.inputs.seeds[:1], out=None).more_rows
    assert "[" not in single[0], "one seed does not show how runs differ"
    svg = figure(report.html, "accuracy of sst2 over the training rows")
    assert all(f">{word}<" in svg for word in ("100", "300", "5000", "dev", "contrast", "training rows", "tdt"))
    spread = figure(report.html, "spread of toy on sst2 over the training rows")
    assert ">sst2, dev<" in spread
    one = built.again(cells=[cell for cell in built.inputs.cells if str(cell.size) == "300"])
    assert 'id="sizes"' not in one.html
    assert "over the training rows" not in one.html


# ----------------------------------------------------------------------------------- figures of blocks


def test_what_dvc_shows_stands_alone(built: Any) -> None:
    for block in built.report.blocks:
        for kind in ("leaderboard", "loss"):
            text = (built.root / "reports" / "plots" / kind / f"{block.name}.svg").read_text()
            ElementTree.fromstring(text)
            assert not re.findall(r"var\(|https?://(?!www\.w3\.org/2000/svg)|<script|#0[1-7]0[1-7]0[1-7]", text)
        text = (built.root / "reports" / "plots" / "leaderboard" / f"{block.name}.svg").read_text()
        assert all(row.method in text for row in block.rows)


def test_a_score_by_epoch_that_was_not_taken_is_left_out() -> None:
    def scores(seed: int) -> EpochScores:
        values = {1: 0.6 + 0.01 * seed, 2: None, 3: 0.8 + 0.01 * seed}
        rows = [EpochScore("finetune", "dev", 19 * n, float(n), value) for n, value in values.items()]
        return EpochScores(metric="accuracy", scores=rows)

    runs = [SimpleNamespace(seed=seed, epoch_scores=scores(seed)) for seed in range(6)]
    cell: Any = SimpleNamespace(finetune=SimpleNamespace(runs=runs))
    curves = figures.epochs(cell, "accuracy", "dev")
    assert (list(curves.index), len(curves.columns)) == ([1.0, 3.0], 6)  # the second gave no number
    np.testing.assert_allclose(curves.mean(axis=1), [62.5, 82.5])
    assert figures.epochs(cell, "f1", "dev").empty


def test_the_switch_of_scores_by_epoch_is_no_setting_that_an_arm_trains_under() -> None:
    """It is off where there is nothing to score, such as a constant answer."""
    shared = {"epochs": 3, "epoch_scores": True}
    assert overrides({"epochs": 3, "epoch_scores": False}, shared) == {}
    assert overrides({"epochs": 4, "epoch_scores": False}, shared) == {"epochs": (3, 4)}
