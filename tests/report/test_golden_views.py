"""What a reader sees of grids of 1 to 62 methods and of several tasks stays as it is in the golden files."""

from __future__ import annotations

import pytest

from tests.report import grids


@pytest.mark.parametrize("name", list(grids.GRIDS))
def test_views_are_those_of_the_golden_files(name: str) -> None:
    found, golden = grids.golden(name), grids.golden_file(name).read_text(encoding="utf-8")
    assert found == golden, f"what people see changed. Read it as a user would, then write it anew: {grids.COMMAND}"


def test_a_long_leaderboard_ends_with_the_decision_and_the_command() -> None:
    report = grids.report("34-methods")
    (decision,) = [block.decision for block in report.blocks]
    last = " ".join(grids.terminal(report, 80).split())
    assert last.endswith(f"{decision.sentences[0]} $ {decision.commands[0]}")
    assert last.count(decision.commands[0]) == 2
