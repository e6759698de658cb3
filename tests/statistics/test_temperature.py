"""One temperature, fitted by likelihood."""

from __future__ import annotations

import numpy as np
import pytest

from regft_core.statistics.temperature import fit_temperature


def test_the_temperature_that_the_labels_were_drawn_at_is_found() -> None:
    """Two logits that are three times too large: the likelihood of a logistic model, whose maximum is known."""
    rng = np.random.default_rng(0)
    margins = rng.normal(0, 2, 20_000)
    gold = (rng.random(20_000) < 1 / (1 + np.exp(-margins))).astype(int)
    logits = np.stack([np.zeros(20_000), 3 * margins], axis=1)

    def log_probabilities(temperature: float) -> np.ndarray:
        scaled = logits / temperature
        return scaled - np.logaddexp(scaled[:, :1], scaled[:, 1:])

    assert fit_temperature(log_probabilities, gold) == pytest.approx(3.0, rel=0.05)
