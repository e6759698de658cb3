"""A paper's arm is put beside the same arm here; a published baseline is never the opponent of our method."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from regft_core.config.schema.report import ReportConfig
from regft_core.reporting import summary_table, write_report
from regft_core.reporting.published import Measured, bounds, difference

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
    "encoders": {"MiniLM": {"model": "someone/MiniLM", "source": "the paper"}},
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
    return write_report(root, cells, range(4), config, synthetic.methods_of(arms), training=synthetic.TRAINING)


@pytest.fixture(scope="module")
def found(synthetic: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    arms = {"vanilla": synthetic.Arm(0.72), "good": synthetic.Arm(0.8)}
    return report(synthetic, tmp_path_factory.mktemp("published"), arms)


def line(found: Any, arm: str, key: str) -> Any:
    return next(line for line in found.published[0].lines if (line.arm, line.key) == (arm, key))


def score(found: Any, block: str, arm: str, metric: str, name: str = "dev") -> Any:
    return next(b for b in found.blocks if b.task == block).row(arm).scores[name][metric].estimate


def test_published_ours_and_difference(found: Any) -> None:
    own = line(found, "vanilla", "sst2")
    estimate = score(found, "sst2", "vanilla", "accuracy")
    assert (own.published, own.ours, own.seeds) == (70.0, pytest.approx(100 * estimate.mean), 4)
    value, low, high = own.difference
    assert value == pytest.approx(own.ours - 70.0)
    # Welch: our variance of the mean and the paper's.
    ours, theirs = (100 * estimate.seed_deviation) ** 2 / 4, 1.0**2 / 5
    freedom = (ours + theirs) ** 2 / (ours**2 / 3 + theirs**2 / 4)
    from scipy.stats import t

    half = t.ppf(0.975, freedom) * math.sqrt(ours + theirs)
    assert (low, high) == (pytest.approx(value - half), pytest.approx(value + half))


def test_columns_use_their_own_metric_and_set(found: Any) -> None:
    assert line(found, "good", "rte").ours == pytest.approx(100 * score(found, "rte", "good", "f1").mean)
    contrast = line(found, "good", "sst2/contrast")
    assert contrast.ours == pytest.approx(100 * score(found, "sst2", "good", "accuracy", "contrast").mean)


def test_averages_are_over_the_rows_own_columns(found: Any) -> None:
    own = line(found, "vanilla", "average")
    both = [score(found, "sst2", "vanilla", "accuracy").mean, score(found, "rte", "vanilla", "f1").mean]
    assert own.ours == pytest.approx(100 * sum(both) / 2)
    assert own.difference[1] < own.difference[0] < own.difference[2]


def test_gains_are_within_one_source(found: Any) -> None:
    own = line(found, "good", "sst2")
    assert own.published_gain == pytest.approx(5.0)
    assert own.our_gain == pytest.approx(own.ours - line(found, "vanilla", "sst2").ours)
    assert line(found, "vanilla", "sst2").our_gain is None
    assert "interval is of our seeds alone" in own.note


def test_an_arm_that_was_not_run_is_not_replaced_by_the_published_one(
    found: Any, synthetic: Any, tmp_path: Path
) -> None:
    assert not [one for one in found.published[0].lines if one.arm == "other"]
    assert any("not put in the place of anything: Other" in note for note in found.published[0].notes)
    # Without our own baseline there is no gain of ours, however near the published baseline lies.
    alone = report(synthetic, tmp_path, {"good": synthetic.Arm(0.8)})
    assert line(alone, "good", "sst2").our_gain is None


def test_a_published_baseline_against_our_method_is_refused() -> None:
    with pytest.raises(ValueError, match="run the baseline here"):
        difference(Measured("vanilla", "sst2", 70.0, ()), Measured("good", "sst2", 80.0, ()), 0.95)
    with pytest.raises(ValueError, match="not compared"):
        difference(Measured("good", "sst2", 70.0, ()), Measured("good", "rte", 80.0, ()), 0.95)


def test_another_encoder_or_size_is_not_compared(synthetic: Any, tmp_path: Path) -> None:
    arms = {"vanilla": synthetic.Arm(0.72), "good": synthetic.Arm(0.8)}
    other = {"MiniLM": {"model": "someone/bert-large", "source": "the paper"}}
    found = report(synthetic, tmp_path / "encoder", arms, encoders=other)
    assert not found.published[0].lines
    assert "Nothing is compared: it was run here with minilm" in found.published[0].notes[0]
    other = [{**row, "size": 1000} for row in TABLE["rows"]]
    found = report(synthetic, tmp_path / "size", arms, rows=other)
    assert all(one.ours is None and one.difference is None for one in found.published[0].lines)
    assert "number of rows" in found.published[0].lines[0].note


def test_it_is_shown_on_the_page_in_the_terminal_and_as_a_file(found: Any, synthetic: Any, tmp_path: Path) -> None:
    assert "Published numbers beside ours" in found.html
    assert "A paper, table 1" in found.html
    assert bounds(line(found, "vanilla", "sst2").difference) in found.html
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(summary_table(found))
    text = console.export_text()
    assert "published beside ours: A paper, table 1 (two tasks)" in text
    assert "vanilla average: published 65.00, ours" in text
    report(synthetic, tmp_path, {"vanilla": synthetic.Arm(0.72)})
    rows = (tmp_path / "reports" / "plots" / "published.csv").read_text().splitlines()
    assert rows[0].startswith("table,arm,model,size,column,published,ours")
    assert rows[1].startswith("p_table1,vanilla,someone/MiniLM,300,sst2,70.0,")


def test_without_tables_nothing_is_shown(synthetic: Any, tmp_path: Path) -> None:
    cells = synthetic.build(tmp_path, {"vanilla": synthetic.Arm()}, {"sst2": synthetic.Task(n=40)}, (300,), (0, 1))
    methods = synthetic.methods_of({"vanilla": synthetic.Arm()})
    plain = write_report(tmp_path, cells, (0, 1), ReportConfig(bootstrap_samples=100), methods)
    assert "Published numbers beside ours" not in plain.html
    assert not (tmp_path / "reports" / "plots" / "published.csv").exists()
