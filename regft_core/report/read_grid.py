"""Read everything that the grid names from ``work/``; what the grid does not name is never opened.

DVC leaves outputs of removed methods, sizes and seeds in place, so the grid decides, not the
directory listing. Every missing or contradictory file is an error that names the stage to run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from regft_core.evaluate.ood import positive_of
from regft_core.runs.records import (
    EvaluationRecord,
    Finding,
    PreparedTask,
    SearchManifest,
    Subsample,
    TrainingManifest,
)
from regft_core.runs.work import CurvePoint, JudgedRows, Logged, Work, wrong
from regft_core.settings.grid import Cell
from regft_core.settings.papers.contamination import read_contamination, sentences

Array = npt.NDArray[Any]


def block_title(task: str, size: str) -> str:
    """A task at a size, for headings and sentences."""
    return f"{task} at full size" if size == "full" else f"{task} at {size} rows"


@dataclass(frozen=True)
class CellData:
    """One method on one task at one size; everything is of the grid's seeds."""

    method: str
    runs: tuple[EvaluationRecord, ...]
    #: seed -> set -> [n] predictions in the set's label space, of the runs that finished
    predictions: Mapping[int, Mapping[str, Array]]
    finetune: TrainingManifest
    search: SearchManifest | None
    #: None when the stage left no file.
    curves: tuple[CurvePoint, ...] | None
    diagnostics: tuple[Logged, ...]
    #: Evaluation beyond the scores -> its file.
    evaluations: Mapping[str, Finding]

    @property
    def trains_encoder(self) -> bool:
        """False for methods that leave the encoder as it is, such as a linear probe on its features."""
        return self.finetune.trains_encoder

    @property
    def constant(self) -> bool:
        """Whether it answers without reading the input: a line of reference."""
        return not self.finetune.reads_text


@dataclass(frozen=True)
class BlockData:
    """All methods on one task at one size."""

    task: str
    size: str
    described: PreparedTask
    #: With the grid's seeds.
    subsample: Subsample
    #: Content of ``work/lengths/<task>.json``: tokens of the rows of every set
    lengths: Mapping[str, Any]
    #: set -> [n] gold labels, shared by all runs
    gold: Mapping[str, Array]
    #: set whose seeds are judged on rows of their own (folds) -> seed -> rows of ``gold``
    judged: Mapping[str, Mapping[int, Array]]
    #: set with groups -> [n] index of each row's group
    groups: Mapping[str, Array]
    #: set -> index of the class that F1 counts (None without labels)
    positive: Mapping[str, int | None]
    cells: Mapping[str, CellData]
    #: What weakens the block because an encoder was trained on it or on one of its sets, in sentences
    contaminated: tuple[str, ...] = ()
    #: Methods of the grid that have no result here.
    absent: tuple[str, ...] = ()

    @property
    def modes(self) -> list[str]:
        """How the block's encoders read pairs: jointly, separately."""
        models = [cell.finetune.model for cell in self.cells.values()]
        return list(dict.fromkeys(model.pairs or "jointly" for model in models if model))

    @property
    def name(self) -> str:
        """``task-size``."""
        return f"{self.task}-{self.size}"


def read_grid(
    root: Path, cells: Iterable[Cell], seeds: Sequence[int], searching: Iterable[str] = ()
) -> list[BlockData]:
    """Return one block per (task, size), tasks and sizes in the order in which the grid first names them.

    ``searching`` names the methods with phases before fine-tuning.

    Raises:
        DataError: a file is missing, unreadable or contradicts another; the message names the stage.
    """
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in dict.fromkeys(cells):
        groups.setdefault((cell.task, str(cell.size)), []).append(cell)
    order = list(dict.fromkeys(task for task, _ in groups))
    named, contamination = set(searching), read_contamination(root)
    blocks = []
    for (task, size), own in sorted(groups.items(), key=lambda item: order.index(item[0][0])):
        block = _block(Work(root), task, size, own, seeds, named)
        manifests = [cell.finetune for cell in block.cells.values() if cell.finetune.reads_encoder]
        sets = [name for name in block.described.sets if name != "dev"]
        texts = [
            text
            for encoder in dict.fromkeys(one.model.name for one in manifests if one.model)
            for text in sentences(encoder, task, contamination.of(encoder, [task, *sets]), sets)
        ]
        blocks.append(replace(block, contaminated=tuple(texts)))
    return blocks


