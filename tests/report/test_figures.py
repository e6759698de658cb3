"""Figures are the same bytes every time, follow the page's colours and do not write over themselves."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np

from regft_core.report.costs import overrides
from regft_core.report.figures import block as figures
from regft_core.runs.records import EpochScore, EpochScores


def test_what_dvc_shows_stands_alone(built: Any) -> None:
    for block in built.report.blocks:
        for kind in ("leaderboard", "loss"):
            text = (built.root / "reports" / "plots" / kind / f"{block.name}.svg").read_text()
            ElementTree.fromstring(text)
            assert not re.findall(r"var\(|https?://(?!www\.w3\.org/2000/svg)|<script|#0[1-7]0[1-7]0[1-7]", text)
        text = (built.root / "reports" / "plots" / "leaderboard" / f"{block.name}.svg").read_text()
        assert all(row.method in text for row in block.rows)


def test_a_score_by_epoch_that_was_not_taken_is_left_out() -> None:
    def scores(seed: int) -> EpochScores:
        values = {1: 0.6 + 0.01 * seed, 2: None, 3: 0.8 + 0.01 * seed}
        rows = [EpochScore("finetune", "dev", 19 * n, float(n), value) for n, value in values.items()]
        return EpochScores(metric="accuracy", scores=rows)

    runs = [SimpleNamespace(seed=seed, epoch_scores=scores(seed)) for seed in range(6)]
    cell: Any = SimpleNamespace(finetune=SimpleNamespace(runs=runs))
    curves = figures.epochs(cell, "accuracy")["dev"]
    assert [list(epochs) for epochs, _ in curves] == [[1.0, 3.0]] * 6  # the second gave no number
    np.testing.assert_allclose(np.mean([values for _, values in curves], axis=0), [62.5, 82.5])
    assert figures.epochs(cell, "f1") == {}


def test_the_switch_of_scores_by_epoch_is_no_setting_that_an_arm_trains_under() -> None:
    """It is off where there is nothing to score, such as a constant answer."""
    shared = {"epochs": 3, "epoch_scores": True}
    assert overrides({"epochs": 3, "epoch_scores": False}, shared) == {}
    assert overrides({"epochs": 4, "epoch_scores": False}, shared) == {"epochs": (3, 4)}
