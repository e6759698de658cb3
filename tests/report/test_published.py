"""A paper's table keeps its shape, with the same arm of ours in its cells; averages, trials, protocols of tasks."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml
from scipy import stats

from regft_core.report import published_table as words
from regft_core.report import write_report
from regft_core.report.averages import average_columns
from regft_core.report.formatting import number
from regft_core.report.read_grid import Inputs
from regft_core.report.values import Report
from regft_core.schema.params import ReportConfig
from regft_core.settings.project import Cell
from regft_core.statistics.forecast import expected_max_curve
from tests.report.grids import terminal
from tests.report.synthetic import TRAINING, Arm, Task, build, edited, methods_of

PAPER: dict[str, Any] = {"paper": "A paper", "table": "1", "what": "two tasks", "seeds": 5, "statistic": "mean"}
MINILM = {"model": "sentence-transformers/all-MiniLM-L6-v2", "source": "the paper"}


def line(method: str, arm: str, *scores: float, **more: Any) -> dict[str, Any]:
    """A row of a paper's table; ``scores`` are those of sst2 and rte."""
    row = {"method": method, "arm": arm, "encoder": "MiniLM", "size": 300}
    return {**row, "scores": dict(zip(("sst2", "rte"), scores, strict=False)), **more}


TABLE = {
    **PAPER,
    "columns": {
        "sst2": {"metric": "accuracy"},
        "rte": {"metric": "f1"},
        "sst2/contrast": {"metric": "accuracy"},
        "average": {"mean_of": ["sst2", "rte"]},
    },
    "encoders": {"MiniLM": MINILM},
    "rows": [
        line("Plain", "vanilla", deviations={"sst2": 1.0, "rte": 2.0})
        | {"scores": {"sst2": 70.0, "rte": 60.0, "average": 65.0}},
        line("Good", "good") | {"scores": {"sst2": 75.0, "rte": 61.0, "sst2/contrast": 50.0}},
        line("Other", "other", 99.0),
        line("Plain of others", "vanilla", 71.0, copied_from="another paper"),
    ],
}


ARMS = {"vanilla": Arm(0.72), "good": Arm(0.8)}


def ran(root: Path, arms: Mapping[str, Arm] = MappingProxyType(ARMS), n: int = 100, seeds: int = 4) -> Path:
    """A project in which sst2 (2 ``n`` rows) and rte (``n`` rows) were run."""
    for folder, names in (("tasks", ("sst2", "rte", "contrast")), ("methods", (*ARMS, "other", "third"))):
        (root / "pipelines" / folder).mkdir(parents=True, exist_ok=True)
        for name in names:
            (root / "pipelines" / folder / f"{name}.yaml").write_text("")
    (root / "published").mkdir(exist_ok=True)
    build(root, arms, {"sst2": Task(n=2 * n), "rte": Task(n=n, ood=())}, (300,), range(seeds))
    return root


