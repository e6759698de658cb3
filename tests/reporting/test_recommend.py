"""What to take: careful words, on synthetic arms whose skill is known."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from regft_core.reporting import recommend, summary_table


@pytest.fixture(scope="module")
def advice(make: Any, synthetic: Any) -> Any:
    arm = synthetic.Arm
    arms = {
        "vanilla": arm(0.80),
        "probe": arm(0.84, trains_encoder=False, declared=0.1, seconds=1.0),
        "words": arm(0.60, trains_encoder=False, declared=0.1, seconds=0.5),
        "costly": arm(0.93, declared=4.0, seconds=40.0),
        "alike": arm(0.929, seconds=12.0),
        "luckless": arm(0.99, failed={1: "NaN"}),
    }
    return make(arms, {"sst2": synthetic.Task(n=400, ood=())})


@pytest.fixture(scope="module")
def idle(make: Any, synthetic: Any) -> Any:
    """Nothing beats the probe."""
    arm = synthetic.Arm
    arms = {
        "vanilla": arm(0.80),
        "probe": arm(0.84, trains_encoder=False, declared=0.1, seconds=1.0),
        "tuned": arm(0.848, seconds=20.0),
    }
    return make(arms, {"sst2": synthetic.Task(n=400, ood=())})


def said(built: Any) -> str:
    return " ".join(built.report.blocks[0].recommendation.sentences)


def test_the_pick_comes_with_interval_cost_and_how_many_were_looked_at(advice: Any) -> None:
    found = advice.report.blocks[0].recommendation
    assert found.best.method in ("costly", "alike")
    assert len(found.compared) == 5
    text = found.sentences[0]
    assert re.search(r"has the best mean accuracy of 5 arms: \d\d\.\d \[\d\d\.\d, \d\d\.\d\] over 6 seeds", text)
    assert "measured cost" in text
    assert "picked after looking at all 5" in text


def test_what_cannot_be_told_from_it_and_costs_less_is_named(advice: Any) -> None:
    found = advice.report.blocks[0].recommendation
    assert {found.best.method, *(c.method for c in found.alike)} == {"costly", "alike"}
    assert "cannot be told from it (at 95 % for all comparisons together)" in said(advice)
    if found.best.method == "costly":
        assert "alike cannot be told from it" in said(advice)
        assert "costs 1.20×" in said(advice)
        assert "Where cost matters: alike at 1.20× the reference's." in said(advice)
        assert [command.split()[4] for command in found.commands] == ["costly", "alike"]


def test_a_probe_that_is_named_as_the_cheaper_one_is_not_said_to_not_beat_itself(advice: Any) -> None:
    """One arm beats the probe, another has the better mean and a wider interval: the probe is cheaper than the pick."""
    found = advice.report.blocks[0].recommendation
    probe = replace(found.alike[0], method="probe", cost=0.1)
    built = recommend._worded(
        replace(found, alike=(probe,), beating=("alike",)), "sst2 at 300 rows", "export {}".format
    )
    text = " ".join(built.sentences)
    assert "Where cost matters: probe at 0.10× the reference's, though alike beats it." in text


def test_an_arm_with_failed_seeds_is_never_the_pick(advice: Any) -> None:
    """The mean of the survivors flatters whoever fails."""
    assert "Left out: luckless (1 of 6 seeds failed)." in said(advice)
    scores = {row.method: row.scores["dev"]["accuracy"].estimate.mean for row in advice.report.blocks[0].rows}
    assert max(scores, key=lambda name: scores[name]) == "luckless"


def test_what_was_beaten_is_the_best_arm_that_trains_no_encoder(advice: Any) -> None:
    found = advice.report.blocks[0].recommendation
    assert (found.baseline, found.baseline_frozen) == ("probe", True)
    assert set(found.beating) == {"costly", "alike"}
    assert "costly and alike beat probe, the best arm that does not train the encoder." in said(advice)


def test_when_nothing_beats_the_probe_it_says_so_and_exports_the_probe(idle: Any) -> None:
    found = idle.report.blocks[0].recommendation
    assert found.best.method == "tuned"
    assert "No evidence that anything beats probe, the best arm that does not train the encoder" in said(idle)
    assert "no reason to take anything but probe" in said(idle)
    assert found.commands == ("python -m stages.export --method probe --task sst2 --size 300 --seed 0",)


def test_arms_that_do_not_beat_the_probe_are_said_aloud(idle: Any, advice: Any) -> None:
    (weak, worse) = idle.report.unbeaten
    assert re.fullmatch(
        r"On sst2 at 300 rows, tuned \(\+0\.\d points, \[.*\]\) trains the encoder and is not shown to beat probe, "
        r"which does not train it\.",
        weak,
    )
    assert "vanilla (−" in worse
    assert "is worse than probe" in worse
    (one,) = advice.report.unbeaten
    assert "vanilla" in one
    assert "the best of 2 arms that do not train it" in one
    assert "costly" not in one


def test_it_is_aloud_on_the_page_and_at_the_end_of_the_terminal(idle: Any) -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(summary_table(idle.report))
    lines = [line.rstrip() for line in console.export_text().splitlines() if line.strip()]
    assert lines[-1] == "  python -m stages.export --method probe --task sst2 --size 300 --seed 0"
    shown = " ".join(lines)
    assert shown.index("is not shown to beat probe") < shown.index("Recommendation: On sst2")
    html = idle.report.html
    assert html.index('<section id="recommendation">') < html.index('<section id="verdicts">')
    top = html[html.index('<section id="recommendation">') : html.index('<section id="verdicts">')]
    assert "No evidence that anything beats probe" in top
    assert "is not shown to beat probe" in top
    assert "<pre>python -m stages.export --method probe" in top


def test_without_such_an_arm_the_reference_is_what_has_to_be_beaten(make: Any, synthetic: Any) -> None:
    built = make({"vanilla": synthetic.Arm(0.8), "same": synthetic.Arm(0.801)}, {"sst2": synthetic.Task(n=200)})
    assert built.report.unbeaten == ()
    assert built.report.blocks[0].opponents is None
    assert "No evidence that anything beats vanilla, the reference" in said(built)
    assert "shown to pay" not in built.report.html


def test_smaller_is_better_where_the_metric_says_so(make: Any, synthetic: Any) -> None:
    arms = {name: synthetic.Arm(skill) for name, skill in (("vanilla", 0.6), ("good", 0.95), ("weak", 0.5))}
    built = make(arms, {"one": synthetic.Task("regression", ("mse",), n=120, ood=())})
    found = built.report.blocks[0].recommendation
    assert found.best.method == "good"
    assert found.beating == ("good",)
    assert "It leads every other arm" in said(built)


def test_a_lead_is_no_larger_than_the_metric_and_no_number_with_two_seeds(make: Any, synthetic: Any) -> None:
    """Few seeds stretch an interval that holds for many comparisons far beyond the metric."""
    arm = synthetic.Arm
    shaky = {f"shaky{i}": arm(0.85, collapsed=(1,)) for i in range(4)}
    grid, tasks = {"vanilla": arm(0.7), "costly": arm(0.9, seconds=40.0), **shaky}, {"sst2": synthetic.Task(n=60)}
    few, three = make(grid, tasks, range(2)), make(grid, tasks, range(3))
    leads = re.findall(r"the lead over it is \S+ points \[(\S+), (\S+)\]", said(three))
    assert leads
    bounds = [float(bound.replace("−", "-")) for lead in leads for bound in lead]
    assert -100 <= min(bounds) < max(bounds) == 100
    assert "the lead over it: too few seeds to say (2 seeds)" in said(few)
    assert "the lead over it is" not in said(few)


@pytest.mark.parametrize(
    ("seeds", "failed", "why"),
    [([0], {}, "one seed shows no spread"), ([0, 1], {1: "NaN"}, "fewer than two arms finished every seed")],
)
def test_too_little_to_recommend_anything(make: Any, synthetic: Any, seeds: Any, failed: Any, why: str) -> None:
    arms = {"vanilla": synthetic.Arm(0.8), "other": synthetic.Arm(0.9, failed=failed)}
    built = make(arms, {"sst2": synthetic.Task(n=60)}, seeds)
    assert said(built) == f"On sst2 at 300 rows, nothing is recommended: {why}."
    assert built.report.blocks[0].recommendation.commands == ()


def test_without_any_finished_run(make: Any, synthetic: Any) -> None:
    arms = {name: synthetic.Arm(failed={0: "NaN"}) for name in ("vanilla", "other")}
    built = make(arms, {"sst2": synthetic.Task(n=60)}, [0])
    assert built.report.blocks[0].recommendation is None
    assert "nothing is recommended: no run finished" in built.report.html


def test_no_command_is_given_that_would_fail(advice: Any) -> None:
    """What no directory can hold (a similarity, a prefix) has no export, which used to be found out by trying."""
    found = advice.report.blocks[0].recommendation
    assert found.commands
    built = recommend._worded(found, "sst2 at 300 rows", lambda name: None)
    assert built.commands == ()
    assert re.search(r"\w+( and \w+)? ha(s|ve) no export: the predictions are in work/evaluate\.", built.sentences[-2])
    assert built.sentences[-1].startswith("Left out: ")
