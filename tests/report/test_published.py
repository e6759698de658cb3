"""A paper's table keeps its shape, with the same arm of ours in its cells; a published baseline is no opponent."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from regft_core.report import Inputs, write_report
from regft_core.report.published import words
from regft_core.schema.report import ReportConfig
from tests.report.grids import terminal

TABLE: dict[str, Any] = {
    "paper": "A paper",
    "table": "1",
    "what": "two tasks",
    "seeds": 5,
    "statistic": "mean",
    "columns": {
        "sst2": {"metric": "accuracy"},
        "rte": {"metric": "f1"},
        "sst2/contrast": {"metric": "accuracy"},
        "average": {"mean_of": ["sst2", "rte"]},
    },
    "encoders": {"MiniLM": {"model": "sentence-transformers/all-MiniLM-L6-v2", "source": "the paper"}},
    "rows": [
        {
            "method": "Plain",
            "arm": "vanilla",
            "encoder": "MiniLM",
            "size": 300,
            "scores": {"sst2": 70.0, "rte": 60.0, "average": 65.0},
            "deviations": {"sst2": 1.0, "rte": 2.0},
        },
        {
            "method": "Good",
            "arm": "good",
            "encoder": "MiniLM",
            "size": 300,
            "scores": {"sst2": 75.0, "rte": 61.0, "sst2/contrast": 50.0},
        },
        {"method": "Other", "arm": "other", "encoder": "MiniLM", "size": 300, "scores": {"sst2": 99.0}},
        {
            "method": "Plain of others",
            "arm": "vanilla",
            "encoder": "MiniLM",
            "size": 300,
            "scores": {"sst2": 71.0},
            "copied_from": "another paper",
        },
    ],
}


def report(
    synthetic: Any, root: Path, arms: Any, table: Any = None, n: int = 100, seeds: int = 4, **changes: Any
) -> Any:
    """A report of sst2 and rte beside a paper's table: ``TABLE`` with ``changes``, or ``table``."""
    for folder, names in (("tasks", ("sst2", "rte", "contrast")), ("methods", ("vanilla", "good", "other", *arms))):
        (root / "pipelines" / folder).mkdir(parents=True, exist_ok=True)
        for name in names:
            (root / "pipelines" / folder / f"{name}.yaml").write_text("")
    (root / "published").mkdir(exist_ok=True)
    (root / "published" / "p_table1.yaml").write_text(yaml.safe_dump(table or {**TABLE, **changes}, sort_keys=False))
    tasks = {"sst2": synthetic.Task(n=2 * n), "rte": synthetic.Task(n=n, ood=())}
    cells = synthetic.build(root, arms, tasks, (300,), range(seeds))
    return written(synthetic, root, cells, arms, seeds)


def written(synthetic: Any, root: Path, cells: Any, arms: Any, seeds: int) -> Any:
    config = ReportConfig(bootstrap_samples=200, published=["p_table1"])
    methods = synthetic.methods_of(arms)
    return write_report(Inputs(root, cells, range(seeds), config, methods, training=synthetic.TRAINING))


