"""What a reader sees at the terminal stays as it is in the golden text; the numbers are those of the promises."""

from __future__ import annotations

from tests.report import grids


def test_the_terminal_is_that_of_the_golden_text() -> None:
    found, golden = grids.terminal(grids.report("3-tasks"), 80), grids.GOLDEN.read_text(encoding="utf-8")
    assert found == golden, f"what people see changed. Read it as a user would, then write it anew: {grids.COMMAND}"


def test_a_long_leaderboard_ends_with_the_decision_and_the_command() -> None:
    report = grids.report("34-methods")
    (decision,) = [block.decision for block in report.blocks]
    last = " ".join(grids.terminal(report, 80).split())
    assert last.endswith(f"{decision.sentences[0]} $ {decision.commands[0]}")
    assert last.count(decision.commands[0]) == 2