def beside(root: Path, table: Mapping[str, Any], arms: Iterable[str] = ARMS, seeds: int = 4, out: Any = None) -> Report:
    """The report of these arms beside a paper's table."""
    (root / "published" / "p_table1.yaml").write_text(yaml.safe_dump(dict(table), sort_keys=False))
    cells = [Cell(name, task, 300) for task in ("sst2", "rte") for name in arms]
    config = ReportConfig(bootstrap_samples=200, published=["p_table1"])
    methods: Any = methods_of({name: ARMS.get(name, Arm()) for name in arms})
    return write_report(
        Inputs(root, cells, range(seeds), config, methods, training=dict.fromkeys(("sst2", "rte"), TRAINING)), out
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ran(tmp_path_factory.mktemp("published"))


@pytest.fixture(scope="module")
def found(root: Path) -> Any:
    return beside(root, TABLE)


def cell(found: Any, method: str, key: str) -> Any:
    row = next(cells for row, cells in found.published[0].rows if row.method == method)
    return next(cell for cell in row if cell and cell.key == key)


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
    half = stats.t.ppf(0.975, freedom) * math.sqrt(ours + theirs)
    assert (gap.low, gap.high) == (pytest.approx(gap.value - half), pytest.approx(gap.value + half))


def test_rows_and_columns_are_those_of_the_paper_each_with_its_metric_and_set(found: Any) -> None:
    heads, lines = words.grid(found.published[0])
    assert [name for name, _ in heads] == ["sst2", "rte", "sst2/contrast", "average"]
    assert [name for (name, _), _ in lines] == [row["method"] for row in TABLE["rows"]]
    for (_, cells), row in zip(lines, TABLE["rows"], strict=True):
        assert {c.key: c.published.value for c in cells if c} == row["scores"]
    assert cell(found, "Good", "rte").ours.value == pytest.approx(100 * score(found, "rte", "good", "f1").mean)
    contrast = cell(found, "Good", "sst2/contrast")
    assert contrast.ours.value == pytest.approx(100 * score(found, "sst2", "good", "accuracy", "contrast").mean)
    # Neither an arm that was not run nor a copied row is compared.
    absent = cell(found, "Other", "sst2")
    assert (absent.published.value, absent.ours, absent.why) == (99.0, None, "other was not run here")
    copied = cell(found, "Plain of others", "sst2")
    assert (copied.ours, copied.difference, copied.why) == (None, None, "copied from another paper")
    assert lines[-1][0][1] == ("copied from another paper",)


def test_printed_gains_stand_beside_ours(root: Path) -> None:
    """A column may print gains alone, over a row that the table names."""
    plain, good = TABLE["rows"][:2]
    rows = [
        {**plain, "scores": {"sst2": 70.0, "rte": 60.0}},
        {**good, "scores": {"sst2": 75.0, "rte": 61.0}, "gain_over": "Plain", "gains": {"average": 3.0, "rte": 1.0}},
    ]
    found = beside(root, {**TABLE, "rows": rows})
    own = cell(found, "Good", "average")
    assert (own.published, own.difference, own.published_gain) == (None, None, 3.0)
    parts = [cell(found, method, key).ours.value for method in ("Good", "Plain") for key in ("sst2", "rte")]
    assert own.our_gain == pytest.approx((sum(parts[:2]) - sum(parts[2:])) / 2)
    assert words.published(own) == "+3.00"
    assert words.ours(own) == number(own.our_gain, 2, signed=True)
    assert words.published(cell(found, "Good", "rte")) == "61.00 (5) +1.00"
    assert found.published[0].rows[0][1][-1] is None


BERT = {"model": "google-bert/bert-large-cased", "source": "the paper"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"encoders": {"MiniLM": BERT}}, "another encoder: all-MiniLM-L6-v2 here, bert-large-cased in the paper"),
        (
            {"rows": [{**row, "size": 1000} for row in TABLE["rows"]]},
            "trained on 300 rows here, on 1000 rows in the paper",
        ),
    ],
)
def test_another_experiment_is_shown_and_marked(root: Path, changes: Any, why: str) -> None:
    found = beside(root, {**TABLE, **changes}, out=Path("reports"))
    own = cell(found, "Good", "sst2")
    assert (own.ours is not None, own.difference, own.otherwise) == (True, None, (why,))
    assert words.ours(own).endswith("†")
    assert words.ours(own) in found.html
    assert why in terminal(found, 120)
    said = "Another experiment than the paper's: nothing is subtracted and no claim is tested"
    numbers = json.loads((root / "reports" / "results.json").read_text())
    assert (found.published[0].nothing, numbers["published"]["p_table1"]["nothing"]) == (said, said)
    assert said in terminal(found, 120)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"rows": [TABLE["rows"][0], {**TABLE["rows"][1], "size": 1000}]}, "sst2 was not run with 1000"),
        (
            {
                "rows": [TABLE["rows"][0], {**TABLE["rows"][1], "encoder": "B"}],
                "encoders": {**TABLE["encoders"], "B": BERT},
            },
            "all-MiniLM-L6-v2 was run here, not bert-large-cased",
        ),
        ({"columns": {**TABLE["columns"], "sst2": {"metric": "matthews"}}}, "another metric"),
    ],
)
def test_cells_that_nothing_here_fits_stay_empty(root: Path, changes: Any, why: str) -> None:
    own = cell(beside(root, {**TABLE, **changes}), "Good", "sst2")
    assert (own.ours, own.difference) == (None, None)
    assert why in own.why


# -------------------------------------------------------------- encoders, by what they are and not by their spelling

