"""Rounding alone never makes a printed mean or gain wrong, and a slip in the last place but one always does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from regft_core.settings.papers.printed_arithmetic import leaves, wrong_gains, wrong_means

SCORES = st.lists(st.floats(0, 100), min_size=2, max_size=9)
DIGITS = st.integers(1, 2)


def printed(values: list[float], digits: int) -> dict[str, float]:
    return {f"c{i}": round(value, digits) for i, value in enumerate(values)}


@given(SCORES, DIGITS)
def test_a_mean_taken_before_rounding_follows(values: list[float], digits: int) -> None:
    values = [*values, 10.0**-digits]  # a last digit that is no zero: YAML drops zeros
    scores = printed(values, digits)
    means = {"average": list(scores)}
    scores["average"] = round(sum(values) / len(values), 2)
    assert not list(wrong_means(scores, {}, means))
    off = {**scores, "average": scores["average"] + 3 * 10.0**-digits}
    ((key, message),) = wrong_means(off, {}, means)
    assert key == "average"
    assert "recomputed: {average:" in message


@given(SCORES, DIGITS)
def test_a_recomputed_mean_is_the_mean_and_is_needed(values: list[float], digits: int) -> None:
    scores = printed(values, digits)
    means, mean = {"average": list(scores)}, sum(scores.values()) / len(scores)
    wrong = {**scores, "average": mean + 1}
    assert not list(wrong_means(wrong, {"average": mean}, means))
    assert ["recomputed" in message for _, message in wrong_means(wrong, {"average": mean + 0.1}, means)] == [True]
    right = {**scores, "average": round(mean, 2)}
    assert ["remove" in message for _, message in wrong_means(right, {"average": mean}, means)] == [True]


@given(SCORES, SCORES, DIGITS)
def test_a_gain_taken_before_rounding_follows(ours: list[float], theirs: list[float], digits: int) -> None:
    ours, theirs = [*ours[: len(theirs)], 10.0**-digits], [*theirs[: len(ours)], 10.0**-digits]
    scores, base = printed(ours, digits), printed(theirs, digits)
    means = {"average": list(scores)}
    gains = {"c0": round(ours[0] - theirs[0], digits), "average": round((sum(ours) - sum(theirs)) / len(ours), 2)}
    assert not list(wrong_gains(gains, scores, base, means))
    off = {key: value + 4 * 10.0**-digits for key, value in gains.items()}
    assert {key for key, _ in wrong_gains(off, scores, base, means)} == {"c0", "average"}


def test_a_nested_part_is_its_printed_mean_or_follows_from_its_parts() -> None:
    means = {"both": ["a", "b"], "average": [["a", "b"], "c"]}
    assert leaves(means["average"]) == ["a", "b", "c"]
    assert not list(wrong_means({"both": 80.0, "c": 90.0, "average": 85.0}, {}, means))
    assert not list(wrong_means({"a": 70.0, "b": 90.0, "c": 90.0, "average": 85.0}, {}, means))
    assert list(wrong_means({"a": 70.0, "b": 90.0, "c": 90.0, "average": 83.3}, {}, means))
    # Nothing follows where a part is not printed.
    assert not list(wrong_means({"a": 70.0, "c": 90.0, "average": 1.0}, {}, means))
