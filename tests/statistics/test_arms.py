"""Resampling all arms at once changes no number."""

from __future__ import annotations

import numpy as np
import pytest

from regft_core.statistics.arms import Arms
from tests.statistics.single import one_arm, paired_difference


@pytest.mark.parametrize("metric", ["accuracy", "f1", "matthews"])
def test_equal_to_the_single_calls(metric: str) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=80)
    seeds = {"a": (0, 1, 2, 5), "b": (5, 2, 1), "c": ()}
    arms = {name: {s: np.where(rng.random(80) < 0.8, labels, 1 - labels) for s in own} for name, own in seeds.items()}
    settings = {
        "samples": 300,
        "confidence": 0.9,
        "rng_seed": 3,
        "positive_label_index": 1,
        "expected_seeds": [1, 2, 7],
    }
    together = Arms(arms, labels, metric, **settings)
    for name in arms:
        assert_same(together.one(name), one_arm(arms[name], labels, metric, **settings))
        for other in arms:
            apart = paired_difference(arms[name], arms[other], labels, metric, **settings)
            assert_same(together.difference(name, other), apart)


def assert_same(a: object, b: object) -> None:
    for key, value in vars(b).items():
        assert vars(a)[key] == pytest.approx(value, nan_ok=True), key
