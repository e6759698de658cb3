"""The leaderboard in the terminal: whole names, whole numbers and whole commands at every width."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from regft_core.report import show
from regft_core.report.page.formatting import interval, score

COMMAND = "$ regft export --method a_method_with_a_rather_long_name_indeed --task sst2 --size 300 --seed 0"


@pytest.fixture(scope="module")
def long(make: Any, synthetic: Any) -> Any:
    arms = {
        "vanilla": synthetic.Arm(0.7),
        "a_method_with_a_rather_long_name_indeed": synthetic.Arm(0.9, shift=-0.7),
        "its_control": synthetic.Arm(0.72, control_for="a_method_with_a_rather_long_name_indeed"),
        "broken": synthetic.Arm(0.5, failed={0: "NaN"}),
    }
    return make(arms, {"sst2": synthetic.Task(n=200, ood=("reversed", "no_cue"))}, seeds=range(4))


def printed(built: Any, width: int, **options: Any) -> list[str]:
    console = Console(width=width, file=io.StringIO(), **options)
    show(built.report, console)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_nothing_is_cropped_or_split(long: Any, width: int) -> None:
    lines = printed(long, width)
    assert COMMAND in lines
    assert all(len(line) <= width for line in lines if not line.startswith("$ "))
    text = "\n".join(lines)
    (block,) = long.report.blocks
    for row in block.rows:
        assert re.search(rf"^ +(\d+|-) +{row.method}  ", text, re.MULTILINE)
        for name, own in row.scores.items():
            found = own["accuracy"]
            assert score(found.estimate.mean, "accuracy") in text
            assert name != "dev" or interval(found.interval, "accuracy") in text
    for head in ("dev", "reversed", "no_cue", "vs control", "vs vanilla", "cost", "measured", "seeds"):
        assert any(head in line for line in lines if line.startswith("method "))
    assert not any("…" in line for line in lines)
