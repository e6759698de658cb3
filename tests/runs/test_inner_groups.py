"""Rows of a phase: those of its key; every draw among them keeps the groups of a task together."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regft_core.data.examples import Example, hold_out, read_jsonl, write_jsonl
from regft_core.disk.files import write_json
from regft_core.runs.rows import Draw, PhaseRows, run_rows, split_rows
from regft_core.schema.method import Phase
from regft_core.schema.methods import DataConfig, RepeatConfig
from regft_core.schema.training import TrainingConfig
from regft_core.training.linear_solution import WORD_STRENGTHS, classify_linearly, regress_linearly, regress_words
from regft_core.training.logistic import Rows, folds_of

#: 60 rows of 20 groups of 1 to 5 rows.
GROUPS = [f"g{number}" for number, size in enumerate([1, 2, 3, 4, 5] * 4) for _ in range(size)]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    rows = [Example(str(n), f"text {n}", None, n % 2) for n in range(len(GROUPS))]
    write_jsonl(tmp_path / "train.jsonl", rows)
    write_json(tmp_path / "groups.json", {"train": {row.idx: group for row, group in zip(rows, GROUPS)}})
    return tmp_path


def data_of(dataset: Path, **options: Any) -> PhaseRows:
    described = {"kind": "classification", "labels": ["a", "b"]}
    return PhaseRows(described, dataset, (dataset / "train.jsonl",), **options)


def phase(repeat: RepeatConfig | None = None) -> Phase:
    training = TrainingConfig.model_construct(checkpoint="best_on_split", checkpoint_share=0.2)
    return Phase("finetune", DataConfig(split=0.75), "checkpoint", repeat, None, (), training, {})


def apart(one: list[int], other: list[int]) -> bool:
    """Whether no group has rows in both."""
    return not {GROUPS[row] for row in one} & {GROUPS[row] for row in other}


@given(
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=12), percent=st.integers(5, 90), seed=st.integers(0, 1000)
)
def test_what_is_set_aside_is_whole_groups_and_no_more_than_asked(sizes: list[int], percent: int, seed: int) -> None:
    units = [str(unit) for unit, size in enumerate(sizes) for _ in range(size)]
    count = percent * len(units) // 100
    aside = hold_out(units, count, Random(seed))
    rest = set(range(len(units))) - set(aside)
    assert aside
    assert rest
    assert not {units[row] for row in aside} & {units[row] for row in rest}
    assert len(aside) <= max(count, min(sizes))


def test_shares_that_a_phase_and_its_epochs_set_aside_keep_groups(dataset: Path) -> None:
    data = data_of(dataset)
    assert data.groups == GROUPS
    train, validation, judging = run_rows(phase(), None, data, seed=3)
    assert sorted([*train, *validation, *judging]) == list(range(60))
    assert apart(train, validation)
    assert apart(train, judging)
    assert 12 <= len(validation) <= 15
    assert 5 <= len(judging) <= 10


def test_members_of_a_phase_draw_other_groups(dataset: Path) -> None:
    repeat = RepeatConfig(times=3, merge="mean", vary=("split",))
    several = phase(repeat)
    draws = [run_rows(several, member, data_of(dataset), seed=0)[1] for member in range(3)]
    assert len({tuple(draw) for draw in draws}) == 3
    assert all(apart(draw, sorted(set(range(60)) - set(draw))) for draw in draws)


def test_a_trial_sees_no_row_of_a_group_that_judges_it(dataset: Path) -> None:
    own = {"draw": Draw(40, 0, "t", False)}
    data = data_of(dataset, **own)  # a phase of its own size: its rows are others than the cell's
    every = read_jsonl(dataset / "train.jsonl")
    held_out = [every[row] for row in split_rows(60, 0.8, 0, "tuning", 0, GROUPS)[1]][:1]
    left = data_of(dataset, **own, held_out=(held_out[0].idx,)).examples
    group = GROUPS[int(held_out[0].idx)]
    assert [row for row in data.examples if GROUPS[int(row.idx)] != group] == left
    assert len(left) < len(data.examples)


@pytest.mark.parametrize("strata", [None, [row % 2 for row in range(60)]])
def test_folds_of_a_fit_keep_groups_and_cover_the_rows(strata: list[int] | None) -> None:
    folds = folds_of(60, strata, GROUPS, 5, seed=1)
    assert sorted(row for _, left in folds for row in left.tolist()) == list(range(60))
    assert all(apart(train.tolist(), left.tolist()) for train, left in folds)


def test_folds_that_would_lack_a_class_are_none() -> None:
    assert folds_of(4, None, ["a"] * 4, 5, seed=0) is None
    assert folds_of(4, [0, 0, 1, 1], ["a", "b", "c", "c"], 5, seed=0) is None  # class 1 is one group


def grouped_features(seed: int) -> tuple[Any, Any]:
    """Features that tell the group and nothing of the label, which is the group's: they help within groups only."""
    random = np.random.default_rng(seed)
    names = list(dict.fromkeys(GROUPS))
    labels = random.integers(0, 2, len(names))
    features = np.eye(len(names))[[names.index(group) for group in GROUPS]]
    return features, np.array([labels[names.index(group)] for group in GROUPS])


def test_solved_heads_choose_their_penalty_by_whole_groups() -> None:
    features, labels = grouped_features(0)
    loose, strict = (classify_linearly(Rows(features, labels, 2, groups=groups)).strength for groups in (None, GROUPS))
    assert strict > 100 * loose
    apart, whole = (Rows(features, labels.astype(np.float64), groups=groups) for groups in (None, GROUPS))
    assert regress_linearly(whole).strength > 100 * regress_linearly(apart).strength
    assert regress_words(whole).strength == max(WORD_STRENGTHS)
    assert regress_words(apart).strength < max(WORD_STRENGTHS)


@pytest.mark.parametrize(("count", "share", "kept"), [(10, 0.75, 7), (24, 0.8, 19), (3, 0.5, 1), (5, 1.0, 5)])
def test_a_split_keeps_the_whole_rows_of_its_share(count: int, share: float, kept: int) -> None:
    """Rounded down, as it is documented: one row more would be one that judges no more."""
    train, validation = split_rows(count, share, 0, "finetune", 0)
    assert (len(train), len(validation)) == (kept, count - kept)
    assert sorted(train + validation) == list(range(count))