@pytest.fixture(scope="module")
def found(synthetic: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    arms = {"vanilla": synthetic.Arm(0.72), "good": synthetic.Arm(0.8)}
    return report(synthetic, tmp_path_factory.mktemp("published"), arms)


def cell(found: Any, method: str, key: str) -> Any:
    row = next(row for row in found.published[0].rows if row.row.method == method)
    return next(cell for cell in row.cells if cell.key == key)


def score(found: Any, block: str, arm: str, metric: str, name: str = "dev") -> Any:
    return next(b for b in found.blocks if b.task == block).row(arm).scores[name][metric].estimate


def test_published_ours_and_difference(found: Any) -> None:
    own = cell(found, "Plain", "sst2")
    estimate = score(found, "sst2", "vanilla", "accuracy")
    assert (own.published.value, own.published.deviation, own.published.seeds) == (70.0, 1.0, 5)
    assert own.ours.value == pytest.approx(100 * estimate.mean)
    assert own.ours.deviation == pytest.approx(100 * estimate.seed_deviation)
    assert own.ours.seeds == 4
    gap = own.difference
    assert gap.value == pytest.approx(own.ours.value - 70.0)
    # Welch: our variance of the mean and the paper's.
    ours, theirs = (100 * estimate.seed_deviation) ** 2 / 4, 1.0**2 / 5
    freedom = (ours + theirs) ** 2 / (ours**2 / 3 + theirs**2 / 4)
    from scipy.stats import t

    half = t.ppf(0.975, freedom) * math.sqrt(ours + theirs)
    assert (gap.low, gap.high) == (pytest.approx(gap.value - half), pytest.approx(gap.value + half))


def test_rows_and_columns_are_those_of_the_paper(found: Any) -> None:
    heads, lines = words.grid(found.published[0])
    assert [name for name, _ in heads] == ["sst2", "rte", "sst2/contrast", "average"]
    assert [name for (name, _), _ in lines] == [row["method"] for row in TABLE["rows"]]
    for (_, cells), row in zip(lines, TABLE["rows"], strict=True):
        assert {c.key: c.published.value for c in cells if c.published} == row["scores"]


def test_columns_use_their_own_metric_and_set(found: Any) -> None:
    assert cell(found, "Good", "rte").ours.value == pytest.approx(100 * score(found, "rte", "good", "f1").mean)
    contrast = cell(found, "Good", "sst2/contrast")
    assert contrast.ours.value == pytest.approx(100 * score(found, "sst2", "good", "accuracy", "contrast").mean)


def test_gains_are_within_one_source(found: Any) -> None:
    own = cell(found, "Good", "sst2")
    assert own.published_gain == pytest.approx(5.0)
    assert own.our_gain == pytest.approx(own.ours.value - cell(found, "Plain", "sst2").ours.value)
    assert cell(found, "Plain", "sst2").our_gain is None


def test_printed_gains_stand_beside_ours(synthetic: Any, tmp_path: Path) -> None:
    """A column may print gains alone, over a row that the table names."""
    plain, good = TABLE["rows"][:2]
    rows = [
        {**plain, "scores": {"sst2": 70.0, "rte": 60.0}},
        {**good, "scores": {"sst2": 75.0, "rte": 61.0}, "gain_over": "Plain", "gains": {"average": 3.0, "rte": 1.0}},
    ]
    arms = {"vanilla": synthetic.Arm(0.72), "good": synthetic.Arm(0.8)}
    found = report(synthetic, tmp_path, arms, rows=rows)
    own = cell(found, "Good", "average")
    assert (own.published, own.difference, own.published_gain) == (None, None, 3.0)
    assert words.published(own) == "+3.00"
    parts = [cell(found, "Good", key).our_gain for key in ("sst2", "rte")]
    assert own.our_gain == pytest.approx(sum(parts) / 2)
    assert words.ours(own) == words.number(own.our_gain, 2, signed=True)
    assert words.published(cell(found, "Good", "rte")) == "61.00 (5) +1.00"
    assert words.published(cell(found, "Plain", "average")) == ""


def test_an_arm_that_was_not_run_is_not_replaced_by_the_published_one(
    found: Any, synthetic: Any, tmp_path: Path
) -> None:
    absent = cell(found, "Other", "sst2")
    assert (absent.published.value, absent.ours, absent.why) == (99.0, None, "other was not run here")
    assert any("compared with nothing: Other" in note for note in found.published[0].notes)
    # Without our own baseline there is no gain of ours, however near the published baseline lies.
    alone = report(synthetic, tmp_path, {"good": synthetic.Arm(0.8)})
    assert cell(alone, "Good", "sst2").our_gain is None


def test_a_copied_row_is_marked_and_never_compared(found: Any) -> None:
    own = cell(found, "Plain of others", "sst2")
    assert (own.ours, own.difference, own.why) == (None, None, "copied from another paper")
    assert words.grid(found.published[0])[1][-1][0][1] == ("copied",)
    assert "Copied by the paper and not compared: Plain of others (from: another paper)" in found.published[0].notes


ARMS = ("vanilla", "good")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"encoders": {"MiniLM": {"model": "google-bert/bert-large-cased", "source": "the paper"}}},
            "another encoder: all-MiniLM-L6-v2 here, bert-large-cased in the paper",
        ),
        (
            {"rows": [{**row, "size": 1000} for row in TABLE["rows"]]},
            "trained on 300 rows here, on 1000 rows in the paper",
        ),
    ],
)
def test_another_experiment_is_shown_and_marked(synthetic: Any, tmp_path: Path, changes: Any, why: str) -> None:
    found = report(synthetic, tmp_path, {name: synthetic.Arm(0.72) for name in ARMS}, **changes)
    own = cell(found, "Good", "sst2")
    assert (own.ours is not None, own.difference, own.otherwise) == (True, None, (why,))
    assert f"{words.mean(own.ours)}†" in found.html
    assert why in terminal(found, 120)


@pytest.mark.parametrize(
    ("rows", "changes", "why"),
    [
        ([*TABLE["rows"][:1], *({**row, "size": 1000} for row in TABLE["rows"][1:])], {}, "sst2 was not run with 1000"),
        (
            [*TABLE["rows"][:1], {**TABLE["rows"][1], "encoder": "B"}],
            {"encoders": {**TABLE["encoders"], "B": {"model": "google-bert/bert-large-cased", "source": "it"}}},
            "all-MiniLM-L6-v2 was run here, not bert-large-cased",
        ),
        (TABLE["rows"], {"columns": {**TABLE["columns"], "sst2": {"metric": "matthews"}}}, "another metric"),
    ],
)
def test_cells_that_nothing_here_fits_stay_empty(
    synthetic: Any, tmp_path: Path, rows: Any, changes: Any, why: str
) -> None:
    arms = {name: synthetic.Arm(0.72) for name in ARMS}
    own = cell(report(synthetic, tmp_path, arms, rows=rows, **changes), "Good", "sst2")
    assert (own.ours, own.difference) == (None, None)
    assert why in own.why
