"""Which method is taken, and the words for it, on synthetic methods whose skill is known."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from regft_core.report import decide as decide_module
from regft_core.report.decide import decide
from regft_core.report.formatting import point_of, points
from regft_core.report.leaderboard import alerts
from regft_core.report.results import Results
from regft_core.report.values import Choice, Decision
from regft_core.schema.params import ReportConfig
from regft_core.statistics.arms import Arms
from regft_core.statistics.decision import Belief
from tests.report.synthetic import Arm, Task, edited
from tests.statistics.single import right_on


def said(built: Any) -> str:
    return " ".join(built.report.blocks[0].decision.sentences)


def test_one_seed_is_decided_with_an_assumed_spread_and_without_any_finished_run_nothing_is(make: Any) -> None:
    built = make({"vanilla": Arm(0.7), "other": Arm(0.95)}, {"sst2": Task(n=60)}, [0])
    assert built.report.blocks[0].decision.pick.method == "other"
    assert built.report.blocks[0].decision.beating == ()
    assert "a standard deviation of about 4.5 points is assumed" in said(built)
    arms = {name: Arm(failed={0: "NaN"}) for name in ("vanilla", "other")}
    nothing = make(arms, {"sst2": Task(n=60)}, [0]).report.blocks[0]
    assert (nothing.taken, nothing.decision.choices, nothing.decision.command) == ("", (), "")


@pytest.mark.parametrize("metric", ["r2", "mse"])
def test_a_point_is_the_shown_one_or_a_hundredth_of_the_median_score(make: Any, metric: str) -> None:
    built = make({"vanilla": Arm(0.3), "other": Arm(0.95)}, {"stars": Task("regression", (metric,), ood=())}, [0])
    means = [row.scores["dev"][metric].estimate.mean for row in built.report.blocks[0].rows]
    point = 0.01 if metric == "r2" else 0.005 * sum(means)
    assert point_of(metric, means) == pytest.approx(point)
    assert f"about {points(4.5 * point, metric)} is assumed" in said(built)


# ------------------------------------------------------------------ cost, tolerance, looks, other sets

N = 200
RIGHT = {"reference": 120, "cheap": 170, "middle": 170, "dear": 170}


def block_of(rows: Any, folded: bool = False) -> Any:
    described, by_name = SimpleNamespace(folded=folded), {row.method: row for row in rows}
    place = {"task": "t", "size": "100", "title": "t at 100 rows", "primary": "accuracy", "described": described}
    return SimpleNamespace(**place, rows=rows, absent=(), frozen=None, row=lambda name: by_name.get(name))


def row_of(method: str, cost: float | None, arms: Mapping[str, Arms], seeds: int) -> Any:
    return SimpleNamespace(
        method=method,
        failed=(),
        runs=range(seeds),
        n_ok=seeds,
        cost=SimpleNamespace(declared=cost),
        finetune=SimpleNamespace(trains_encoder=True),
        against=lambda role, name="dev": [],
        comparisons=(),
        opposed=(),
        scores={name: {"accuracy": SimpleNamespace(estimate=own.one(method))} for name, own in arms.items()},
        below=lambda primary: {},
        constant=False,
        same_runs_as=None,
    )


def choose(
    right: Mapping[str, int],
    costs: Mapping[str, float | None],
    *,
    seeds: int = 4,
    elsewhere: Mapping[str, int] | None = None,
    folded: bool = False,
    **report: Any,
) -> Decision:
    """The decision among methods that are right on this many of 200 examples and declare these passes."""

    arms = {
        name: right_on({method: [count] * seeds for method, count in counts.items()}, N, samples=400)
        for name, counts in (("dev", right), ("other", elsewhere))
        if counts is not None
    }
    rows = [row_of(name, costs[name], arms, seeds) for name in right]
    config = ReportConfig.model_validate({"reference": "reference", **report})
    return decide(block_of(rows, folded), arms, config, range(seeds))


def taken(found: Decision) -> str:
    assert found.pick is not None
    return found.pick.method


def test_of_equal_scores_the_cheapest_is_taken_and_of_folds_the_model_of_all_rows() -> None:
    assert taken(choose(RIGHT, {"reference": 1.0, "dear": 4.0, "middle": 2.0, "cheap": 1.5})) == "cheap"
    dear = {"reference": 1.0, "cheap": 4.0, "middle": 3.0, "dear": 2.0}
    command = "regft export --method dear --task t --size 100"
    assert choose(RIGHT, dear).command == f"{command} --seed 0"
    assert choose(RIGHT, dear, folded=True).command == f"{command} --refit"


@pytest.mark.parametrize(("tolerance", "expected"), [(0.0, "dear"), (0.5, "dear"), (3.0, "cheap")])
def test_a_cheaper_method_is_taken_within_the_tolerance_only(tolerance: float, expected: str) -> None:
    right = {"reference": 120, "cheap": 170, "dear": 173}
    found = choose(right, {"reference": 1.0, "cheap": 1.0, "dear": 4.0}, tolerance=tolerance)
    assert taken(found) == expected
    text = " ".join(found.sentences)
    assert ("within the tolerance of 3.0" in text) is (expected == "cheap")


# ------------------------------------------------------------------ one choice


def test_methods_that_share_their_runs_are_one_choice(make: Any) -> None:
    arms = {"vanilla": Arm(0.7), "good": Arm(0.9), "shared": Arm(0.9), "other": Arm(0.8)}
    built = make(arms, {"sst2": Task(n=100, ood=())}, seeds=[0, 1])
    for stage, file in (("finetune", "manifest.json"), ("evaluate", "result.json")):
        paths = [built.root / "work" / stage / name / "sst2" / "300" / file for name in ("good", "shared")]
        keys = [run["key"] for run in json.loads(paths[0].read_text())["runs"]]
        with edited(paths[1]) as content:
            content["runs"] = [run | {"key": key} for run, key in zip(content["runs"], keys, strict=True)]
    (block,) = built.again(out=None).blocks
    found = block.decision
    assert (found.pick.method, found.pick.same) == ("good", ("shared",))
    assert {c.method for c in found.choices} == {"good", "other", "vanilla"}
    assert sum(c.belief.best for c in found.choices) == pytest.approx(1)
    assert found.choice("shared") is found.pick
    assert "The same runs as good: shared." in found.sentences


def test_within_the_tolerance_the_method_that_is_better_out_of_distribution_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right, costs = {"reference": 120, "cheap": 171, "dear": 170}, {"reference": 1.0, "cheap": 0.1, "dear": 2.0}
    elsewhere = {"reference": 120, "cheap": 110, "dear": 160}
    assert taken(choose(right, costs)) == "cheap"
    found = choose(right, costs, elsewhere=elsewhere, tolerance=1.0)
    assert taken(found) == "dear"
    assert found.pick is not None
    assert found.pick.elsewhere is not None
    assert found.pick.elsewhere.expected == pytest.approx(0.8, abs=0.03)
    assert "out-of-distribution sets" in " ".join(found.sentences)
    # What is further away on the validation set is not taken, however good it is elsewhere.
    assert taken(choose({**right, "dear": 150}, costs, elsewhere=elsewhere, tolerance=1.0)) == "cheap"
    # Where both sets show no difference the cheaper one is taken.
    assert taken(choose({**right, "dear": 171}, costs, elsewhere=dict.fromkeys(right, 150), tolerance=1.0)) == "cheap"
    assert choose(right, costs, elsewhere=elsewhere, decide_by="dev").choices[0].elsewhere is None
    monkeypatch.setattr(decide_module, "FEWEST_ROWS", N + 1)  # a set of fewer rows decides nothing
    assert taken(choose(right, costs, elsewhere=elsewhere, tolerance=1.0)) == "cheap"


@pytest.mark.parametrize(("right", "expected"), [(160, "preferred"), (150, "best")])
def test_a_preferred_method_is_taken_within_the_tolerance_in_place_of_the_cheapest(right: int, expected: str) -> None:
    scores = {"reference": 140, "cheap": 161, "best": 162, "preferred": right}
    costs = {"reference": 1.0, "cheap": 1.0, "best": 2.0, "preferred": 4.0}
    assert taken(choose(scores, costs, tolerance=1.0)) == "cheap"
    assert taken(choose(scores, costs, tolerance=1.0, prefer="preferred")) == expected


@pytest.mark.parametrize(
    ("constant", "trained", "expected"),
    [
        (set(), set(), "preferred"),
        ({"constant"}, set(), "best"),
        (set(), {"best"}, "best"),
        (set(), {"best", "preferred"}, "preferred"),
        (set(), {"preferred"}, "preferred"),
    ],
)
def test_what_is_preferred_beats_a_constant_answer_and_trains_its_encoder_where_the_best_does(
    constant: set[str], trained: set[str], expected: str
) -> None:
    choices = [
        Choice(name, None, Belief(0.7, 0.6, 0.8, 0.5, loss), 1.0, (), None)  # type: ignore[arg-type]
        for name, loss in (("best", 0.0), ("constant", 0.2), ("preferred", 0.4))
    ]
    assert decide_module._pick(choices, 0.5, ["preferred"], constant, trained)[0].method == expected
    after = ["absent", "preferred"] if expected == "preferred" else ["preferred", "best"]
    assert decide_module._pick(choices, 0.5, after, constant, trained)[0].method == expected


def test_the_sets_that_decide() -> None:
    right, elsewhere = {"reference": 120, "a": 170, "b": 170}, {"reference": 120, "a": 150, "b": 140}
    found = choose(right, dict.fromkeys(right, 1.0), elsewhere=elsewhere, decide_by=["dev", "other"])
    assert taken(found) == "a"
    assert "on new data, by dev and other" in " ".join(found.sentences)
    better = {"reference": 120, "a": 100, "b": 160}
    assert taken(choose(right, dict.fromkeys(right, 1.0), elsewhere=better, decide_by="other")) == "b"


# ------------------------------------------------------------------ lines of reference, and what is expected


@pytest.fixture(scope="module")
def with_constant(make: Any) -> Any:
    arms = {
        "vanilla": Arm(0.8, shift=-0.6),
        "majority": Arm(collapsed=tuple(range(6)), trains_encoder=False, reads_text=False, declared=0.0),
        "weak": Arm(0.45),
        "probe": Arm(0.7, shift=0.0, trains_encoder=False, declared=0.1),
    }
    return make(arms, {"sst2": Task(n=300, ood=("reversed",))})


def test_a_constant_answer_is_no_claim_no_alarm_and_no_opponent(with_constant: Any) -> None:
    report = with_constant.report
    (block,) = report.blocks
    row = block.row("majority")
    assert row.constant
    assert (row.comparisons, row.no_better("accuracy"), row.collapsed) == ((), {}, {})
    assert block.frozen == "probe"
    assert all(c.verdict.comparisons == 2 for c in block.row("weak").against("reference"))
    spoken = [*report.warnings, *alerts(block), *block.decision.sentences]
    assert not [text for text in spoken if "majority" in text]
    assert block.row("majority").scores["dev"]["accuracy"].estimate.n == 6  # its line stands in the table


def test_a_method_that_is_no_better_than_a_constant_carries_the_mark_itself(with_constant: Any) -> None:
    report = with_constant.report
    (block,) = report.blocks
    assert block.row("weak").no_better("accuracy") == {"dev": ["accuracy"], "reversed": ["accuracy"]}
    assert block.row("vanilla").no_better("accuracy") == {"reversed": ["accuracy"]}
    frame = Results.of(report)
    low = frame[frame["no_better_than_constant"] & frame["primary"]]
    assert {*zip(low["method"], low["set"])} == {("weak", "dev"), ("weak", "reversed"), ("vanilla", "reversed")}
    assert [text for text in alerts(block) if "!" in text] == ["! no better than a constant answer: weak."]
    assert re.search(r"On reversed \w+ scores \d\d\.\d, no better than a constant answer", said(with_constant))


def test_a_regression_that_only_ranks_is_no_better_than_a_constant_by_what_sees_scale(make: Any) -> None:
    arms = {"vanilla": Arm(0.9), "ranks": Arm(0.9, control_for="vanilla")}
    built = make(arms, {"prices": Task("regression", ("spearman", "mse"), n=100, ood=())}, range(3))
    for path in (built.root / "work/evaluate/ranks").rglob("dev.jsonl"):
        with edited(path) as rows:
            for row in rows:
                row["prediction"] *= 0.001
        with edited(path.parents[2] / "result.json") as result:
            (record,) = [run for run in result["runs"] if f"seed-{run['seed']}" == path.parent.name]
            gold, predicted = (np.array([row[key] for row in rows]) for key in ("label", "prediction"))
            record["sets"]["dev"]["metrics"]["mse"] = float(np.mean((gold - predicted) ** 2))
    report = built.again(out=None)
    (block,) = report.blocks
    assert block.row("ranks").no_better("spearman") == {"dev": ["mse"]}
    assert "! no better than a constant answer: ranks (by mse)." in alerts(block)
    assert report.results["prices-300"]["ranks"]["no_better_than_constant"] == ["dev"]


def test_a_constant_answer_within_the_tolerance_is_not_said_to_be_the_best(make: Any) -> None:
    majority = Arm(collapsed=tuple(range(6)), trains_encoder=False, reads_text=False, declared=0.0)
    for skill, tolerance in ((0.56, 8.0), (0.3, 0.5)):
        built = make({"vanilla": Arm(skill), "majority": majority}, {"t": Task(n=600, ood=())}, tolerance=tolerance)
        assert taken(built.report.blocks[0].decision) == "majority"
        assert ("vanilla has the best expected score" in said(built)) is (skill > 0.5)
        assert ("No method is better than a constant answer" in said(built)) is (skill < 0.5)


@pytest.mark.parametrize("seeds", [range(5), range(3)])
def test_folds_are_held_against_one_constant_answer_and_promise_the_model_of_all_rows(make: Any, seeds: range) -> None:
    built = make({"vanilla": Arm(0.8)}, {"t": Task(metrics=("accuracy",), n=100, ood=())}, seeds, ("full",))
    folder, gold = built.root / "work/datasets/t", list[int]()
    with edited(folder / "task.json") as task:
        rows = {f"0-{fold}": {"train": 80, "dev": 20} for fold in range(5)}
        task["drawn"] = {"folds": 5, "repeats": 1, "group": None, "rows": rows}
    shutil.copy(folder / "dev.jsonl", folder / "train.jsonl")
    with edited(built.root / "work/evaluate/vanilla/t/full/result.json") as result:
        for run in result["runs"]:
            (path,) = (built.root / "work/evaluate/vanilla").rglob(f"seed-{run['seed']}/dev.jsonl")
            with edited(path) as rows:
                rows[:] = sorted(rows, key=lambda row: row["label"])[20 * run["seed"] :][:20]
            right = [row["label"] == row["prediction"] for row in rows]
            run["sets"]["dev"] |= {"metrics": {"accuracy": float(np.mean(right))}, "majority": {"accuracy": 1.0}}
            gold += [row["label"] for row in rows]
    (block,) = built.again(out=None).blocks
    (choice,), score = block.decision.choices, block.row("vanilla").scores["dev"]["accuracy"]
    assert score.majority == pytest.approx(np.bincount(gold).max() / len(gold))
    assert block.sets == {"dev": 20 * len(seeds)}
    assert 1 - choice.belief.expected == pytest.approx((1 - score.estimate.mean) * 0.8**0.2)
