"""Sentences claim what the intervals show."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from regft_core.report import summary_table
from regft_core.statistics.verdict import overall


def text(built: Any, method: str, block: str = "sst2-300") -> str:
    (found,) = [f for f in built.report.findings if (f.method, f.block) == (method, block)]
    return " ".join(found.sentences)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], None),
        (["better", "better"], "better"),
        (["better", "no difference shown"], "no difference shown"),
        (["better", "worse"], "worse"),
        (["no difference shown"], "no difference shown"),
        (["no verdict"], "no verdict"),
        (["no verdict", "better"], "no difference shown"),
        (["no verdict", "worse"], "worse"),
    ],
)
def test_better_means_better_than_every_control(words: list[Any], expected: str | None) -> None:
    assert overall(words) == expected


def test_a_gain_that_the_control_has_too_is_not_credited(built: Any) -> None:
    said = text(built, "hype_n")
    assert said.startswith("On sst2 at 300 rows, hype_n against its control vanilla_no_dropout: no difference shown (")
    assert "better than the reference vanilla" in said
    assert "cannot be credited" in said
    assert "on contrast" in said


def test_a_gain_over_the_control(built: Any) -> None:
    said = text(built, "weight_mixup")
    assert "weight_mixup is better than its control weight_mixup_soup (+" in said
    assert "5 seeds" in said
    assert "Of 6 seeds, 1 run failed." in said
    assert "cannot be credited" not in said


def test_without_control_the_cause_stays_open(built: Any) -> None:
    said = text(built, "r_drop")
    assert "r_drop is worse than the reference vanilla" in said
    assert "no control in this grid" in said
    assert "declares 2.0 times the compute of vanilla" in said


def test_an_arm_without_a_finished_run_gets_no_verdict_anywhere(make: Any, synthetic: Any) -> None:
    arms = {
        "vanilla": synthetic.Arm(),
        "broken": synthetic.Arm(failed={0: "NaN", 1: "NaN"}),
        "mate": synthetic.Arm(control_for="broken"),
    }
    built = make(arms, {"one": synthetic.Task(n=60), "two": synthetic.Task(n=60)}, seeds=[0, 1])
    row = built.report.blocks[0].row("broken")
    assert {c.verdict.word for c in row.comparisons} == {"no verdict"}
    entry = built.report.results["one-300"]["broken"]
    assert entry["verdict_reference"] == entry["verdict_control"] == "no verdict"
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(summary_table(built.report))
    (line,) = [line for line in console.export_text().splitlines() if "broken" in line][:1]
    assert "no difference shown" not in line
    assert "no seed of broken ran to the end, so nothing can be said" in text(built, "broken", "one-300")
    across = next(found for found in built.report.across if found.method == "broken")
    assert not across.words["reference"]
    assert not across.words["control"]


def test_a_reference_that_never_finished_judges_nothing(make: Any, synthetic: Any) -> None:
    arms = {"vanilla": synthetic.Arm(failed={0: "NaN", 1: "NaN"}), "other": synthetic.Arm()}
    said = text(make(arms, {"sst2": synthetic.Task(n=60)}, seeds=[0, 1]), "other")
    assert "other against the reference vanilla: no verdict (no seed of both ran to the end)" in said
    assert "no verdict on contrast" in said
    assert "no difference" not in said


def test_identical_arms_are_called_that_and_no_power_is_claimed(make: Any, synthetic: Any) -> None:
    arms = {"vanilla": synthetic.Arm(0.7), "twin": synthetic.Arm(0.7)}
    built = make(arms, {"sst2": synthetic.Task(n=60)})
    (c,) = built.report.blocks[0].row("twin").against("reference")
    assert c.identical
    said = "twin against the reference vanilla: no difference shown (identical answers to all 60 rows of dev)."
    assert said in text(built, "twin")
    assert ">identical answers to all 60 rows<" in built.report.html
    assert "is detected 80%" not in text(built, "twin")


def test_a_method_that_answers_alike_under_every_seed_counts_once(make: Any, synthetic: Any) -> None:
    arms = {"vanilla": synthetic.Arm(0.7), "still": synthetic.Arm(collapsed=(0, 1, 2))}
    built = make(arms, {"sst2": synthetic.Task(n=60, ood=())}, seeds=[0, 1, 2])
    assert "still gives the same answers under every seed: its seeds count as one answer." in text(built, "still")
    assert [row.still for row in built.report.blocks[0].rows] == [False, True]
