"""Intervals: what goes in, error rates and coverage under simulated truth, and where each seed has rows of its own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_ind

from regft_core import metrics
from regft_core.metrics import find, names
from regft_core.statistics.arms import Arms, rank_sets, resample_apart
from regft_core.statistics.bootstrap import example_weights, resampled_metric, seed_interval, seed_weights
from regft_core.statistics.forecast import shares
from regft_core.statistics.reproduction import welch_interval
from regft_core.statistics.verdict import judge
from tests.statistics.single import one_arm, paired_difference


def least(runs: int, confidence: float = 0.95) -> float:
    """The share of covering intervals below which the simulation speaks against ``confidence``: three of its errors.

    An interval may be wider than its confidence, not narrower, so rates are bounded from one side.
    """
    return confidence - 3 * math.sqrt(confidence * (1 - confidence) / runs)


def predictions(rng: np.random.Generator, skills: list[float], n: int, examples: int) -> list[np.ndarray]:
    """[n, examples] per arm, 1 is right; the chance varies with the seed and, for all arms alike, with the example."""
    difficulty = rng.normal(0, 0.15, examples)
    chances = [np.clip(skill + rng.normal(0, 0.04, (n, 1)) + difficulty, 0, 1) for skill in skills]
    return [(rng.random((n, examples)) < chance).astype(int) for chance in chances]


def arms_of(rows: list[np.ndarray], rng_seed: int) -> Arms:
    named = {str(number): dict(enumerate(own)) for number, own in enumerate(rows)}
    return Arms(named, np.ones(rows[0].shape[1], dtype=int), "accuracy", samples=200, rng_seed=rng_seed)


def simulated(rng: np.random.Generator, skills: list[float], n: int) -> Arms:
    return arms_of(predictions(rng, skills, n, 120), int(rng.integers(2**31)))


@pytest.mark.parametrize("n", [5, 20])
def test_rank_sets_hold_the_true_ranks(n: int) -> None:
    """Four arms, two of them equal: the true ranks are 1, 2 or 3, 2 or 3, 4."""
    rng = np.random.default_rng(n)
    runs, held, narrow = 150, 0, 0
    for _ in range(runs):
        found = rank_sets(simulated(rng, [0.78, 0.7, 0.7, 0.62], n), ["0", "1", "2", "3"], confidence=0.95)
        held += found["1"].best <= 2 and found["1"].worst >= 3
        held += found["0"].best == 1 and found["3"].worst == 4
        narrow += found["0"].worst < 4
    assert held / (2 * runs) >= least(2 * runs)
    if n == 20:
        assert narrow > runs / 2  # it does not cover by saying nothing


def stopped(rng: np.random.Generator, looks: list[int], skill: float = 0.7) -> bool:
    """Whether somebody who adds seeds until there is a verdict finds a difference."""
    every, resamples = predictions(rng, [skill, 0.7], looks[-1], 60), int(rng.integers(2**31))
    for number, n in enumerate(looks, start=1):
        arms = arms_of([rows[:n] for rows in every], resamples)
        sample = arms.sample("0", "1")
        (found,) = judge([sample], "reference", confidence=0.95, point=0.01, shares=shares(number))
        if found.word in ("better", "worse"):
            return True
    return False


def test_optional_stopping_keeps_the_error_rate() -> None:
    runs, rng = 200, np.random.default_rng(7)
    errors = sum(stopped(rng, [3, 4, 5, 6, 8, 10, 15, 20]) for _ in range(runs)) / runs
    assert errors <= 1 - least(runs)


def test_a_true_difference_is_still_found() -> None:
    rng = np.random.default_rng(3)
    assert sum(stopped(rng, [5, 10, 20], skill=0.85) for _ in range(20)) >= 18


def test_welch_interval_equals_scipys() -> None:
    x, y = [1.0, 2.0, 4.0], [3.0, 3.5, 7.0, 9.0]
    parts = [(float(np.var(s, ddof=1)) / len(s), len(s)) for s in (x, y)]
    expected = ttest_ind(x, y, equal_var=False).confidence_interval()
    found = welch_interval(float(np.mean(x) - np.mean(y)), parts)
    assert found == pytest.approx((expected.low, expected.high))
    assert all(map(math.isnan, welch_interval(1.0, [])))
    assert all(map(math.isnan, welch_interval(1.0, [(1.0, 1)])))


VALUES = ["pearson", "spearman", "mse"]
METRICS = ["accuracy", "f1", "f1_macro", "matthews", "accuracy_f1"]


def folds_of(rng: np.random.Generator, n: int, folds: int, repeats: int = 1) -> dict[int, np.ndarray]:
    """Seed -> its rows."""
    parts = {}
    for repeat in range(repeats):
        part_of = rng.permutation(np.arange(n) % folds)
        parts |= {repeat * folds + fold: np.flatnonzero(part_of == fold) for fold in range(folds)}
    return parts


def noisy(
    rng: np.random.Generator, gold: np.ndarray, parts: dict[int, np.ndarray], right: float
) -> dict[int, np.ndarray]:
    return {seed: np.where(rng.random(len(at)) < right, gold[at], 1 - gold[at]) for seed, at in parts.items()}


@pytest.mark.parametrize("metric", [*METRICS, *VALUES])
def test_the_mean_is_that_of_the_folds(metric: str) -> None:
    rng = np.random.default_rng(0)
    gold, parts = rng.integers(2, size=103), folds_of(rng, 103, 5, 2)
    arm = noisy(rng, gold, parts, 0.8)
    if metric in VALUES:
        gold = rng.normal(size=103)
        arm = {seed: gold[at] + rng.normal(0, 0.5, len(at)) for seed, at in parts.items()}
    found = Arms({"a": arm}, gold, metric, samples=300, judged=parts, positive_label_index=1).one("a")
    each = [metrics.find(metric).score(gold[at], arm[seed], 1) for seed, at in parts.items()]
    assert found.values == pytest.approx(each)
    assert found.mean == pytest.approx(np.mean(each))
    assert found.low < found.mean < found.high


def test_a_resample_of_the_rows_of_a_run_scores_as_these_rows_do() -> None:
    rng = np.random.default_rng(2)
    gold, parts = rng.integers(2, size=40), folds_of(rng, 40, 4)
    arm = noisy(rng, gold, parts, 0.7)
    for metric in METRICS:
        apart = resample_apart(
            list(arm.values()), list(parts.values()), gold, None, metric, samples=20, seed=3, positive_label_index=1
        )
        counts = example_weights(40, 20, 3)
        for run, (seed, at) in enumerate(parts.items()):
            drawn = np.repeat(np.arange(len(at)), counts[5, at])
            assert apart.shares[5, run] == pytest.approx(len(drawn) / len(at))
            expected = metrics.find(metric).score(gold[at][drawn], arm[seed][drawn], 1)
            assert apart.values[5, run] == pytest.approx(expected), metric


def test_differences_are_paired_by_row_and_fold() -> None:
    rng = np.random.default_rng(3)
    gold, parts = rng.integers(2, size=200), folds_of(rng, 200, 5)
    one = noisy(rng, gold, parts, 0.7)
    other = {seed: np.where(rng.random(len(row)) < 0.03, 1 - row, row) for seed, row in one.items()}
    arms = Arms({"a": one, "b": other, "c": noisy(rng, gold, parts, 0.7)}, gold, "accuracy", samples=500, judged=parts)
    alike, apart = arms.difference("a", "b"), arms.difference("a", "c")
    assert alike.standard_error_examples < 0.5 * apart.standard_error_examples
    mirrored = arms.difference("b", "a")
    assert (mirrored.low, mirrored.high) == pytest.approx((-alike.high, -alike.low))
    same = arms.difference("a", "a")
    assert (same.mean, same.low, same.high) == (0, 0, 0)
    assert arms.identical("a", "a")
    assert not arms.identical("a", "b")


def test_seeds_that_one_side_lacks_are_left_out() -> None:
    rng = np.random.default_rng(4)
    gold, parts = rng.integers(2, size=60), folds_of(rng, 60, 3)
    one, other = noisy(rng, gold, parts, 0.7), noisy(rng, gold, parts, 0.7)
    del other[1]
    found = Arms({"a": one, "b": other}, gold, "accuracy", samples=100, judged=parts, expected_seeds=[0, 1, 2])
    assert found.difference("a", "b").seeds == (0, 2)
    assert found.difference("a", "b").excluded == (1,)
    assert math.isnan(Arms({"a": {}}, gold, "accuracy", samples=100, judged=parts).one("a").mean)


def test_groups_widen_the_interval_of_rows_that_stand_and_fall_together() -> None:
    rng = np.random.default_rng(5)
    groups = np.repeat(np.arange(20), 10)
    gold = np.ones(200, dtype=int)
    parts = {fold: np.flatnonzero(groups % 5 == fold) for fold in range(5)}
    right = (rng.random(20) < 0.7).astype(int)[groups]
    arm = {seed: right[at] for seed, at in parts.items()}
    errors = [
        Arms({"a": arm}, gold, "accuracy", samples=1000, judged=parts, groups=own).one("a").standard_error_examples
        for own in (None, groups)
    ]
    assert errors[1] > 2 * errors[0]  # ten rows of a group are one
    whole = dict.fromkeys(range(3), right)  # a set of its own, with groups
    plain, grouped = (Arms({"a": whole}, gold, "accuracy", samples=1000, groups=own).one("a") for own in (None, groups))
    assert grouped.high - grouped.low > 2 * (plain.high - plain.low)


def test_a_fold_of_one_group_that_is_not_drawn() -> None:
    groups = np.repeat(np.arange(4), 5)
    gold = np.ones(20, dtype=int)
    parts = {fold: np.flatnonzero(groups == fold) for fold in range(4)}
    rng = np.random.default_rng(6)
    arm = {seed: (rng.random(5) < 0.6).astype(int) for seed in parts}
    found = Arms({"a": arm}, gold, "accuracy", samples=500, judged=parts, groups=groups).one("a")
    assert np.isfinite([found.low, found.high]).all()
    assert found.low < found.mean < found.high


def world(
    rng: np.random.Generator, repeats: int, models: float, groups: int | None
) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray], np.ndarray, np.ndarray | None]:
    """(predictions, rows) of 5 folds of 200 rows whose true accuracy is 0.7; models differ by ``models``."""
    n = 200
    group = None if groups is None else np.arange(n) % groups
    easy = rng.beta(7, 3, n) if group is None else rng.beta(7, 3, groups)[group]
    arm, parts = {}, {}
    for repeat in range(repeats):
        part_of = rng.permutation(np.arange(n if groups is None else groups) % 5)
        part_of = part_of if group is None else part_of[group]
        for fold in range(5):
            at = np.flatnonzero(part_of == fold)
            shift = rng.normal(0, models)
            arm[5 * repeat + fold] = (rng.random(len(at)) < easy[at] + shift).astype(int)
            parts[5 * repeat + fold] = at
    return arm, parts, np.ones(n, dtype=int), group


@pytest.mark.parametrize(
    ("repeats", "models", "groups"), [(1, 0.0, None), (1, 0.04, None), (2, 0.04, None), (1, 0.02, 25), (2, 0.02, 25)]
)
def test_intervals_cover_the_true_score(repeats: int, models: float, groups: int | None) -> None:
    """Of 250 worlds; ``benchmarks/fold_coverage.py`` has more of them. At least .93 is promised, less three errors."""
    rng, runs, covered = np.random.default_rng(7), 250, 0
    for _ in range(runs):
        arm, parts, gold, group = world(rng, repeats, models, groups)
        found = Arms({"a": arm}, gold, "accuracy", samples=300, judged=parts, groups=group).one("a")
        covered += found.low <= 0.7 <= found.high
    assert covered / runs >= least(runs, 0.93)
    assert covered / runs < 1


def test_mean_difference_is_that_of_the_metric_over_common_seeds():
    labels = np.array([1, 1, 0, 0])
    a = {0: [1, 1, 0, 0], 1: [1, 1, 0, 1], 2: [1, 1, 1, 1]}
    b = {1: [0, 1, 0, 1], 2: [1, 0, 1, 1], 3: [1, 1, 0, 0]}
    got = paired_difference(a, b, labels, "accuracy", samples=200, expected_seeds=[0, 1, 2, 3, 4])
    assert got.seeds == (1, 2)
    assert got.excluded == (0, 3, 4)
    assert got.values == pytest.approx((0.25, 0.25))
    assert got.mean == pytest.approx(0.25)
    assert got.low <= 0.25 <= got.high


def test_many_examples_give_the_t_interval_over_seeds():
    # Each seed is right on a fixed share of a very large set, so examples contribute nearly nothing.
    shares, n = [0.60, 0.64, 0.66, 0.70, 0.75], 20_000
    arm = {s: (np.arange(n) < share * n).astype(int) for s, share in enumerate(shares)}
    got = one_arm(arm, np.ones(n, int), "accuracy", samples=2000)
    low, high = seed_interval(shares)
    assert (got.low, got.high) == pytest.approx((low, high), abs=0.015)
    assert got.standard_error_seeds == pytest.approx(np.std(shares, ddof=1) / math.sqrt(5))


def test_equal_seeds_give_the_binomial_interval_over_examples():
    correct = (np.arange(400) < 300).astype(int)
    got = one_arm(dict.fromkeys(range(6), correct), np.ones(400, int), "accuracy", samples=4000)
    half = 1.96 * math.sqrt(0.75 * 0.25 / 400)
    assert (got.low, got.high) == pytest.approx((0.75 - half, 0.75 + half), abs=0.005)
    assert got.standard_error_examples == pytest.approx(half / 1.96, rel=0.05)
    assert got.seed_deviation == 0


def test_one_seed_and_no_seed():
    labels = np.ones(50, int)
    one = one_arm({3: (np.arange(50) < 40).astype(int)}, labels, "accuracy", samples=500)
    assert (one.n, one.mean) == (1, 0.8)
    assert one.low < 0.8 < one.high
    assert math.isnan(one.seed_deviation)
    none = paired_difference({0: labels}, {1: labels}, labels, "accuracy", samples=500)
    assert (none.n, none.excluded) == (0, (0, 1))
    assert math.isnan(none.mean)
    assert (none.seeds, none.confidence) == ((), 0.95)


def simulate(rng, seeds, n, *, seed_noise, example_noise, pair_noise, shift=0.0):
    """Two arms whose runs are right where difficulty + arm x example + seed + pair noise is positive."""
    difficulty = rng.normal(size=n) + 0.8

    def arm(shift):
        taste = example_noise * rng.normal(size=n)
        noise = seed_noise * rng.normal(size=(seeds, 1)) + pair_noise * rng.normal(size=(seeds, n))
        return {s: row.astype(int) for s, row in enumerate(difficulty + taste + noise + shift > 0)}

    return arm(shift), arm(0.0)


@pytest.mark.parametrize(
    "noise",
    [
        {"seed_noise": 0.4, "example_noise": 0.0, "pair_noise": 0.01},
        {"seed_noise": 0.0, "example_noise": 0.0, "pair_noise": 1.0},
        {"seed_noise": 0.15, "example_noise": 0.4, "pair_noise": 0.6},
    ],
    ids=["seeds", "pairs", "all"],
)
def test_null_keeps_its_error_rate_with_six_seeds(noise):
    rng = np.random.default_rng(7)
    labels, trials = np.ones(150, int), 300
    rejected = 0
    for _ in range(trials):
        a, b = simulate(rng, 6, 150, **noise)
        got = paired_difference(a, b, labels, "accuracy", samples=400)
        rejected += not got.low <= 0 <= got.high
    # 5 % of 300 is 15; above 28 has a chance below 1e-3. Below 2 the interval would be needlessly wide.
    assert 2 <= rejected <= 28


def test_interval_covers_a_true_difference_and_finds_a_large_one():
    noise = {"seed_noise": 0.15, "example_noise": 0.3, "pair_noise": 0.5, "shift": 0.5}
    rng = np.random.default_rng(3)
    # The effect of single seeds is averaged out.
    a, b = simulate(rng, 400, 4000, **noise)
    truth = float(np.mean([a[s].mean() - b[s].mean() for s in a]))
    covered = found = 0
    for _ in range(200):
        a, b = simulate(rng, 6, 200, **noise)
        got = paired_difference(a, b, np.ones(200, int), "accuracy", samples=400)
        covered += got.low <= truth <= got.high
        found += got.low > 0
    assert covered >= 180
    assert found >= 100


@pytest.mark.parametrize("shared", [0.2, 0.6])
def test_example_part_is_what_examples_contribute_to_all_seeds_alike(shared):
    """Two seeds of equal accuracy 1/2 whose correctness correlates by ``shared``, worked out by hand.

    The seed part is 0. The mean over seeds has variance (1 + r) / 2 per example, of which noise of
    single pairs makes (1 - r) / 2; the seed part would hold that already, so r is left: the
    deviation of the replicates is sqrt(r / 4 / n).
    """
    n = 2000
    same, other = round(n * (1 + shared) / 4), round(n * (1 - shared) / 4)
    cells = np.repeat([[1, 1], [0, 0], [1, 0], [0, 1]], [same, same, other, other], axis=0)
    got = one_arm({0: cells[:, 0], 1: cells[:, 1]}, np.ones(len(cells), int), "accuracy", samples=20_000)
    assert got.values == (0.5, 0.5)
    assert float(np.std(got.replicates)) == pytest.approx(math.sqrt(shared / 4 / n), rel=0.03)


def test_seed_interval_by_hand():
    low, high = seed_interval([1.0, 2.0, 3.0])
    assert (low, high) == pytest.approx((2 - 4.302653 / math.sqrt(3), 2 + 4.302653 / math.sqrt(3)))
    assert all(map(math.isnan, seed_interval([1.0])))


@pytest.mark.parametrize("kind", ["classification", "regression"])
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(2, 4), n=st.integers(3, 30))
def test_metrics_of_resamples(kind, seed, k, n):
    """Few rows: draws of one label alone, or of one row; values have ties where ``k`` is even."""
    rng, is_value = np.random.default_rng(seed), kind == "regression"
    labels, predictions = rng.integers(k, size=n), rng.integers(k, size=(3, n))
    if is_value:
        labels, predictions = (100 + 2 * (of + (k % 2) * rng.normal(size=of.shape)) for of in (labels, predictions))
    draws = np.vstack([rng.integers(n, size=(4, n)), np.zeros((1, n), dtype=int)])
    weights = np.stack([np.bincount(d, minlength=n) for d in draws]).astype(float)
    for name in names(kind):
        found = find(name).resampled(labels, predictions, weights, 1)
        wanted = [[find(name).score(labels[draw], row[draw], 1) for row in predictions] for draw in draws]
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 if is_value else 1e-12, err_msg=name)


def test_a_constant_row_has_no_correlation():
    labels, rows = np.arange(5.0), np.stack([np.full(5, 2.0), np.arange(5.0), 2 + 1e-9 * np.arange(5.0)])
    for name in ("pearson", "spearman"):
        assert find(name).resampled(labels, rows, np.ones((1, 5)), None) == pytest.approx(np.array([[0.0, 1.0, 0.0]]))


def test_weights_count_draws_and_depend_on_the_seed_only():
    first = example_weights(37, 300, 5)
    assert first.shape == (300, 37)
    assert set(first.sum(axis=1).tolist()) == {37}
    assert np.array_equal(first, example_weights(37, 300, 5))
    assert not np.array_equal(first, example_weights(37, 300, 6))
    assert first.var() == pytest.approx(36 / 37, rel=0.1)  # multinomial
    assert seed_weights(4, 50, 0).sum(axis=1) == pytest.approx(1.0)


def test_chunks_do_not_change_results(monkeypatch):
    rng = np.random.default_rng(1)
    labels, rows = rng.normal(size=40), rng.normal(size=(2, 40))
    _, whole = resampled_metric("spearman", labels, rows, samples=100, seed=0)
    monkeypatch.setattr("regft_core.statistics.bootstrap._CHUNK", 40 * 7)
    _, parts = resampled_metric("spearman", labels, rows, samples=100, seed=0)
    assert parts == pytest.approx(whole)
