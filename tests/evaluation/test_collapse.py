"""What counts as collapsed, and what does not."""

from __future__ import annotations

import numpy as np
import pytest

from regft_core.evaluation.collapse import CORRELATION_THRESHOLD, detect


@pytest.mark.parametrize(
    ("labels", "predictions", "expected"),
    [
        ([0, 1, 1, 1], [1, 1, 1, 1], "constant"),  # 0.75, the majority class
        ([0, 1, 1, 1], [0, 0, 0, 0], "constant"),
        ([0, 1, 1, 1], [1, 0, 1, 1], "majority"),  # 0.5 < 0.75
        ([0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 0], "majority"),  # exactly the majority rate
        ([0, 1, 1, 1], [0, 1, 1, 1], None),
        ([1, 1, 1], [1, 1, 1], None),  # one gold label: right is not collapsed
        ([1, 1, 1], [0, 0, 0], "constant"),
        ([1, 1, 1], [0, 1, 1], None),
    ],
)
def test_classification(labels, predictions, expected):
    assert detect("classification", labels, predictions) == expected


def test_regression():
    rng = np.random.default_rng(0)
    labels = rng.normal(size=400)
    noise = rng.normal(size=400)
    noise -= labels * (noise @ (labels - labels.mean())) / (labels @ (labels - labels.mean()))
    assert abs(np.corrcoef(labels, noise)[0, 1]) < CORRELATION_THRESHOLD
    assert detect("regression", labels, np.full(400, 2.5)) == "constant"
    assert detect("regression", labels, 2.5 + 1e-8 * labels) == "constant"  # float32 rounding, not signal
    assert detect("regression", labels, noise) == "constant"
    assert detect("regression", labels, noise - labels) == "majority"  # worse than a constant
    assert detect("regression", labels, noise + labels) is None
    assert detect("regression", labels, 1e-3 * labels) is None  # small but informative
