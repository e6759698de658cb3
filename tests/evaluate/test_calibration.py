"""Calibration against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from regft_core.evaluate.analyses import calibration
from tests.evaluate.tiny_run import evaluated, judged

#: Confidences 0.6, 0.6, 0.8, 0.9 of which the first and the last two are right.
FOUR = [(0.4, 0.6), (0.4, 0.6), (0.2, 0.8), (0.9, 0.1)]
GOLD = [1, 0, 1, 0]


def test_errors_of_four_rows_by_hand() -> None:
    errors = evaluated("calibration", None, judged(FOUR, GOLD), bins=2).scalars["dev"]
    # Equal width: all in (0.5, 1]: |2.9 / 4 - 3 / 4|. Equal mass: {0.6, 0.6} and {0.8, 0.9}.
    assert errors["ece_width"] == pytest.approx(abs(2.9 - 3) / 4)
    assert errors["ece_mass"] == pytest.approx((abs(1.2 - 1) + abs(1.7 - 2)) / 4)
    assert errors["brier"] == pytest.approx((2 * 0.4**2 + 2 * 0.6**2 + 2 * 0.2**2 + 2 * 0.1**2) / 4)
    assert errors["nll"] == pytest.approx(-np.log([0.6, 0.4, 0.8, 0.9]).mean())


def test_bins_of_equal_width_hold_their_upper_end_and_ties_share_a_bin_of_equal_mass() -> None:
    assert calibration.equal_width(np.array([0.0, 0.25, 0.2500001, 0.5, 1.0]), 4).tolist() == [0, 0, 1, 1, 3]
    ties = np.array([0.9, 0.5, 0.5, 0.5, 0.5, 0.6])
    which = calibration.equal_mass(ties, 3)
    assert len(set(which[1:5])) == 1
    order = np.random.default_rng(0).permutation(6)
    assert calibration.equal_mass(ties[order], 3).tolist() == which[order].tolist()
    spread = calibration.equal_mass(np.linspace(0.5, 1, 100), 10)
    assert np.bincount(spread).tolist() == [10] * 10


def test_the_diagram_is_of_all_bins() -> None:
    table = evaluated("calibration", None, judged(FOUR, GOLD), bins=2).tables["dev"]["reliability"]
    assert table.columns == ("probability", "examples", "confidence", "accuracy")
    assert table.rows[0] == ("0 to 0.5", 0, None, None)
    assert table.rows[1] == ("0.5 to 1", 4, pytest.approx(0.725), 0.75)
    assert (table.keys, table.weight) == (1, "examples")
