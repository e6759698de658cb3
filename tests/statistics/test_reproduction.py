"""The verdict on a printed gain: its rule in closed form, every word, and the family that words hold in."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regft_core.statistics.reproduction import Bounds, outcome, step_down, together

POINTS = st.floats(-50, 50).map(lambda x: round(x, 3))
WIDTHS = st.floats(0.001, 30)
PRINTED = st.floats(0.01, 30)


def bounds(value: float, half: float) -> Bounds:
    return Bounds(value, value - half, value + half)


@pytest.mark.parametrize(
    ("ours", "printed", "word"),
    [
        (bounds(2.0, 1.0), Bounds(1.5), "reproduced"),  # the printed gain is in the interval
        (bounds(4.0, 1.0), Bounds(1.5), "reproduced"),  # exceeded
        (bounds(1.0, 0.4), Bounds(1.5), "smaller"),
        (
            bounds(1.0, 0.4),
            bounds(1.5, 0.5),
            "reproduced",
        ),  # the paper's own spread reaches ours: 0.5 < hypot(0.4, 0.5)
        (bounds(-1.0, 0.5), Bounds(1.5), "contradicted"),  # on the other side
        (bounds(0.1, 0.5), Bounds(1.5), "contradicted"),  # at most 0.6 of 1.5
        (bounds(0.1, 0.5), bounds(1.5, 2.0), "not shown"),  # the printed gain is not shown to differ
        (bounds(0.1, 0.7), Bounds(1.5), "not shown"),  # 0.8 is more than half of 1.5
        (bounds(0.5, 5.0), Bounds(1.5), "not shown"),
        (bounds(1.0, 0.5), None, "reproduced"),  # a direction without a number
        (bounds(0.1, 0.5), None, "not shown"),
        (bounds(-1.0, 0.5), None, "contradicted"),
        (bounds(0.0, 0.0), Bounds(1.5), "not shown"),  # identical answers
        (bounds(0.5, 0.4), Bounds(-0.2), "reproduced"),  # the paper prints a loss beside its claim of a gain
        (bounds(-0.1, 0.05), Bounds(-0.2), "contradicted"),
        (Bounds(1.0), Bounds(1.5), "not tested here"),
        (Bounds(math.nan), Bounds(1.5), "not tested here"),
    ],
)
def test_words_in_closed_form(ours: Bounds, printed: Bounds | None, word: str) -> None:
    assert outcome(ours, 5, printed) == word


@given(POINTS, WIDTHS, PRINTED, WIDTHS, st.floats(0.1, 10))
def test_the_unit_does_not_matter(value: float, half: float, gain: float, spread: float, unit: float) -> None:
    ours, printed = bounds(value, half), bounds(gain, spread)
    scaled = [Bounds(b.value * unit, b.low * unit, b.high * unit) for b in (ours, printed)]
    edges = (ours.low, ours.high, ours.high - gain / 2, gain - value - math.hypot(half, spread))
    if min(map(abs, edges)) > 1e-9:
        assert outcome(ours, 3, printed) == outcome(scaled[0], 3, scaled[1])


def test_several_columns_at_once() -> None:
    assert together({1: "reproduced", 2: "reproduced"}) == "reproduced"
    assert together({1: "reproduced", 2: "smaller"}) == "smaller"
    assert together({1: "reproduced", 2: "smaller", 3: "not shown"}) == "not shown"
    assert together({1: "reproduced", 2: "not tested here"}) == "reproduced"
    assert together({1: "contradicted", 2: "not shown"}) == "contradicted"
    assert together({1: "not tested here"}) == "not tested here"


def by_p(p: dict[str, float]) -> object:
    """Judges whose interval excludes zero from confidence 1 - p downwards."""
    return lambda name, confidence: "reproduced" if p[name] <= 1 - confidence + 1e-12 else "not shown"


def holm(p: dict[str, float]) -> dict[str, float]:
    """Adjusted p-values (Holm 1979)."""
    adjusted, running = {}, 0.0
    for position, (name, value) in enumerate(sorted(p.items(), key=lambda item: item[1])):
        running = max(running, min(1.0, value * (len(p) - position)))
        adjusted[name] = running
    return adjusted


@given(st.lists(st.floats(0.0001, 0.2), min_size=1, max_size=8))
def test_step_down_rejects_what_holm_does(values: list[float]) -> None:
    p = {str(i): value for i, value in enumerate(values)}
    if any(abs(value * k - 0.05) < 1e-9 for value in values for k in range(1, 9)):
        return
    found = step_down(by_p(p), list(p), 0.95)  # type: ignore[arg-type]
    assert {name for name, (word, _) in found.items() if word == "reproduced"} == {
        name for name, adjusted in holm(p).items() if adjusted <= 0.05
    }


def test_what_cannot_be_tested_takes_no_part_of_the_level() -> None:
    def judge(name: str, confidence: float) -> object:
        return "not tested here" if name == "absent" else "not shown"

    found = step_down(judge, ["a", "absent", "b"], 0.95)  # type: ignore[arg-type]
    assert found["a"] == ("not shown", pytest.approx(0.975))
    assert found["absent"][0] == "not tested here"
    assert step_down(judge, [], 0.95) == {}  # type: ignore[arg-type]
