"""Resampling many arms at once gives the numbers of resampling each comparison."""

from __future__ import annotations

import numpy as np
import pytest

from regft_core.statistics.arms import Arms
from regft_core.statistics.bootstrap import one_arm, paired_difference


@pytest.mark.parametrize("metric", ["accuracy", "f1", "f1_macro", "matthews"])
def test_arms_agree_with_single_comparisons(metric):
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=60)
    arms = {
        name: {s: np.where(rng.random(60) < 0.7, labels, rng.integers(3, size=60)) for s in seeds}
        for name, seeds in (("a", [0, 1, 2]), ("b", [1, 2, 3]), ("c", []))
    }
    options = {"samples": 300, "rng_seed": 4, "positive_label_index": 1, "expected_seeds": [0, 1, 2, 3]}
    together = Arms(arms, labels, metric, **options)
    for name in "ab":
        single = one_arm(arms[name], labels, metric, **options)
        assert together.one(name).excluded == single.excluded
        assert (together.one(name).low, together.one(name).high) == pytest.approx((single.low, single.high))
    pair, single = together.difference("a", "b"), paired_difference(arms["a"], arms["b"], labels, metric, **options)
    assert (pair.seeds, pair.excluded) == (single.seeds, single.excluded) == ((1, 2), (0, 3))
    assert (pair.mean, pair.low, pair.high) == pytest.approx((single.mean, single.low, single.high))
    assert together.difference("a", "c").n == 0
