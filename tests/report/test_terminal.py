"""The terminal: whole names, numbers and commands at every width; sentences claim what the intervals show."""

from __future__ import annotations

from typing import Any

import pytest

from tests.report import grids
from tests.report.synthetic import Arm, Task


def test_the_terminal_is_that_of_the_golden_text() -> None:
    found, golden = grids.terminal(grids.report("3-tasks"), 80), grids.GOLDEN.read_text(encoding="utf-8")
    assert found == golden, f"what people see changed. Read it as a user would, then write it anew: {grids.COMMAND}"


@pytest.mark.parametrize("width", [60, 140])
def test_no_line_is_cropped_or_too_long(width: int) -> None:
    text, golden = grids.terminal(grids.report("3-tasks"), width), grids.GOLDEN.read_text(encoding="utf-8")
    assert not [line for line in text.splitlines() if len(line) > width and not line.startswith("$ ")]
    assert set(text.split()) == set(golden.split())
    commands = {line for line in golden.splitlines() if line.startswith("$ ")}
    assert commands <= set(text.splitlines())


def test_an_arm_without_a_finished_run_gets_no_verdict_anywhere(make: Any) -> None:
    arms = {
        "vanilla": Arm(),
        "broken": Arm(failed={0: "NaN", 1: "NaN"}),
        "mate": Arm(control_for="broken"),
    }
    built = make(arms, {"one": Task(n=60), "two": Task(n=60)}, seeds=[0, 1])
    row = built.report.blocks[0].row("broken")
    assert {c.verdict.word for c in row.comparisons} == {"no verdict"}
    entry = built.report.results["one-300"]["broken"]
    assert entry["verdict_reference"] == entry["verdict_control"] == "no verdict"
    (line,) = [line for line in grids.terminal(built.report, 200).splitlines() if "broken" in line][:1]
    assert "no difference shown" not in line
    across = next(found for found in built.report.across if found.method == "broken")
    assert not across.words["reference"]
    assert not across.words["control"]
