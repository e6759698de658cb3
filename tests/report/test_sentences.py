"""Sentences claim what the intervals show."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from regft_core.report import summary_table


def text(built: Any, method: str, block: str = "sst2-300") -> str:
    (found,) = [f for f in built.report.findings if (f.method, f.block) == (method, block)]
    return " ".join(found.sentences)


def test_a_gain_that_the_control_has_too_is_not_credited(built: Any) -> None:
    said = text(built, "hype_n")
    assert said.startswith("On sst2 at 300 rows, hype_n against its control vanilla_no_dropout: no difference shown (")
    assert "better than the reference vanilla" in said
    assert "cannot be credited" in said
    assert "on contrast" in said


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
