"""The power law through scores at several sizes."""

from __future__ import annotations

import numpy as np
import pytest

from regft_core.statistics.bootstrap import Estimate, two_level
from regft_core.statistics.learning_curve import expected_gains

SIZES = [50, 100, 200, 400]


def estimate(value: float, noise: float = 0.0, seed: int = 0) -> Estimate:
    """A mean of four seeds whose resampled scores deviate by ``noise``."""
    values = value + noise * np.random.default_rng(seed).standard_normal((500, 1))
    return two_level([0, 1, 2, 3], [], np.full(4, value), np.repeat(values, 4, axis=1), 0.95, 0)


def curve(rows: float, c: float = 0.9, b: float = 2.0, a: float = 0.6) -> float:
    return c - b * rows**-a


@pytest.mark.parametrize("sign", [1, -1])
def test_an_exact_power_law_is_continued(sign: int) -> None:
    """Also that of an error, whose gains go downwards."""
    (found,) = expected_gains(SIZES, [estimate(sign * curve(n)) for n in SIZES], [2], upwards=sign > 0)
    true = sign * (curve(800) - curve(400))
    assert (found.mean, found.low, found.high) == pytest.approx((true, true, true), rel=1e-6)


def test_scores_that_fall_with_rows_are_no_loss_ahead() -> None:
    """A fit with b < 0 would promise ever lower scores."""
    (found,) = expected_gains(SIZES, [estimate(0.9 - n / 1000) for n in SIZES], [2])
    assert found.mean == 0


def test_the_gain_is_within_what_the_metric_leaves() -> None:
    steep = [estimate(0.1 + 0.001 * n) for n in SIZES]
    (found,) = expected_gains(SIZES, steep, [16], room=0.5)
    assert found.high <= 0.5


def test_intervals_cover_what_the_next_size_brings() -> None:
    """Of 200 curves measured with noise, at least 90% have the true gain inside their 95% interval."""
    rng = np.random.default_rng(5)
    covered = 0
    for world in range(200):
        a, b = rng.uniform(0.3, 1.0), rng.uniform(0.5, 3.0)
        scores = [
            estimate(curve(n, b=b, a=a) + 0.01 * rng.standard_normal(), 0.01, 10 * world + i)
            for i, n in enumerate(SIZES)
        ]
        (found,) = expected_gains(SIZES, scores, [2])
        covered += found.low <= curve(800, b=b, a=a) - curve(400, b=b, a=a) <= found.high
    assert covered / 200 >= 0.90
