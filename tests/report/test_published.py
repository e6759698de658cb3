"""A paper's table keeps its shape, with the same arm of ours in its cells; a published baseline is no opponent."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from regft_core.report import Inputs, summary_table, write_report
from regft_core.report.published import words
from regft_core.report.published.paper import Measured, difference
from regft_core.schema.report import ReportConfig

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


def report(synthetic: Any, root: Path, arms: Any, **changes: Any) -> Any:
    for folder, names in (("tasks", ("sst2", "rte", "contrast")), ("methods", ("vanilla", "good", "other"))):
        (root / "pipelines" / folder).mkdir(parents=True, exist_ok=True)
        for name in names:
            (root / "pipelines" / folder / f"{name}.yaml").write_text("")
    (root / "published").mkdir(exist_ok=True)
    (root / "published" / "p_table1.yaml").write_text(yaml.safe_dump({**TABLE, **changes}, sort_keys=False))
    tasks = {"sst2": synthetic.Task(n=200), "rte": synthetic.Task(n=100, ood=())}
    cells = synthetic.build(root, arms, tasks, (300,), range(4))
    config = ReportConfig(bootstrap_samples=200, published=["p_table1"])
    return write_report(Inputs(root, cells, range(4), config, synthetic.methods_of(arms), training=synthetic.TRAINING))


@pytest.fixture(scope="module")
def found(synthetic: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    arms = {"vanilla": synthetic.Arm(0.72), "good": synthetic.Arm(0.8)}
    return report(synthetic, tmp_path_factory.mktemp("published"), arms)


def cell(found: Any, method: str, key: str) -> Any:
    row = next(row for row in found.published[0].rows if row.method == method)
    return next(cell for cell in row.cells if cell.key == key)


def score(found: Any, block: str, arm: str, metric: str, name: str = "dev") -> Any:
    return next(b for b in found.blocks if b.task == block).row(arm).scores[name][metric].estimate


def text_of(found: Any, width: int) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(summary_table(found))
    return console.export_text()


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


def test_rows_and_columns_are_those_of_the_paper(found: Any, synthetic: Any, tmp_path: Path) -> None:
    heads, lines = words.grid(found.published[0])
    assert [head.name for head in heads] == ["sst2", "rte", "sst2/contrast", "average"]
    assert [head.name for head, _ in lines] == [row["method"] for row in TABLE["rows"]]
    for (_, cells), row in zip(lines, TABLE["rows"], strict=True):
        assert {c.key: c.published.value for c in cells if c.published} == row["scores"]
    turned = report(synthetic, tmp_path, {"vanilla": synthetic.Arm(0.72)}, transposed=True)
    assert [head.name for head, _ in words.grid(turned.published[0])[1]] == [head.name for head in heads]
    assert [head.name for head in words.grid(turned.published[0])[0]] == [row["method"] for row in TABLE["rows"]]


def test_columns_use_their_own_metric_and_set(found: Any) -> None:
    assert cell(found, "Good", "rte").ours.value == pytest.approx(100 * score(found, "rte", "good", "f1").mean)
    contrast = cell(found, "Good", "sst2/contrast")
    assert contrast.ours.value == pytest.approx(100 * score(found, "sst2", "good", "accuracy", "contrast").mean)


def test_means_are_over_the_columns_that_the_table_says(found: Any) -> None:
    own = cell(found, "Plain", "average")
    both = [score(found, "sst2", "vanilla", "accuracy").mean, score(found, "rte", "vanilla", "f1").mean]
    assert own.ours.value == pytest.approx(100 * sum(both) / 2)
    assert own.difference.low < own.difference.value < own.difference.high


def test_the_deviation_of_a_mean_stands_in_for_that_of_its_parts(synthetic: Any, tmp_path: Path) -> None:
    arms = {"vanilla": synthetic.Arm(0.72)}
    row = {**TABLE["rows"][0], "deviations": {"average": 1.5}}
    own = cell(report(synthetic, tmp_path, arms, rows=[row]), "Plain", "average")
    alone = cell(report(synthetic, tmp_path, arms, rows=[{**row, "deviations": {}}]), "Plain", "average")
    assert own.difference.high - own.difference.low > alone.difference.high - alone.difference.low
    assert any("interval is of our seeds alone" in note for note in alone.notes)
    assert not any("interval is of our seeds alone" in note for note in own.notes)


def test_a_paper_without_deviations_or_seeds_is_told(synthetic: Any, tmp_path: Path) -> None:
    arms = {"vanilla": synthetic.Arm(0.72)}
    plain = [{**row, "deviations": {}} for row in TABLE["rows"]]
    found = report(synthetic, tmp_path, arms, rows=plain)
    assert any("prints no deviations" in note for note in found.published[0].notes)
    found = report(synthetic, tmp_path, arms, seeds=None)
    assert any("does not say how many seeds" in note for note in found.published[0].notes)
    assert any("our seeds alone" in note for note in cell(found, "Plain", "sst2").notes)


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
    assert words.grid(found.published[0])[1][-1][0].small == ("copied",)
    assert "Copied by the paper and not compared: Plain of others (from: another paper)" in found.published[0].notes


def test_a_published_baseline_against_our_method_is_refused() -> None:
    with pytest.raises(ValueError, match="run the baseline here"):
        difference(Measured("vanilla", "sst2", 70.0, ()), Measured("good", "sst2", 80.0, ()), 0.95)
    with pytest.raises(ValueError, match="not compared"):
        difference(Measured("good", "sst2", 70.0, ()), Measured("good", "rte", 80.0, ()), 0.95)


ARMS = ("vanilla", "good")


def test_another_encoder_is_shown_and_marked(synthetic: Any, tmp_path: Path) -> None:
    encoders = {"MiniLM": {"model": "google-bert/bert-large-cased", "source": "the paper"}}
    found = report(synthetic, tmp_path, {name: synthetic.Arm(0.72) for name in ARMS}, encoders=encoders)
    table = found.published[0]
    own = cell(found, "Good", "sst2")
    assert own.ours is not None
    assert own.difference is None
    assert table.otherwise == ("another encoder: all-MiniLM-L6-v2 here, bert-large-cased in the paper",)
    assert "Another experiment than the paper's" in table.nothing
    for shown in (found.html, text_of(found, 120)):
        assert "another encoder: all-MiniLM-L6-v2 here" in shown
    assert f"{words.mean(own.ours)}†" in found.html


def test_rows_of_the_papers_other_encoders_stay_empty(synthetic: Any, tmp_path: Path) -> None:
    encoders = {**TABLE["encoders"], "B": {"model": "google-bert/bert-large-cased", "source": "the paper"}}
    rows = [*TABLE["rows"][:2], {**TABLE["rows"][1], "method": "Good with B", "encoder": "B"}]
    found = report(synthetic, tmp_path, {name: synthetic.Arm(0.72) for name in ARMS}, encoders=encoders, rows=rows)
    assert cell(found, "Good", "sst2").difference is not None
    own = cell(found, "Good with B", "sst2")
    assert (own.ours, own.why) == (None, "all-MiniLM-L6-v2 was run here, not bert-large-cased")
    assert not found.published[0].otherwise


def test_another_number_of_rows_is_shown_and_marked(synthetic: Any, tmp_path: Path) -> None:
    rows = [{**row, "size": 1000} for row in TABLE["rows"]]
    found = report(synthetic, tmp_path, {name: synthetic.Arm(0.72) for name in ARMS}, rows=rows)
    own = cell(found, "Good", "sst2")
    assert own.otherwise == ("trained on 300 rows here, on 1000 rows in the paper",)
    assert own.difference is None
    # One of several sizes ran: the other's rows stay empty.
    found = report(
        synthetic, tmp_path, {name: synthetic.Arm(0.72) for name in ARMS}, rows=[*TABLE["rows"][:1], *rows[1:]]
    )
    assert cell(found, "Good", "sst2").why == "sst2 was not run with 1000 rows"


def test_a_start_from_another_task_is_another_experiment(synthetic: Any, tmp_path: Path) -> None:
    encoders = {"MiniLM": {**TABLE["encoders"]["MiniLM"], "instead": {"rte": "roberta-large-mnli"}}}
    found = report(synthetic, tmp_path, {name: synthetic.Arm(0.72) for name in ARMS}, encoders=encoders)
    assert cell(found, "Good", "sst2").difference is not None
    assert cell(found, "Good", "rte").why == "all-MiniLM-L6-v2 was run here, not roberta-large, tuned on mnli"
    assert cell(found, "Plain", "average").difference is None


def test_a_metric_that_was_not_judged_is_told(synthetic: Any, tmp_path: Path) -> None:
    columns = {**TABLE["columns"], "rte": {"metric": "matthews"}}
    found = report(synthetic, tmp_path, {name: synthetic.Arm(0.72) for name in ARMS}, columns=columns)
    assert cell(found, "Good", "rte").ours is None
    assert "another metric" in cell(found, "Good", "rte").why


def test_a_table_without_numbers_says_what_is_missing(synthetic: Any, tmp_path: Path) -> None:
    found = report(synthetic, tmp_path, {"vanilla": synthetic.Arm(0.72)}, rows=[], missing="all of it was lost")
    said = "The paper's text lacks the numbers of this table: all of it was lost"
    assert found.published[0].nothing.startswith(said)
    assert said in text_of(found, 150)
    assert "lacks the numbers of this table: all of it was lost" in found.html


def test_failed_runs_leave_their_cells_empty(synthetic: Any, tmp_path: Path) -> None:
    arms = {"vanilla": synthetic.Arm(0.72), "good": synthetic.Arm(0.8, failed=dict.fromkeys(range(4), "out of memory"))}
    found = report(synthetic, tmp_path, arms)
    assert cell(found, "Good", "sst2").why == "no run of good on sst2 finished"
    assert cell(found, "Plain", "sst2").ours is not None


def test_it_is_shown_on_the_page_in_the_terminal_and_as_a_file(found: Any, synthetic: Any, tmp_path: Path) -> None:
    own = cell(found, "Plain", "sst2")
    assert "Published tables and claims" in found.html
    assert "A paper, table 1" in found.html
    assert words.bounds(own.difference) in found.html
    assert f'70.00 ± 1.00 (5)<span class="ours">{words.mean(own.ours)}</span>' in found.html
    assert found.html.index('id="published"') > found.html.index('id="run"')
    report(synthetic, tmp_path, {"vanilla": synthetic.Arm(0.72)})
    rows = (tmp_path / "reports" / "tables" / "published.csv").read_text().splitlines()
    assert rows[0].startswith("table,method,arm,model,size,setting,column,published,published_deviation,ours")
    assert rows[1].startswith("p_table1,Plain,vanilla,sentence-transformers/all-MiniLM-L6-v2,300,,sst2,70.0,1.0,")


def test_without_tables_nothing_is_shown(synthetic: Any, tmp_path: Path) -> None:
    cells = synthetic.build(tmp_path, {"vanilla": synthetic.Arm()}, {"sst2": synthetic.Task(n=40)}, (300,), (0, 1))
    methods = synthetic.methods_of({"vanilla": synthetic.Arm()})
    plain = write_report(Inputs(tmp_path, cells, (0, 1), ReportConfig(bootstrap_samples=100), methods))
    assert "Published tables and claims" not in plain.html
    assert not (tmp_path / "reports" / "tables" / "published.csv").exists()
