"""Read everything that the grid names from ``work/``, where DVC leaves outputs of removed methods, sizes and seeds.

Every missing or contradictory file is an error that names the stage to run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from regft_core.runs.records import Finding, Manifest, PreparedTask, RunRecord, SearchManifest, Subsample
from regft_core.runs.work import CURVES, LOGGED, Work, wrong
from regft_core.schema.method import Method
from regft_core.schema.params import ReportConfig
from regft_core.schema.training import TrainingConfig
from regft_core.settings.controls import Control
from regft_core.settings.project import Cell, LeftOut

Array = npt.NDArray[Any]
#: Set -> seed -> identifiers of the rows that its run was evaluated on, and their labels; seed 0 stands for all seeds
#: where they share their rows.
RowsOfRuns = dict[str, dict[int, tuple[list[str], Array]]]


@dataclass(frozen=True)
class Inputs:
    """A grid as a report sees it.

    Attributes:
        training: task -> the shared training protocol there, for the list of what methods override.
        looks: the file that remembers looks at earlier seeds.
        failed: cells of the grid (``method/task/size``) that have no result, with the reasons.
        mark: marks page, terminal and ``results.json`` as not the paper's experiment.
        left_out: declared out-of-distribution sets that are not evaluated on (``Project.left_out``).
    """

    root: Path
    cells: Sequence[Cell]
    seeds: Sequence[int]
    config: ReportConfig
    methods: Mapping[str, Method]
    controls: Sequence[Control] = ()
    training: Mapping[str, TrainingConfig] = field(default_factory=dict)
    looks: Path | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    mark: str = ""
    left_out: Mapping[str, Mapping[str, LeftOut]] = field(default_factory=dict)


@dataclass(frozen=True)
class CellData:
    method: str
    runs: tuple[RunRecord, ...]
    #: seed -> set -> [n] predictions in the set's label space, of the runs that finished
    predictions: Mapping[int, Mapping[str, Array]]
    finetune: Manifest
    search: SearchManifest | None
    #: A row for each step, and for each number that a method logged, of all phases (``work.COLUMNS``).
    curves: pd.DataFrame
    diagnostics: pd.DataFrame
    evaluations: Mapping[str, Finding]

    @property
    def finished(self) -> dict[int, str]:
        return {run.seed: run.key for run in self.runs if run.ok}

    @property
    def constant(self) -> bool:
        """Whether it answers without reading the input: a line of reference, about which nothing is claimed."""
        return not self.finetune.reads_text

    @property
    def variants(self) -> list[str]:
        return sorted({run.variant for run in self.runs if run.variant})

    @property
    def degraded(self) -> list[str]:
        return list(dict.fromkeys(text for run in self.runs for text in run.degraded))


@dataclass(frozen=True)
class SetRows:
    """The rows of one set, over all runs.

    Attributes:
        gold: [n] labels.
        judged: seed -> its rows of ``gold``; None where all seeds were evaluated on all.
        groups: [n] index of each row's group; None without groups.
    """

    gold: Array
    judged: Mapping[int, Array] | None
    groups: Array | None


@dataclass(frozen=True)
class BlockData:
    task: str
    size: str
    described: PreparedTask
    subsample: Subsample
    #: Content of ``work/lengths/<task>.json``.
    lengths: Mapping[str, Any]
    #: Of all sets, the validation set first; empty where no run finished.
    set_rows: Mapping[str, SetRows]
    cells: Mapping[str, CellData]
    #: Methods of the grid that have no result here.
    absent: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.task}-{self.size}"

    @property
    def title(self) -> str:
        return f"{self.task} at full size" if self.size == "full" else f"{self.task} at {self.size} rows"

    @property
    def primary(self) -> str:
        return self.described.primary

    @property
    def sets(self) -> dict[str, int]:
        """Set -> number of examples that runs were evaluated on, the validation set first; without any, of all."""
        every = {name: self.described.sets[name].n for name in ["dev", *self.described.sets]}
        return every | {name: len(rows.gold) for name, rows in self.set_rows.items()}


def read_grid(inputs: Inputs) -> list[BlockData]:
    """Return one block per (task, size), tasks in the order in which the grid first names them, most rows first.

    Raises:
        DataError: a file is missing, unreadable or contradicts another; the message names the stage.
    """
    blocks: dict[tuple[str, str], list[Cell]] = {}
    for cell in dict.fromkeys(inputs.cells):
        blocks.setdefault((cell.task, str(cell.size)), []).append(cell)
    order = list(dict.fromkeys(task for task, _ in blocks))
    read = [_block(inputs, task, size, cells) for (task, size), cells in blocks.items()]
    return sorted(read, key=lambda block: (order.index(block.task), -block.subsample.n))


def _block(inputs: Inputs, task: str, size: str, cells: list[Cell]) -> BlockData:
    work = Work(inputs.root)
    described, lengths, subsample = work.task(task), work.lengths(task), work.subsample(task, size)
    if undrawn := [seed for seed in inputs.seeds if str(seed) not in subsample.seeds]:
        what = f"no training rows were drawn for seeds {undrawn} of the grid"
        raise wrong(work.subsample_file(task, size), what, "subsample", "rows-missing")
    rows: RowsOfRuns = {name: {} for name in ["dev", *described.sets]}
    read = {cell.method: _cell(inputs, work, cell, described, rows) for cell in cells}
    group_of = work.groups(task)
    failed = [cell.split("/") for cell in inputs.failed]
    return BlockData(
        task,
        size,
        described,
        subsample.model_copy(update={"seeds": {str(seed): subsample.seeds[str(seed)] for seed in inputs.seeds}}),
        lengths,
        set_rows={
            name: _set_rows(of_runs, name == "dev" and described.folded, group_of.get(name))
            for name, of_runs in rows.items()
            if of_runs
        },
        cells=read,
        absent=tuple(method for method, *place in failed if place == [task, size]),
    )


def _set_rows(runs: Mapping[int, tuple[list[str], Array]], folded: bool, group_of: Mapping[str, str] | None) -> SetRows:
    labels = {row: label for ids, gold in runs.values() for row, label in zip(ids, gold, strict=True)}
    place = {row: number for number, row in enumerate(labels)}
    judged = {seed: np.array([place[row] for row in ids], dtype=np.int64) for seed, (ids, _) in runs.items()}
    groups = pd.factorize(np.array([group_of[row] for row in labels]))[0] if group_of else None
    return SetRows(np.array(list(labels.values())), judged if folded else None, groups)


def _cell(inputs: Inputs, work: Work, cell: Cell, described: PreparedTask, rows: RowsOfRuns) -> CellData:
    seeds, finetune = inputs.seeds, work.finetune(cell)
    search = work.search(cell) if inputs.methods[cell.method].earlier else None
    records = {run.seed: run for run in work.evaluation(cell).runs}
    trained = {run.seed: run for run in finetune.runs}
    keys = {seed: (records.get(seed), trained.get(seed)) for seed in seeds}
    if late := [seed for seed, (one, other) in keys.items() if one is None or other is None or one.key != other.key]:
        what = f"seeds {late} of the grid have no evaluation of the runs in work/finetune"
        raise wrong(work.result_file("evaluate", cell), what, "evaluate", "outdated-evaluation")
    predictions: dict[int, dict[str, Array]] = {}
    for record in (records[seed] for seed in seeds if records[seed].ok):
        for name in described.sets:
            predicted = work.predictions(cell, record.seed, name, described.kind)
            place = record.seed if name == "dev" and described.folded else 0
            ids, gold = rows[name].setdefault(place, (predicted.ids, predicted.gold))
            if ids != predicted.ids or not np.array_equal(gold, predicted.gold):
                what = f"its rows or gold labels differ from those of other runs on {name}, so runs cannot be paired"
                raise wrong(work.predictions_file(cell, record.seed, name), what, "evaluate", "rows-differ")
            predictions.setdefault(record.seed, {})[name] = predicted.predicted
    findings = {}
    for name, finding in work.findings(cell).items():
        runs = {run.seed: run for run in finding.runs}
        findings[name] = finding.model_copy(update={"runs": [runs[seed] for seed in seeds if seed in runs]})
    return CellData(
        cell.method,
        tuple(records[seed] for seed in seeds),
        predictions,
        finetune.model_copy(update={"runs": [trained[seed] for seed in seeds]}),
        search,
        work.steps(CURVES, cell, seeds),
        work.steps(LOGGED, cell, seeds),
        findings,
    )
