"""The arm that is truly the best is rarely lost, and few seeds claim little."""

from __future__ import annotations

import math

import numpy as np
import pytest

from regft_core.statistics.arms import Arms
from regft_core.statistics.power import shares
from regft_core.statistics.ranks import RankSet, Simultaneous, against_all, rank_sets


def arms_of(rng: np.random.Generator, shifts: list[float], seeds: int = 5, n: int = 100) -> Arms:
    """Arms that are right where difficulty + seed and pair noise + shift is positive."""
    difficulty = rng.normal(size=n) + 0.8
    found = {}
    for i, shift in enumerate(shifts):
        noise = 0.15 * rng.normal(size=(seeds, 1)) + 0.6 * rng.normal(size=(seeds, n))
        found[f"a{i}"] = {s: row.astype(int) for s, row in enumerate(difficulty + noise + shift > 0)}
    return Arms(found, np.ones(n, int), "accuracy", samples=300)


def picked(arms: Arms, k: int) -> tuple[str, list[Simultaneous]]:
    names = [f"a{i}" for i in range(k)]
    best = max(names, key=lambda name: arms.one(name).mean)
    others = [name for name in names if name != best]
    return best, against_all(arms, best, others, len(others), 0.95)


def test_among_equal_arms_none_is_lost_too_often() -> None:
    """Under equality each arm is truly the best, so a fixed one may be lost in at most 5 % of the cases."""
    rng = np.random.default_rng(1)
    lost = any_lost = 0
    for _ in range(150):
        _, found = picked(arms_of(rng, [0.0] * 6), 6)
        led = {c.b for c in found if c.leads(True)}
        lost += "a0" in led
        any_lost += bool(led)
    assert lost <= 14  # 7.5 expected at most; above 14 has a chance below 1e-2
    assert any_lost <= 30


def test_an_arm_that_really_leads_is_told_apart() -> None:
    rng = np.random.default_rng(2)
    best, found = picked(arms_of(rng, [0.0, 0.0, 1.5, 0.0], n=400), 4)
    assert best == "a2"
    assert all(c.leads(True) for c in found)
    assert not any(c.leads(False) for c in found)


def test_more_comparisons_make_wider_intervals_and_one_is_a_plain_one() -> None:
    arms = arms_of(np.random.default_rng(3), [0.0, 0.3])
    plain = arms.difference("a0", "a1")
    (alone,) = against_all(arms, "a0", ["a1"], 1, 0.95)
    (one_of_ten,) = against_all(arms, "a0", ["a1"], 10, 0.95)
    assert alone.low <= plain.low
    assert plain.high <= alone.high
    assert (alone.low, alone.high) == pytest.approx((plain.low, plain.high), abs=0.02)
    assert one_of_ten.low < alone.low
    assert alone.high < one_of_ten.high
    with pytest.raises(ValueError, match="3 comparisons cannot share the level of 2"):
        against_all(arms, "a0", ["a1"] * 3, 2, 0.95)


def test_one_seed_or_none_leads_nowhere() -> None:
    labels = np.ones(50, int)
    arms = Arms({"a": {0: labels}, "b": {0: 1 - labels}, "c": {1: labels}}, labels, "accuracy", samples=100)
    one, none = against_all(arms, "a", ["b", "c"], 2, 0.95)
    assert (one.n, one.leads(True), one.mean) == (1, False, 1.0)
    assert (none.n, none.leads(True)) == (0, False)
    assert math.isnan(none.low)


def far_apart(n: int = 400, seeds: int = 5) -> Arms:
    """Three arms with the scores 0.9, 0.6 and 0.3 and hardly any spread."""
    found = {
        name: {seed: (np.arange(n) < n * right + seed).astype(int) for seed in range(seeds)}
        for name, right in (("middle", 0.6), ("most", 0.9), ("least", 0.3))
    }
    return Arms(found, np.ones(n, int), "accuracy", samples=300)


@pytest.mark.parametrize(
    ("upwards", "order"), [(True, ["most", "middle", "least"]), (False, ["least", "middle", "most"])]
)
def test_arms_that_are_far_apart_have_one_rank_each(upwards: bool, order: list[str]) -> None:
    found = rank_sets(far_apart(), order, confidence=0.95, higher_is_better=upwards)
    assert found == {name: RankSet(rank, rank) for rank, name in enumerate(order, 1)}


def test_equal_arms_may_have_any_rank_and_more_tasks_leave_more_of_them() -> None:
    equal = arms_of(np.random.default_rng(5), [0.0, 0.0, 0.0])
    assert set(rank_sets(equal, ["a0", "a1", "a2"], confidence=0.95).values()) == {RankSet(1, 3)}
    # Told apart on one task, but not at the level that each of a thousand tasks gets.
    near = arms_of(np.random.default_rng(6), [0.0, 0.8], n=300)
    assert rank_sets(near, ["a0", "a1"], confidence=0.95)["a1"] == RankSet(1, 1)
    assert rank_sets(near, ["a0", "a1"], confidence=0.95, sets=1000)["a1"] == RankSet(1, 2)


def test_all_looks_together_spend_no_more_than_the_error_of_one() -> None:
    spent = [sum(1 / shares(k) for k in range(1, last + 1)) for last in (1, 2, 3, 10, 1000)]
    assert spent[:3] == pytest.approx([1 / 2, 2 / 3, 3 / 4])
    assert all(share < 1 for share in spent)
    with pytest.raises(ValueError, match="counted from 1"):
        shares(0)
