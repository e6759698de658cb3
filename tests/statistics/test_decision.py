"""Expected scores, what a choice is expected to lose, and a confidence threshold with a guaranteed accuracy."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from regft_core.statistics.confidence import Threshold, best_guarantee, effective, lower_bound, threshold_for
from regft_core.statistics.decision import Belief, beliefs, of_all_rows
from tests.statistics.test_coverage import least

POINT = 0.01


def resampled(observed: npt.NDArray[np.float64], error: float, samples: int = 400) -> npt.NDArray[np.float64]:
    """Resamples in which every run deviates alike, as rows that are hard for all do."""
    noise = error * np.random.default_rng(1).standard_normal((samples, 1, 1))
    return observed + noise


@pytest.mark.parametrize("shared", [0.0, 0.2])
def test_without_noise_of_its_own_a_method_is_expected_to_score_its_mean_and_the_best_is_certain(shared: float) -> None:
    """Rows that are hard for every method move all means, not the choice."""
    observed = np.repeat([[0.80], [0.85], [0.90]], 4, axis=1)
    found = beliefs(observed, resampled(observed, shared), point=POINT)
    assert [b.expected for b in found] == pytest.approx([0.80, 0.85, 0.90], abs=1e-6)
    assert [b.best for b in found] == [0.0, 0.0, 1.0]
    assert [b.loss for b in found] == pytest.approx([0.10, 0.05, 0.0], abs=1e-6)


def test_the_error_of_a_constant_answer_tells_nothing_of_the_others() -> None:
    observed = np.repeat([[0.80], [0.82], [0.10]], 4, axis=1)
    rows = np.random.default_rng(1).standard_normal((4000, 3, 1))
    sure, unsure = (
        beliefs(observed, observed + rows * [[0.02], [0.02], [error]], point=POINT, constant=[False, False, True])
        for error in (0.0, 0.2)
    )
    assert sure == unsure
    assert sure[0].high - sure[0].low == pytest.approx(2 * 1.96 * 0.02, rel=0.2)


def test_methods_thousands_of_points_apart_have_a_best_one() -> None:
    observed = np.array([[1.0, 1.1, 0.9], [1e6, 2e6, 3e6]])
    good, bad = beliefs(observed, np.tile(observed, (50, 1, 1)), point=1.0, higher_is_better=False)
    assert good.best == 1.0
    assert np.isfinite([good.expected, good.low, good.high, bad.expected, bad.loss]).all()


def test_equal_methods_are_expected_to_score_the_same() -> None:
    """Twenty methods whose means scatter as their seeds explain: the scatter between them is nearly all noise."""
    rng = np.random.default_rng(3)
    observed = 0.8 + 0.04 * rng.standard_normal((20, 4))
    found = beliefs(observed, resampled(observed, 0.0), point=POINT)
    means = observed.mean(axis=1)
    assert np.ptp([b.expected for b in found]) < 0.25 * np.ptp(means)
    assert max(b.expected for b in found) < means.max() - 0.015
    assert max(b.best for b in found) < 0.4


def test_a_method_whose_seeds_scatter_is_believed_less() -> None:
    steady = [0.80, 0.80, 0.80, 0.80]
    observed = np.array([steady, [0.83, 0.83, 0.83, 0.83], [0.74, 0.92, 0.75, 0.93], steady])
    found = beliefs(observed, resampled(observed, 0.0), point=POINT)
    assert observed[2].mean() > observed[1].mean()
    assert observed[2].mean() - found[2].expected > observed[1].mean() - found[1].expected


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 2**31), st.booleans())
def test_probabilities_add_up_losses_are_not_negative_and_the_sign_mirrors(
    k: int, n: int, seed: int, higher: bool
) -> None:
    rng = np.random.default_rng(seed)
    observed = rng.uniform(0.4, 0.9, (k, n))
    values = observed + rng.normal(0, 0.03, (200, k, n))
    found = beliefs(observed, values, point=POINT, higher_is_better=higher)
    assert sum(b.best for b in found) == pytest.approx(1)
    assert min(b.loss for b in found) == pytest.approx(0, abs=1e-12)
    mirrored = beliefs(-observed, -values, point=POINT, higher_is_better=not higher)
    assert [b.expected for b in mirrored] == pytest.approx([-b.expected for b in found])
    assert [b.loss for b in mirrored] == pytest.approx([b.loss for b in found])
    assert all(b.low <= b.expected <= b.high for b in [*found, *mirrored])


def test_a_group_of_bad_methods_takes_nothing_from_the_expected_score_of_good_ones() -> None:
    """Rows are hard for all alike: what a far method scores says nothing of that."""
    rng = np.random.default_rng(0)
    observed = np.repeat([[0.43], [0.54], [0.77], [0.763], [0.75]], 3, axis=1)
    values = observed + 0.05 * rng.standard_normal((400, 1, 1)) + 0.03 * rng.standard_normal((400, 5, 1))
    found = beliefs(observed, values, point=POINT)
    assert found[3].expected == pytest.approx(0.763, abs=0.02)


def test_where_seeds_scatter_little_a_worse_method_is_expected_to_lose_nearly_half_of_it() -> None:
    """Six methods, four seeds, 600 rows; seeds scatter by 1.2 points, and one method is 5 points below the others."""
    rng = np.random.default_rng(0)
    observed = np.array([0.775, 0.78, 0.774, 0.767, 0.766, 0.722])[:, None] + 0.012 * rng.standard_normal((6, 4))
    rows = 0.017 * rng.standard_normal((400, 1, 1)) + 0.01 * rng.standard_normal((400, 6, 1))
    found = beliefs(observed, observed + rows, point=POINT)
    lost = observed.mean(axis=1).max() - observed[5].mean()
    assert found[5].loss > 0.45 * lost
    assert found[5].best < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("differ", [0.0, 0.03])
def test_the_expected_score_allows_for_the_choice(differ: float) -> None:
    """Six methods, 200 rows, five seeds; ``benchmarks/statistics.md`` has grids of 2 to 34 methods."""
    rng, bias, raw, covered, worlds = np.random.default_rng(5), [], [], 0, 150
    counts = rng.multinomial(200, np.full(200, 1 / 200), 300) / 200
    for _ in range(worlds):
        true = 0.75 + rng.normal(0, differ, 6)
        skill = np.clip(true[:, None] + 0.04 * rng.standard_normal((6, 5)), 0.02, 0.98)
        right = (rng.random((6, 5, 200)) < skill[:, :, None]).astype(float)
        observed = right.mean(axis=2)
        held = beliefs(observed, np.einsum("bn,isn->bis", counts, right), point=POINT)
        pick = int(np.argmin([b.loss for b in held]))
        bias.append(held[pick].expected - true[pick])
        raw.append(observed.mean(axis=1)[pick] - true[pick])
        covered += held[pick].low <= true[pick] <= held[pick].high
    assert abs(np.mean(bias)) <= 0.01 < np.mean(raw)
    assert covered / worlds >= least(worlds, 0.93)


@pytest.mark.parametrize(
    ("best", "expected", "low", "high"), [(1.0, 0.61746, 0.5, 0.73492), (0.0, 0.57381, 0.44762, 0.7)]
)
def test_a_model_of_all_rows_is_better_than_those_of_folds(
    best: float, expected: float, low: float, high: float
) -> None:
    belief = Belief(0.6, 0.5, 0.7, best=0.5, loss=0.01)
    moved = of_all_rows(belief, 0.8, best)  # 0.4 (or 0.6 above 0) times 1 - 0.8**0.2 = 0.04365
    assert (moved.expected, moved.low, moved.high) == pytest.approx((expected, low, high), abs=1e-5)
    assert (moved.best, moved.loss) == (0.5, 0.01)
    assert of_all_rows(belief, 0.8, math.inf) == of_all_rows(belief, 1.0, best) == belief


# --------------------------------------------------------------------------------------------------------- abstention


@pytest.mark.parametrize(("right", "n"), [(59, 59), (45, 50), (1, 10)])
def test_the_bound_is_where_the_observation_becomes_that_unlikely(right: int, n: int) -> None:
    bound = lower_bound(right, n, 0.05)
    assert binom.sf(right - 1, n, bound) == pytest.approx(0.05)


def test_a_perfect_model_answers_everything_a_useless_one_nothing_and_equal_confidences_are_one() -> None:
    confidences = np.linspace(0.5, 1, 400)
    assert threshold_for(confidences, np.ones(400), 0.95) == Threshold(0.5, 1.0)
    assert threshold_for(confidences, np.arange(400) % 2, 0.95) is None
    assert threshold_for(np.repeat([1.0, 0.6], 200), np.repeat([1, 0], 200), 0.95) == Threshold(1.0, 0.5)


def test_the_guarantee_holds_as_often_as_it_says() -> None:
    """Over 400 draws of 200 rows the true accuracy above the threshold is below the promise in at most 5%."""
    rng = np.random.default_rng(3)
    broken = 0
    for _ in range(400):
        confidences = rng.uniform(0.5, 1, 200)
        found = threshold_for(confidences, rng.random(200) < confidences, 0.9, confidence=0.95)
        if found is not None:
            broken += (found.threshold + 1) / 2 < 0.9  # answers of confidence c are right with probability c
    assert broken / 400 <= 0.05


def test_what_can_be_guaranteed_is_what_passes() -> None:
    rng = np.random.default_rng(4)
    confidences = rng.uniform(0.5, 1, 150)
    right = rng.random(150) < confidences
    most = best_guarantee(confidences, right)
    assert threshold_for(confidences, right, most - 1e-9) is not None
    assert threshold_for(confidences, right, min(0.9999, most + 0.01)) is None


def test_rows_of_one_group_count_as_one_answer() -> None:
    """100 groups of 5 rows, all rows of a group right or wrong together: without the groups the promise is broken."""
    rng = np.random.default_rng(5)
    broken = {"rows": 0, "groups": 0}
    groups = np.repeat(np.arange(100), 5)
    for _ in range(300):
        confidences = np.repeat(rng.uniform(0.5, 1, 100), 5) + rng.uniform(0, 1e-9, 500)
        right = np.repeat(rng.random(100), 5) < confidences
        for name, of in (("rows", None), ("groups", groups)):
            found = threshold_for(confidences, right, 0.85, confidence=0.95, groups=of)
            broken[name] += found is not None and (found.threshold + 1) / 2 < 0.85
    assert broken["groups"] / 300 <= 0.05 < broken["rows"] / 300


def test_groups_of_one_row_change_nothing_and_one_group_is_one_answer() -> None:
    rng = np.random.default_rng(6)
    confidences = rng.uniform(0.5, 1, 200)
    right = rng.random(200) < confidences
    assert threshold_for(confidences, right, 0.8, groups=np.arange(200)) == threshold_for(confidences, right, 0.8)
    assert effective([7, 7, 7]) == 1.0
    assert effective([1, 1, 2]) == pytest.approx(9 / 5)
    assert threshold_for(confidences, np.ones(200), 0.9, groups=np.zeros(200)) is None
