"""The arm that is truly the best is rarely lost, and few seeds claim little."""

from __future__ import annotations

import numpy as np
import pytest

from regft_core.statistics.arms import Arms
from regft_core.statistics.over_tasks import RankSet, rank_sets
from regft_core.statistics.power import shares


def arms_of(rng: np.random.Generator, shifts: list[float], seeds: int = 5, n: int = 100) -> Arms:
    """Arms that are right where difficulty + seed and pair noise + shift is positive."""
    difficulty = rng.normal(size=n) + 0.8
    found = {}
    for i, shift in enumerate(shifts):
        noise = 0.15 * rng.normal(size=(seeds, 1)) + 0.6 * rng.normal(size=(seeds, n))
        found[f"a{i}"] = {s: row.astype(int) for s, row in enumerate(difficulty + noise + shift > 0)}
    return Arms(found, np.ones(n, int), "accuracy", samples=300)


def test_arms_that_share_fewer_than_two_seeds_are_not_told_apart() -> None:
    labels = np.ones(50, int)
    arms = Arms({"a": {0: labels}, "b": {0: 1 - labels}, "c": {1: labels}}, labels, "accuracy", samples=100)
    assert set(rank_sets(arms, ["a", "b", "c"], confidence=0.95).values()) == {RankSet(1, 3)}


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
