"""Which method is taken, and the words for it, on synthetic methods whose skill is known."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from regft_core.report import summary_table, write_report
from regft_core.report.decide import decide
from regft_core.report.model import Block, Decision
from regft_core.schema.report import ReportConfig
from regft_core.statistics.arms import Arms


@pytest.fixture(scope="module")
def advice(make: Any, synthetic: Any) -> Any:
    arm = synthetic.Arm
    arms = {
        "vanilla": arm(0.80),
        "probe": arm(0.84, trains_encoder=False, declared=0.1, seconds=1.0),
        "words": arm(0.60, trains_encoder=False, declared=0.1, seconds=0.5),
        "costly": arm(0.95, declared=4.0, seconds=40.0),
        "alike": arm(0.90, seconds=12.0),
        "luckless": arm(0.99, failed={1: "NaN"}),
    }
    return make(arms, {"sst2": synthetic.Task(n=400, ood=())})


@pytest.fixture(scope="module")
def idle(make: Any, synthetic: Any) -> Any:
    """Nothing is better than the probe by more than the tolerance."""
    arm = synthetic.Arm
    arms = {
        "vanilla": arm(0.80),
        "probe": arm(0.85, trains_encoder=False, declared=0.1, seconds=1.0),
        "tuned": arm(0.846, seconds=20.0),
    }
    return make(arms, {"sst2": synthetic.Task(n=400, ood=())})


def said(built: Any) -> str:
    return " ".join(built.report.blocks[0].decision.sentences)


def test_the_pick_comes_with_score_expectation_and_probability(advice: Any) -> None:
    found = advice.report.blocks[0].decision
    assert found.pick.method == "costly"
    assert len(found.choices) == 5
    first, second = found.sentences[:2]
    pattern = r"On sst2 at 300 rows, take costly: accuracy \d\d\.\d \[\d\d\.\d, \d\d\.\d\], mean of 6 seeds\."
    assert re.fullmatch(pattern, first)
    assert re.fullmatch(r"Expected on new data: \d\d\.\d\. Probability of being the best of 5: \d+%\.", second)


def test_what_the_frozen_encoder_would_lose_and_cost_is_said(advice: Any) -> None:
    pattern = (
        r"Taking probe instead is expected to lose \d+\.\d points and costs 0\.10× plain fine-tuning against 4\.00×\."
    )
    assert re.search(pattern, said(advice))


def test_a_method_with_failed_seeds_is_never_taken(advice: Any) -> None:
    """The mean of the survivors flatters whoever fails."""
    assert "Left out: luckless (1 of 6 seeds failed)." in said(advice)
    scores = {row.method: row.scores["dev"]["accuracy"].estimate.mean for row in advice.report.blocks[0].rows}
    assert max(scores, key=lambda name: scores[name]) == "luckless"


def test_a_method_without_any_result_is_left_out_by_name(synthetic: Any, tmp_path: Path) -> None:
    arms = {"vanilla": synthetic.Arm(0.8), "hype_n": synthetic.Arm(0.8)}
    cells = synthetic.build(tmp_path, arms, {"sst2": synthetic.Task(n=40, ood=())}, (300,), range(2))
    failed = {f"broken/{cells[0].directory.partition('/')[2]}": "finetune: why", "other/mrpc/300": "finetune: why"}
    methods, config = synthetic.methods_of(arms), ReportConfig(bootstrap_samples=500)
    given = (tmp_path, cells, (0, 1), config, methods)
    found = [write_report(*given, failed=one).blocks[0].decision for one in (failed, {})]
    assert [decision.sentences[-1] for decision in found if decision] == [
        "Left out: broken (no result).",
        "No run failed.",
    ]


def test_the_claim_stands_beside_the_decision(advice: Any, idle: Any) -> None:
    found = advice.report.blocks[0].decision
    assert (found.baseline, found.baseline_frozen) == ("probe", True)
    assert set(found.beating) == {"costly", "alike"}
    assert "Established: costly and alike beat probe, the best method that does not train the encoder" in said(advice)
    assert "Not established: that any method beats probe" in said(idle)
    assert "no reason" not in said(idle)


def test_the_probe_is_taken_and_exported_where_nothing_is_expected_to_be_better(idle: Any) -> None:
    found = idle.report.blocks[0].decision
    assert found.pick.method == "probe"
    assert found.commands == ("regft export --method probe --task sst2 --size 300 --seed 0",)


def test_methods_that_do_not_beat_the_probe_are_named(idle: Any, advice: Any) -> None:
    (weak, worse) = idle.report.unbeaten
    assert "tuned" in weak
    assert "no difference shown to probe, which does not train it." in weak
    assert "worse than probe" in worse
    (one,) = advice.report.unbeaten
    assert "vanilla" in one
    assert "the best of 2 methods that do not train it" in one


def test_page_and_terminal_show_the_same_decision(idle: Any) -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(summary_table(idle.report))
    lines = [line.rstrip() for line in console.export_text().splitlines() if line.strip()]
    assert "$ regft export --method probe --task sst2 --size 300 --seed 0" in lines
    shown, html = " ".join(lines), idle.report.html
    top = html[html.index('<section id="decision"') : html.index('<section id="verdicts">')]
    for sentence in idle.report.blocks[0].decision.sentences:
        assert sentence in top
        assert " ".join(sentence.split()) in " ".join(shown.split())
    assert "<pre>regft export --method probe" in top


def test_the_numbers_are_in_the_results_for_programs(advice: Any) -> None:
    found = {name: row["decision"] for name, row in advice.report.results["sst2-300"].items() if "decision" in row}
    assert set(found) == {"vanilla", "probe", "words", "costly", "alike"}
    assert [name for name, own in found.items() if own["taken"]] == ["costly"]
    assert sum(own["probability_best"] for own in found.values()) == pytest.approx(1)
    assert found["costly"]["expected_loss"] == 0


def test_without_a_frozen_method_the_reference_is_what_claims_are_about(make: Any, synthetic: Any) -> None:
    built = make({"vanilla": synthetic.Arm(0.8), "same": synthetic.Arm(0.801)}, {"sst2": synthetic.Task(n=200)})
    assert built.report.blocks[0].opponents is None
    assert "Not established: that any method beats vanilla, the reference" in said(built)


def test_smaller_is_better_where_the_metric_says_so(make: Any, synthetic: Any) -> None:
    arms = {name: synthetic.Arm(skill) for name, skill in (("vanilla", 0.6), ("good", 0.95), ("weak", 0.5))}
    built = make(arms, {"one": synthetic.Task("regression", ("mse",), n=120, ood=())})
    found = built.report.blocks[0].decision
    assert found.pick.method == "good"
    assert "good" in found.beating


def test_one_seed_is_decided_with_an_assumed_spread_that_is_named(make: Any, synthetic: Any) -> None:
    built = make({"vanilla": synthetic.Arm(0.7), "other": synthetic.Arm(0.95)}, {"sst2": synthetic.Task(n=60)}, [0])
    assert built.report.blocks[0].decision.pick.method == "other"
    assert "One seed shows no spread; 2 points are assumed." in said(built)
    assert "Not established" in said(built)


def test_one_method_that_finished_is_taken_and_none_is_said_so(make: Any, synthetic: Any) -> None:
    arms = {"vanilla": synthetic.Arm(0.8), "other": synthetic.Arm(0.9, failed={1: "NaN"})}
    built = make(arms, {"sst2": synthetic.Task(n=60)}, [0, 1])
    assert "take vanilla" in said(built)
    assert "No other method finished every seed." in said(built)
    arms = {name: synthetic.Arm(0.8, failed={1: "NaN"}) for name in ("vanilla", "other")}
    built = make(arms, {"sst2": synthetic.Task(n=60)}, [0, 1])
    assert "no method finished every seed, so there is nothing to take" in said(built)
    assert built.report.blocks[0].decision.commands == ()


def test_without_any_finished_run(make: Any, synthetic: Any) -> None:
    arms = {name: synthetic.Arm(failed={0: "NaN"}) for name in ("vanilla", "other")}
    built = make(arms, {"sst2": synthetic.Task(n=60)}, [0])
    assert built.report.blocks[0].decision is None
    assert "no run finished, so there is nothing to take" in built.report.html


def test_sets_on_which_the_pick_fails_are_named(make: Any, synthetic: Any) -> None:
    arm = synthetic.Arm
    arms = {"vanilla": arm(0.95, shift=-0.75), "probe": arm(0.8, shift=0.0, trains_encoder=False)}
    built = make(arms, {"sst2": synthetic.Task(n=300, ood=("reversed",))})
    assert re.search(r"On reversed it is below chance: \d\d\.\d; probe has \d\d\.\d\.", said(built))


# ------------------------------------------------------------------ cost, tolerance, looks, other sets

N = 200
RIGHT = {"reference": 120, "cheap": 170, "middle": 170, "dear": 170}


def block_of(rows: Any, folded: bool = False) -> Block:
    return Block("t", "100", "classification", "accuracy", ("accuracy",), {"dev": N}, tuple(rows), folded=folded)


def choose(
    right: Mapping[str, int],
    measured: Mapping[str, float | None],
    *,
    declared: Mapping[str, float] | None = None,
    seeds: int = 4,
    jitter: int = 0,
    elsewhere: Mapping[str, int] | None = None,
    folded: bool = False,
    **report: Any,
) -> Decision:
    """The decision among methods that are right on this many of 200 examples; seed s on ``jitter`` * s more."""

    def arms_of(counts: Mapping[str, int]) -> Arms:
        predictions = {
            name: {seed: (np.arange(N) < count + jitter * seed * (i % 2)).astype(int) for seed in range(seeds)}
            for i, (name, count) in enumerate(counts.items())
        }
        return Arms(predictions, np.ones(N, int), "accuracy", samples=400)

    arms = {"dev": arms_of(right)} | ({"other": arms_of(elsewhere)} if elsewhere else {})
    rows: Any = [
        SimpleNamespace(
            method=name,
            failed=(),
            n_expected=seeds,
            cost=SimpleNamespace(measured=measured[name], declared=(declared or measured)[name], spread=None),
            n_ok=seeds,
            against=lambda role, name="dev": [],
            scores={
                one: {"accuracy": SimpleNamespace(estimate=found.one(name), below_chance=False)}
                for one, found in arms.items()
            },
        )
        for name in right
    ]
    config = ReportConfig.model_validate({"reference": "reference", **report})
    return decide(block_of(rows, folded), arms, config, range(seeds))


def taken(found: Decision) -> str:
    assert found.pick is not None
    return found.pick.method


def test_of_equal_scores_the_cheapest_is_taken() -> None:
    assert taken(choose(RIGHT, {"reference": 1.0, "dear": 4.0, "middle": 2.0, "cheap": 1.5})) == "cheap"
    assert taken(choose(RIGHT, {"reference": 1.0, "cheap": 4.0, "middle": 3.0, "dear": 2.0})) == "dear"


def test_with_folds_the_command_trains_the_final_model_on_all_rows() -> None:
    costs = {"reference": 1.0, "dear": 4.0, "middle": 2.0, "cheap": 1.5}
    command = "regft export --method cheap --task t --size 100"
    assert choose(RIGHT, costs).commands == (f"{command} --seed 0",)
    assert choose(RIGHT, costs, folded=True).commands == (f"{command} --refit",)


@pytest.mark.parametrize(("tolerance", "expected"), [(0.0, "dear"), (0.5, "dear"), (3.0, "cheap")])
def test_a_cheaper_method_is_taken_within_the_tolerance_only(tolerance: float, expected: str) -> None:
    right = {"reference": 120, "cheap": 170, "dear": 173}
    found = choose(right, {"reference": 1.0, "cheap": 1.0, "dear": 4.0}, tolerance=tolerance)
    assert taken(found) == expected
    text = " ".join(found.sentences)
    assert ("within the tolerance of 3.0" in text) is (expected == "cheap")


@pytest.mark.parametrize(("cost", "expected"), [(0.96, "best"), (0.94, "cheap"), (1.04, "best")])
def test_cheaper_is_what_costs_clearly_less(cost: float, expected: str) -> None:
    """Seconds vary by a few per cent, so 4 per cent less is no reason to take another method."""
    right = {"reference": 120, "cheap": 170, "best": 171}
    found = choose(right, {"reference": 1.0, "best": 2.0, "cheap": 2 * cost}, tolerance=2.0)
    assert taken(found) == expected


def test_a_method_without_a_known_cost_is_never_the_cheaper_one() -> None:
    right = {"reference": 120, "cheap": 170, "best": 171}
    measured = {"reference": 1.0, "cheap": None, "best": 2.0}
    assert taken(choose(right, measured, declared=measured, tolerance=2.0)) == "best"  # type: ignore[arg-type]


def test_measured_costs_are_compared_only_where_every_method_has_one() -> None:
    measured = {"reference": 1.0, "cheap": 9.0, "middle": None, "dear": 5.0}
    found = choose(RIGHT, measured, declared={"reference": 1.0, "cheap": 2.0, "middle": 3.0, "dear": 4.0})
    assert not found.cost_measured
    assert found.pick is not None
    assert (found.pick.method, found.pick.cost) == ("cheap", 2.0)
    assert "plain fine-tuning" in " ".join(found.sentences)


def test_another_set_or_a_mean_of_sets_may_decide() -> None:
    right, elsewhere = {"reference": 120, "a": 180, "b": 170}, {"reference": 120, "a": 100, "b": 160}
    costs = dict.fromkeys(right, 1.0)
    assert taken(choose(right, costs, elsewhere=elsewhere)) == "a"
    assert taken(choose(right, costs, elsewhere=elsewhere, decide_by="other")) == "b"
    found = choose(right, costs, elsewhere=elsewhere, decide_by=["dev", "other"])
    assert taken(found) == "b"
    assert "judged by dev and other" in " ".join(found.sentences)


def test_no_command_is_given_that_would_fail(make: Any, synthetic: Any) -> None:
    """What no directory can hold (a similarity, a prefix) has no export."""
    right: dict[str, int] = {"reference": 120, "a": 180}
    arms = Arms({n: {0: (np.arange(N) < c).astype(int)} for n, c in right.items()}, np.ones(N, int), "accuracy")
    rows: Any = [
        SimpleNamespace(
            method=name,
            failed=(),
            n_expected=1,
            cost=SimpleNamespace(measured=1.0, declared=1.0, spread=None),
            n_ok=1,
            against=lambda role, name="dev": [],
            scores={"dev": {"accuracy": SimpleNamespace(estimate=arms.one(name), below_chance=False)}},
        )
        for name in right
    ]
    config = ReportConfig.model_validate({"reference": "reference"})
    found = decide(block_of(rows), {"dev": arms}, config, [0], without_export=["a"])
    assert found.commands == ()
    assert "a has no export: its predictions are in work/evaluate." in found.sentences
