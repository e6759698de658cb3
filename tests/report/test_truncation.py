"""Rows that max_length cut: first among the warnings, in the terminal, and on the page."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from regft_core.errors import DataError
from regft_core.report import Report, summary_table
from tests.errors import raises_code

WARNING = "sst2: max_length 128 cuts 40.0% of dev; 95 of 100 rows have at most 60 tokens"


def shown(report: Report) -> str:
    console = Console(width=300)
    with console.capture() as captured:
        console.print(summary_table(report))
    return captured.get()


@pytest.fixture(scope="module")
def cut(make: Any, synthetic: Any) -> Any:
    arms = {"vanilla": synthetic.Arm(0.7)}
    tasks = {"sst2": synthetic.Task(n=60, cuts={"dev": 0.4}), "cola": synthetic.Task(n=60)}
    return make(arms, tasks, seeds=range(2))


def test_what_was_cut_is_the_first_warning(cut: Any) -> None:
    assert cut.report.warnings[0].startswith(WARNING)
    assert WARNING in shown(cut.report)
    assert WARNING in cut.report.html
    assert "Cut at 128" in cut.report.html


def test_the_terminal_says_it_of_every_task_once(cut: Any) -> None:
    text = shown(cut.report)
    assert "cola: max_length 128 cuts 1.0% of the training rows (median 20 tokens, 95% have at most 60" in text
    assert text.count("sst2: max_length") == 1


def test_a_missing_file_names_its_stage(cut: Any) -> None:
    path = cut.root / "work" / "lengths" / "cola.json"
    content = path.read_text()
    path.unlink()
    with raises_code(DataError, "file-missing", "(stage plan)"):
        cut.again()
    path.write_text(content)
