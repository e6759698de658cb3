"""Sentences claim what the intervals show."""

from __future__ import annotations

import dataclasses
import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from regft_core.reporting import summary_table
from regft_core.reporting.sentences import _sentence, detectable, overall, p_of
from regft_core.statistics.signed_rank import SignedRank


def text(built: Any, method: str, block: str = "sst2-300") -> str:
    (found,) = [f for f in built.report.findings if (f.method, f.block) == (method, block)]
    return " ".join(found.sentences)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], None),
        (["better", "better"], "better"),
        (["better", "no evidence"], "no evidence"),
        (["better", "worse"], "worse"),
        (["no evidence"], "no evidence"),
        (["nothing to judge"], "nothing to judge"),
        (["nothing to judge", "better"], "no evidence"),
        (["nothing to judge", "worse"], "worse"),
    ],
)
def test_better_means_better_than_every_control(words: list[str], expected: str | None) -> None:
    comparisons: Any = [SimpleNamespace(verdict=SimpleNamespace(word=word)) for word in words]
    assert overall(comparisons) == expected


def test_a_gain_that_the_control_has_too_is_not_credited(built: Any) -> None:
    said = text(built, "hype_n")
    assert said.startswith(
        "On sst2 at 300 rows, there is no evidence that hype_n differs from its control vanilla_no_dropout"
    )
    assert "better than the reference vanilla" in said
    assert "cannot be credited" in said
    assert "on contrast" in said


def test_every_sentence_starts_as_one(make: Any, synthetic: Any) -> None:
    arms = {name: synthetic.Arm(control_for="pats" if name != "pats" else None) for name in ("pats", "adamax", "noise")}
    said = text(make(arms, {"sst2": synthetic.Task(n=60)}, seeds=[0, 1, 2, 3, 4, 5]), "pats")
    assert "On sst2 at 300 rows, there is no evidence" in said
    assert ". There is no evidence that pats differs from its control" in said


def test_a_gain_over_the_control(built: Any) -> None:
    said = text(built, "weight_mixup")
    assert "weight_mixup is better than its control weight_mixup_soup (+" in said
    assert "5 seeds" in said
    assert "fewer than six seeds: an indication only" in said
    assert "Of 6 seeds, 1 run failed." in said
    assert "cannot be credited" not in said


def test_without_control_the_cause_stays_open(built: Any) -> None:
    said = text(built, "r_drop")
    assert "r_drop is worse than the reference vanilla" in said
    assert "no control in this grid" in said
    assert "declares 2.0 times the compute of vanilla" in said


def test_controls_and_the_reference_are_not_judged(built: Any) -> None:
    assert {f.method for f in built.report.findings} == {"hype_n", "weight_mixup", "r_drop"}


def test_one_seed_allows_no_conclusion(make: Any, synthetic: Any) -> None:
    arms = {"vanilla": synthetic.Arm(0.5), "huge": synthetic.Arm(0.95)}
    built = make(arms, {"sst2": synthetic.Task(n=60)}, seeds=[4])
    assert "no conclusion" in text(built, "huge")
    assert {f.word for f in built.report.findings} == {"no evidence"}
    assert any("1 seed: with fewer than 6" in warning for warning in built.report.warnings)


def test_nothing_is_said_of_a_method_that_never_finished(make: Any, synthetic: Any) -> None:
    arms = {"vanilla": synthetic.Arm(), "broken": synthetic.Arm(failed={0: "NaN", 1: "NaN"})}
    built = make(arms, {"sst2": synthetic.Task(n=60)}, seeds=[0, 1])
    assert "no seed of broken ran to the end" in text(built, "broken")
    assert built.report.results["sst2-300"]["broken"]["failed"] == 2
    assert built.report.results["sst2-300"]["broken"]["dev"]["accuracy"] == {
        "mean": None, "low": None, "high": None, "n": 0,
    }  # fmt: skip


