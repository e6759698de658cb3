"""What more rows would bring, in report and terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from regft_core.report import summary_table


@pytest.fixture(scope="module")
def several(make: Any, synthetic: Any) -> Any:
    arms = {"vanilla": synthetic.Arm(0.8), "good": synthetic.Arm(0.95)}
    return make(arms, {"sst2": synthetic.Task(n=100, ood=())}, range(3), (50, 100, 200))


def test_every_method_has_an_entry_and_the_one_that_is_taken_a_sentence(several: Any) -> None:
    found = several.report.more_rows
    assert [(one.method, one.taken, one.rows, one.sizes) for one in found] == [
        ("vanilla", False, 200, 3),
        ("good", True, 200, 3),
    ]
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(summary_table(several.report))
    shown = " ".join(console.export_text().split())
    assert "With 400 rows of sst2 instead of 200, good is expected to change by" in shown
    assert "With 400 rows of sst2 instead of 200, good is expected to change by" in several.report.html
    assert "vanilla is expected" not in shown
    assert "What more rows would bring" in several.report.html


def test_two_sizes_have_no_curve(make: Any, synthetic: Any) -> None:
    built = make({"vanilla": synthetic.Arm(0.8)}, {"sst2": synthetic.Task(n=60, ood=())}, range(2), (50, 100))
    assert built.report.more_rows == ()
    assert "What more rows would bring" not in built.report.html