def _block(work: Work, task: str, size: str, cells: list[Cell], seeds: Sequence[int], named: set[str]) -> BlockData:
    described, lengths, subsample = work.task(task), work.lengths(task), work.subsample(task, size)
    if undrawn := [seed for seed in seeds if str(seed) not in subsample.seeds]:
        what = f"no training rows were drawn for seeds {undrawn} of the grid"
        raise wrong(work.subsample_file(task, size), what, "subsample", "rows-missing")
    drawn = {str(seed): subsample.seeds[str(seed)] for seed in seeds}
    rows = {name: JudgedRows(name == "dev" and described.folded) for name in described.sets}
    read = {cell.method: _cell(work, cell, seeds, cell.method in named, described, rows) for cell in cells}
    group_of, seen = work.groups(task), {name: one for name, one in rows.items() if len(one.gold)}
    groups = {name: one.groups(group_of.get(name, {})) for name, one in seen.items()}
    return BlockData(
        task,
        size,
        described,
        subsample.model_copy(update={"seeds": drawn}),
        lengths,
        gold={name: one.gold for name, one in seen.items()},
        judged={name: judged for name, one in seen.items() if (judged := one.judged) is not None},
        groups={name: indices for name, indices in groups.items() if indices is not None},
        positive={name: positive_of(described, name) for name in described.sets},
        cells=read,
    )


def _cell(
    work: Work,
    cell: Cell,
    seeds: Sequence[int],
    searches: bool,
    described: PreparedTask,
    rows: Mapping[str, JudgedRows],
) -> CellData:
    finetune, search = work.finetune(cell), work.search(cell) if searches else None
    records = {run.seed: run for run in work.evaluation(cell).runs}
    trained = {run.seed: run for run in finetune.runs}
    file, stage = work.result_file(cell), "evaluate"
    if missing := [seed for seed in seeds if seed not in records or seed not in trained]:
        raise wrong(file, f"seeds {missing} of the grid have not been run", stage, "run-missing")
    if stale := [seed for seed in seeds if records[seed].key != trained[seed].key]:
        what = f"the evaluation of seeds {stale} belongs to other runs than work/finetune"
        raise wrong(file, what, stage, "outdated-evaluation")
    predictions: dict[int, dict[str, Array]] = {}
    for record in (records[seed] for seed in seeds if records[seed].ok):
        if set(record.sets) != set(described.sets):
            what = f"seed {record.seed} was judged on {sorted(record.sets)}, but the task's sets are "
            raise wrong(file, what + str(sorted(described.sets)), stage, "sets-differ")
        for name in record.sets:
            found = work.predictions(cell, record.seed, name, described.kind)
            if not rows[name].fits(record.seed, found):
                what = f"its rows or gold labels differ from those of other runs on {name}, so runs cannot be paired"
                raise wrong(work.predictions_file(cell, record.seed, name), what, stage, "rows-differ")
            predictions.setdefault(record.seed, {})[name] = found.predicted
    stages = ("finetune", "search") if search is not None else ("finetune",)
    curves = [points for one in stages if (points := work.curves(one, cell, seeds)) is not None]
    findings = {
        name: finding.model_copy(
            update={"runs": sorted((r for r in finding.runs if r.seed in seeds), key=lambda r: seeds.index(r.seed))}
        )
        for name, finding in work.findings(cell).items()
    }
    return CellData(
        cell.method,
        tuple(records[seed] for seed in seeds),
        predictions,
        finetune.model_copy(update={"runs": [trained[seed] for seed in seeds]}),
        search,
        tuple(point for points in curves for point in points) if curves else None,
        tuple(one for stage in stages for one in work.logged(stage, cell, seeds)),
        findings,
    )