def test_an_arm_without_a_finished_run_gets_no_verdict_anywhere(make: Any, synthetic: Any) -> None:
    arms = {
        "vanilla": synthetic.Arm(),
        "broken": synthetic.Arm(failed={0: "NaN", 1: "NaN"}),
        "mate": synthetic.Arm(control_for="broken"),
    }
    built = make(arms, {"one": synthetic.Task(n=60), "two": synthetic.Task(n=60)}, seeds=[0, 1])
    row = built.report.blocks[0].row("broken")
    assert {c.verdict.word for c in row.comparisons} == {"nothing to judge"}
    entry = built.report.results["one-300"]["broken"]
    assert entry["verdict_reference"] == entry["verdict_control"] == "nothing to judge"
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(summary_table(built.report))
    (line,) = [line for line in console.export_text().splitlines() if "broken" in line][:1]
    assert "no evidence" not in line
    assert line.count("nothing to judge") == 2
    assert "no seed of broken ran to the end, so nothing can be said" in text(built, "broken", "one-300")
    across = next(found for found in built.report.across if found.method == "broken")
    assert not across.words["reference"]
    assert not across.words["control"]


def test_a_reference_that_never_finished_judges_nothing(make: Any, synthetic: Any) -> None:
    arms = {"vanilla": synthetic.Arm(failed={0: "NaN", 1: "NaN"}), "other": synthetic.Arm()}
    said = text(make(arms, {"sst2": synthetic.Task(n=60)}, seeds=[0, 1]), "other")
    assert "no seed of other ran to the end together with the reference vanilla" in said
    assert "nothing to judge on contrast" in said
    assert "no evidence" not in said


def test_identical_arms_are_called_that_and_no_power_is_claimed(make: Any, synthetic: Any) -> None:
    arms = {"vanilla": synthetic.Arm(0.7), "twin": synthetic.Arm(0.7)}
    built = make(arms, {"sst2": synthetic.Task(n=60)})
    (c,) = built.report.blocks[0].row("twin").against("reference")
    assert c.identical
    assert "twin and the reference vanilla made identical predictions on all 60 rows of dev" in text(built, "twin")
    assert "difference of 0.0" not in built.report.html
    assert ">identical predictions on all 60 rows<" in built.report.html
    # Nor is a p of the signed-rank test shown, and the terminal says it in the place of a verdict.
    assert ">nothing to test<" in built.report.html
    assert "identical predictions" in printed(summary_table(built.report))


def printed(shown: Any) -> str:
    console = Console(width=160, file=io.StringIO())
    console.print(shown)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_few_seeds_that_differ_are_said_beside_the_p(built: Any) -> None:
    c = comparison(built, deviation=0.01)
    three = SignedRank(1.0, 0.25, 3)
    assert p_of(dataclasses.replace(c, signed_rank=three)) == f"0.250 (3 of {c.estimate.n} seeds differ)"
    every = SignedRank(1.0, 0.25, c.estimate.n)
    assert p_of(dataclasses.replace(c, signed_rank=every)) == "0.250"
    assert p_of(dataclasses.replace(c, signed_rank=None)) == "n/a"


def comparison(built: Any, **changes: Any) -> Any:
    """One real comparison with another spread over seeds."""
    c = built.report.blocks[0].row("hype_n").against("control")[0]
    estimate = dataclasses.replace(c.estimate, seed_deviation=changes["deviation"])
    return dataclasses.replace(c, estimate=estimate, detectable=1.6 * changes["deviation"], identical=False)


@pytest.mark.parametrize(
    ("deviation", "said"),
    [(1e-17, "no spread between the seeds"), (1e-5, "under 0.1"), (0.01, "1.6"), (0.0, "no spread between the seeds")],
)
def test_what_seeds_could_find_is_never_nothing(built: Any, deviation: float, said: str) -> None:
    assert detectable(comparison(built, deviation=deviation)) == said


def test_equal_differences_of_all_seeds_claim_no_power(built: Any) -> None:
    row, c = built.report.blocks[0].row("hype_n"), comparison(built, deviation=0.0)
    said = _sentence(row, c, "its control ")
    assert "no spread between the seeds, so nothing can be said" in said
    assert "four times in five" not in said
