"""Calibration against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from regft_core.evaluate.analyses import calibration
from tests.evaluate.conftest import FakeModel, judged

#: Confidences 0.6, 0.6, 0.8, 0.9 of which the first and the last two are right.
FOUR = [(0.4, 0.6), (0.4, 0.6), (0.2, 0.8), (0.9, 0.1)]
GOLD = [1, 0, 1, 0]


def test_errors_of_four_rows_by_hand(find: Any) -> None:
    found = find("calibration", judged(FOUR, GOLD), bins=2).scalars["dev"]
    # Equal width: all in (0.5, 1]: |2.9 / 4 - 3 / 4|. Equal mass: {0.6, 0.6} and {0.8, 0.9}.
    assert found["ece_width"] == pytest.approx(abs(2.9 - 3) / 4)
    assert found["ece_mass"] == pytest.approx((abs(1.2 - 1) + abs(1.7 - 2)) / 4)
    assert found["brier"] == pytest.approx((2 * 0.4**2 + 2 * 0.6**2 + 2 * 0.2**2 + 2 * 0.1**2) / 4)
    assert found["nll"] == pytest.approx(-np.log([0.6, 0.4, 0.8, 0.9]).mean())


def test_bins_of_equal_width_hold_their_upper_end_and_ties_share_a_bin_of_equal_mass() -> None:
    assert calibration.equal_width(np.array([0.0, 0.25, 0.2500001, 0.5, 1.0]), 4).tolist() == [0, 0, 1, 1, 3]
    ties = np.array([0.9, 0.5, 0.5, 0.5, 0.5, 0.6])
    which = calibration.equal_mass(ties, 3)
    assert len(set(which[1:5])) == 1
    order = np.random.default_rng(0).permutation(6)
    assert calibration.equal_mass(ties[order], 3).tolist() == which[order].tolist()
    spread = calibration.equal_mass(np.linspace(0.5, 1, 100), 10)
    assert np.bincount(spread).tolist() == [10] * 10


def test_merged_labels_count_together(find: Any) -> None:
    """Three own labels of which two are one label of the set: 0.5 + 0.2 for it, although 0.3 is the second largest."""
    merged = judged([(0.5, 0.3, 0.2)], [0], to_set=[0, 1, 0])
    assert merged.probabilities()[0].tolist() == pytest.approx([0.7, 0.3])
    assert find("calibration", merged).scalars["dev"]["nll"] == pytest.approx(-np.log(0.7))
    argmax_elsewhere = judged([(0.35, 0.4, 0.25)], [1], to_set=[0, 1, 0])
    assert argmax_elsewhere.predictions.tolist() == [1]
    assert argmax_elsewhere.confidences().tolist() == pytest.approx([0.4])


def test_the_diagram_is_of_all_bins(find: Any) -> None:
    table = find("calibration", judged(FOUR, GOLD), bins=2).tables["dev"]["reliability"]
    assert table.columns == ("probability", "examples", "confidence", "accuracy")
    assert table.rows[0] == ("0 to 0.5", 0, None, None)
    assert table.rows[1] == ("0.5 to 1", 4, pytest.approx(0.725), 0.75)
    assert (table.keys, table.weight) == (1, "examples")


def test_a_temperature_comes_from_the_held_out_share_alone(find: Any) -> None:
    rng = np.random.default_rng(3)
    sure = rng.uniform(0.01, 0.99, 5_000)
    gold = (rng.random(5_000) < sure).astype(int)
    boasting = np.stack([(1 - sure) ** 3, sure**3], axis=1)
    share, dev = judged(boasting, gold, name="held-out"), judged(FOUR, GOLD)
    found = find("calibration", dev, trained=FakeModel(share), temperature=True)
    assert found.scalars["run"]["temperature"] == pytest.approx(3, rel=0.1)
    assert found.scalars["run"]["temperature_rows"] == 5_000
    warm = np.asarray(FOUR) ** (1 / found.scalars["run"]["temperature"])
    warm /= warm.sum(axis=1, keepdims=True)
    assert found.scalars["dev"]["nll_scaled"] == pytest.approx(-np.log(warm[np.arange(4), GOLD]).mean())
    assert found.scalars["dev"]["nll"] == find("calibration", dev).scalars["dev"]["nll"]


def test_without_such_a_share_there_is_no_temperature_and_a_remark(find: Any) -> None:
    found = find("calibration", judged(FOUR, GOLD), trained=FakeModel(None, "all was seen"), temperature=True)
    assert found.remarks == ("no temperature was fitted: all was seen",)
    assert set(found.scalars) == {"dev"}
    assert not [name for name in found.scalars["dev"] if "scaled" in name]