LARGE, TUNED = "FacebookAI/roberta-large", "FacebookAI/roberta-large-mnli"
ENCODERS = {
    **PAPER,
    "columns": {"sst2": {"metric": "accuracy"}, "rte": {"metric": "accuracy"}},
    "encoders": {"MiniLM": {"model": LARGE, "instead": {"rte": TUNED}, "source": "the paper"}},
    "rows": [line("Plain", "vanilla", 70.0, 60.0), line("Good", "good", 70.0, 60.0)],
}


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # ``first`` has the regularisers of plain fine-tuning.
    arms = {"vanilla": Arm(0.72), "good": Arm(0.8), "first": Arm(0.76, control_for="good")}
    return ran(tmp_path_factory.mktemp("encoders"), arms, seeds=3)


def report(root: Path, model: dict[str, Any], phases: dict[str, Any] | None = None, **encoder: Any) -> Any:
    """A report of runs whose manifests say ``model`` and ``encoder``; those of ``first`` have ``phases``."""
    for path in (root / "work" / "finetune").rglob("manifest.json"):
        with edited(path) as manifest:
            manifest["settings"]["model"] |= {"sha256": "a" * 64, "revision": None, **model}
            manifest["encoder"] = encoder
            if "first" in path.parts:
                changed = phases or {"finetune": {}}
                last = manifest["settings"]["phases"]["finetune"] | {"start": "checkpoint"}
                manifest["phases"] = list(changed)
                manifest["settings"]["phases"] = {name: {**last, **phase} for name, phase in changed.items()}
    return beside(root, ENCODERS, ["vanilla", "good", *(["first"] if phases else [])], 3)


def test_a_checkpoint_of_another_task_fits_the_columns_that_start_from_it(encoders: Path) -> None:
    found = report(encoders, {"name": TUNED, "revision": "2a8f12d"})
    assert cell(found, "Good", "rte").difference is not None
    assert cell(found, "Good", "sst2").difference is None
    assert found.published[0].nothing == "", "rte is compared"
    assert "roberta-large, tuned on mnli here, roberta-large in the paper" in cell(found, "Good", "sst2").otherwise[0]


def test_a_phase_on_the_other_task_is_such_a_checkpoint(encoders: Path) -> None:
    phases = {"intermediate": {"data": {"task": "mnli", "labels": True}}, "finetune": {"start": "intermediate"}}
    found = report(encoders, {"name": LARGE, "revision": "722cf37"}, phases)
    rte = next(block for block in found.blocks if block.task == "rte")
    own = cell(found, "Plain", "rte")
    assert own.difference is not None
    assert own.ours.value == pytest.approx(100 * rte.row("first").scores["dev"]["accuracy"].estimate.mean)
    # Where the paper starts from the encoder itself, so does plain fine-tuning here.
    sst2 = next(block for block in found.blocks if block.task == "sst2")
    plain = sst2.row("vanilla").scores["dev"]["accuracy"].estimate
    assert cell(found, "Plain", "sst2").ours.value == pytest.approx(100 * plain.mean)
    # No method is ``good`` after that phase, so what is gained over it is marked.
    assert cell(found, "Good", "rte").otherwise
    rows = [{**ENCODERS["rows"][0], "gain_over": "Good", "gains": {"rte": 1.0}}, ENCODERS["rows"][1]]
    gained = cell(beside(encoders, {**ENCODERS, "rows": rows}, ["vanilla", "good", "first"], 3), "Plain", "rte")
    assert gained.difference == own.difference
    assert words.ours(gained).endswith("†")


# ------------------------------------------------------------------------------------------------ averages and trials


SEEDS = range(4)
GRID = {"training.learning_rate": [1e-5, 2e-5, 3e-5]}
SCORES = [[0.5, 0.7, 0.6], [0.8, 0.6, 0.7], [0.6, 0.9, None], [0.5, 0.55, 0.6]]


@pytest.fixture(scope="module")
def grid(make: Any) -> Any:
    tasks = {
        "mnli": Task(metrics=("accuracy",), ood=("mnli_mm",)),
        "rte": Task(metrics=("accuracy",), ood=()),
        "scores": Task("regression", ("mse",), ood=()),
    }
    return make({"vanilla": Arm(0.6), "hype_n": Arm(0.85)}, tasks, seeds=SEEDS, out="reports")


