"""Scores by epoch: every seed, their mean, the rows they were taken on, and whether an epoch was chosen by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from regft_core.report.costs import overrides
from regft_core.report.figures.block import _epochs
from regft_core.report.read_grid import BlockData, read_grid
from regft_core.runs.records import EpochScore, EpochScores

#: Scores of three epochs, for seed 0; every later seed has 0.01 more.
SCORES = (0.6, None, 0.8)


def rows(seed: int, taken_on: str = "dev") -> list[EpochScore]:
    return [
        EpochScore("finetune", taken_on, 19 * n, float(n), None if score is None else score + 0.01 * seed)
        for n, score in enumerate(SCORES, 1)
    ]


def scored(data: BlockData, arms: Mapping[str, tuple[str, tuple[str, ...]]]) -> BlockData:
    """``data`` with scores by epoch: arm -> its checkpoint rule, and the rows that its epochs were scored on."""
    cells = dict(data.cells)
    for name, (rule, taken) in arms.items():
        runs = [
            run.model_copy(update={"epoch_scores": EpochScores(metric="accuracy", scores=found)})
            for run in cells[name].finetune.runs
            for found in [[row for on in taken for row in rows(run.seed, on)]]
        ]
        training = cells[name].finetune.training | {"checkpoint": rule}
        finetune = cells[name].finetune.model_copy(update={"runs": runs, "training": training})
        cells[name] = replace(cells[name], finetune=finetune)
    return replace(data, cells=cells)


@pytest.fixture(scope="module")
def data(built: Any) -> BlockData:
    return read_grid(built.root, built.cells, built.seeds, ["weight_mixup"])[0]


def test_a_score_that_was_not_taken_is_left_out(data: BlockData) -> None:
    curves = _epochs(scored(data, {"vanilla": ("last", ("dev",))}).cells["vanilla"], "accuracy")["dev"]
    assert len(curves) == 6
    assert [list(epochs) for epochs, _ in curves] == [[1.0, 3.0]] * 6  # the second gave no number
    np.testing.assert_allclose(np.mean([scores for _, scores in curves], axis=0), [62.5, 82.5])
    assert _epochs(scored(data, {"vanilla": ("last", ("dev",))}).cells["vanilla"], "f1") == {}


def test_the_switch_is_no_setting_that_an_arm_trains_under() -> None:
    """It is off where there is nothing to score, such as a constant answer."""
    shared = {"epochs": 3, "epoch_scores": True}
    assert overrides({"epochs": 3, "epoch_scores": False}, shared) == {}
    assert overrides({"epochs": 4, "epoch_scores": False}, shared) == {"epochs": (3, 4)}
