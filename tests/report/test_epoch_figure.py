"""Scores by epoch: every seed, their mean, the rows they were taken on, and whether an epoch was chosen by them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from regft_core.report.costs import overrides
from regft_core.report.figures.block import _epochs, epoch_curves, epoch_note
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


def test_without_scores_there_is_nothing(built: Any, data: BlockData) -> None:
    assert epoch_curves(built.report.blocks[0], data) == ""
    assert "Score by epoch" not in built.report.html


def test_one_panel_for_each_arm_that_was_scored(built: Any, data: BlockData) -> None:
    block = built.report.blocks[0]
    given = scored(data, {"vanilla": ("last", ("dev",)), "hype_n": ("best_on_split", ("held_out", "dev"))})
    svg = epoch_curves(block, given)
    assert svg == epoch_curves(block, given)
    assert re.search(r">\s*vanilla\s*<", svg)
    assert re.search(r">\s*hype_n\s*<", svg)
    assert "r_drop" not in svg
    assert "set aside" in svg  # the legend tells the two apart
    # Six seeds and their mean of vanilla, twice of hype_n, whose ticks and frames are no lines of that width.
    assert len(re.findall(r"stroke-width: 0\.7[^0-9]", svg)) == 3 * 6
    assert len(re.findall(r"stroke-width: 1\.4[^0-9]", svg)) >= 3


def test_a_score_that_was_not_taken_is_left_out(data: BlockData) -> None:
    curves = _epochs(scored(data, {"vanilla": ("last", ("dev",))}).cells["vanilla"], "accuracy")["dev"]
    assert len(curves) == 6
    assert [list(epochs) for epochs, _ in curves] == [[1.0, 3.0]] * 6  # the second gave no number
    np.testing.assert_allclose(np.mean([scores for _, scores in curves], axis=0), [62.5, 82.5])
    assert _epochs(scored(data, {"vanilla": ("last", ("dev",))}).cells["vanilla"], "f1") == {}


def test_it_is_said_what_the_scores_were_for(built: Any, data: BlockData) -> None:
    block = built.report.blocks[0]
    looked = epoch_note(block, scored(data, {"vanilla": ("last", ("dev",))}))
    assert "shown only: no epoch was chosen by them" in looked
    assert "chose the epoch of" not in looked
    rules = {
        "vanilla": ("last", ("dev",)),
        "hype_n": ("best_on_dev_as_published", ("dev",)),
        "weight_mixup": ("best_on_split", ("held_out",)),
    }
    every = epoch_note(block, scored(data, rules))
    assert "on the validation set of vanilla are shown only" in every
    assert "The validation set chose the epoch of hype_n, as published." in every
    assert "training rows set aside, which chose the epoch of weight_mixup" in every


def test_the_switch_is_no_setting_that_an_arm_trains_under() -> None:
    """It is off where there is nothing to score, such as a constant answer."""
    shared = {"epochs": 3, "epoch_scores": True}
    assert overrides({"epochs": 3, "epoch_scores": False}, shared) == {}
    assert overrides({"epochs": 4, "epoch_scores": False}, shared) == {"epochs": (3, 4)}