def test_a_mean_over_tasks_and_sets(grid: Any) -> None:
    config = ReportConfig(bootstrap_samples=500, averages={"all": ["rte", ["mnli", "mnli/mnli_mm"]]})
    report = grid.again(config=config)
    (average,) = report.averages
    assert average.parts == ("rte", "mnli", "mnli/mnli_mm")
    rows = {(block.task, row.method): row for block in report.blocks for row in block.rows}
    for line in average.lines:
        rte, mnli = rows["rte", line.method].scores, rows["mnli", line.method].scores
        inner = (mnli["dev"]["accuracy"].estimate.mean + mnli["mnli_mm"]["accuracy"].estimate.mean) / 2
        assert line.value.value == pytest.approx((rte["dev"]["accuracy"].estimate.mean + inner) / 2)
        assert line.value.low < line.value.value < line.value.high
    vanilla, hype = average.lines if average.lines[0].method == "vanilla" else average.lines[::-1]
    assert vanilla.difference is None
    assert hype.difference.value == pytest.approx(hype.value.value - vanilla.value.value)
    assert hype.difference.low > 0
    assert "rte, mnli, mnli/mnli_mm" in report.html.replace(" <small>(accuracy)</small>", "")
    numbers = json.loads((grid.root / "reports" / "results.json").read_text())["averages"]["all-300"]
    assert numbers["hype_n"]["difference"] == pytest.approx(hype.difference.value)


def test_parts_of_one_run_stay_paired(grid: Any) -> None:
    """Averaging a set with itself changes nothing: its replicates must not be taken for independent ones."""
    blocks = grid.report.blocks
    (alone,) = average_columns(blocks, {"x": ["mnli"]})
    (twice,) = average_columns(blocks, {"x": ["mnli", "mnli"]})
    assert alone.lines[1].value == twice.lines[1].value
    (both,) = average_columns(blocks, {"x": ["mnli", "rte"]})
    width = both.lines[1].value.high - both.lines[1].value.low
    assert width < alone.lines[1].value.high - alone.lines[1].value.low  # tasks are independent


def tuned(seed: int, selection: str) -> dict[str, Any]:
    values = [{"training.learning_rate": rate} for rate in GRID["training.learning_rate"]]
    scores = SCORES[seed]
    best = max(range(3), key=lambda i: -1.0 if scores[i] is None else scores[i])
    trials = [
        {"trial": i, "values": values[i], "key": "k", "status": "ok", "error": None, "score": scores[i]}
        | {"seconds": 2.0, "steps": 57}
        for i in range(3)
    ]
    return {"values": values[best], "chosen": best, "selection": selection, "seconds": 6.0} | {
        "metric": "accuracy",
        "trials": trials,
    }


def with_trials(root: Path, method: str, selection: str) -> None:
    with edited(root / "work" / "finetune" / method / "rte" / "300" / "manifest.json") as manifest:
        for run in manifest["runs"]:
            run["tuned"] = tuned(run["seed"], selection)


def test_trials_are_shown_with_the_expected_best(grid: Any) -> None:
    assert grid.report.tuned == ()
    assert 'id="tuning"' not in grid.report.html
    with_trials(grid.root, "hype_n", "split")
    report = grid.again()
    arms = {arm.method: arm for arm in report.tuned}
    assert {arm.block for arm in report.tuned} == {"rte-300"}
    assert arms["vanilla"].trials == 0
    arm = arms["hype_n"]
    assert (arm.trials, arm.failed) == (3, 1)
    assert dict(arm.chosen) == {"training.learning_rate 2e-05": 2, "training.learning_rate 1e-05": 1} | {
        "training.learning_rate 3e-05": 1
    }
    known = [[score for score in scores if score is not None] for scores in SCORES]
    for k, value in arm.shown:  # to 2, for one seed finished no more
        assert value == pytest.approx(math.fsum(expected_max_curve(scores)[k - 1] for scores in known) / 4)
    assert [k for k, _ in arm.shown] == [1, 2]
    assert "rte-300: methods were tuned with different numbers of trials (vanilla 0, hype_n 3)" in report.warnings
    assert "training.learning_rate 2e-05 (2)" in report.html
    with_trials(grid.root, "hype_n", "dev_as_published")
    assert any("chosen on the validation set" in text for text in grid.again().warnings)
