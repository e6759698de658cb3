"""Read everything that the grid names from ``work/``; what the grid does not name is never opened.

DVC leaves outputs of removed methods, sizes and seeds in place, so the grid decides, not the
directory listing. Every missing or contradictory file is an error that names the stage to run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from regft_core.evaluate.ood import positive_of
from regft_core.runs.records import (
    Cost,
    EvaluationRecord,
    Finding,
    PreparedTask,
    SearchManifest,
    SetScores,
    Subsample,
    TrainingManifest,
)
from regft_core.runs.work import CurvePoint, JudgedRows, Logged, Work, wrong
from regft_core.settings.grid import Cell
from regft_core.settings.papers.contamination import Contamination, read_contamination, sentences

Array = npt.NDArray[Any]


def block_title(task: str, size: str) -> str:
    """A task at a size, for headings and sentences."""
    return f"{task} at full size" if size == "full" else f"{task} at {size} rows"


@dataclass(frozen=True)
class Run:
    """One seed of a cell, as evaluated."""

    seed: int
    ok: bool
    error: str | None
    key: str
    variant: str | None
    degraded: tuple[str, ...]
    #: None, "constant" or "majority": no better than a constant answer on the validation set.
    collapsed: str | None
    sets: Mapping[str, SetScores]
    cost: Cost
    #: set -> [n] predictions in the set's label space
    predictions: Mapping[str, Array]
    #: phase -> where it ran, as recorded; empty for records that say nothing
    environments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class CellData:
    """One method on one task at one size."""

    method: str
    runs: tuple[Run, ...]
    #: Both with the runs of the grid's seeds.
    finetune: TrainingManifest
    search: SearchManifest | None
    #: None when the stage left no file.
    curves: tuple[CurvePoint, ...] | None
    diagnostics: tuple[Logged, ...]
    #: Evaluation beyond the scores -> its file, with the runs of the grid's seeds.
    evaluations: Mapping[str, Finding] = field(default_factory=dict)

    @property
    def trains_encoder(self) -> bool:
        """False for methods that leave the encoder as it is, such as a linear probe on its features."""
        return self.finetune.trains_encoder

    @property
    def reads_encoder(self) -> bool:
        """False for methods whose answers owe nothing to the encoder: a bag of words, a constant."""
        return self.finetune.reads_encoder

    @property
    def constant(self) -> bool:
        """Whether it answers without reading the input: a line of reference."""
        return not self.finetune.reads_text

    @property
    def encoder(self) -> str | None:
        """Hash of the content of the encoder that the runs started from; None for methods without one."""
        return self.finetune.model.content_sha256 if self.finetune.model else None


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
    groups: dict[tuple[str, str], list[Cell]] = defaultdict(list)
    for cell in cells:
        groups[cell.task, str(cell.size)].append(cell)
    order = {task: i for i, task in enumerate(dict.fromkeys(task for task, _ in groups))}
    named, seen = set(searching), read_contamination(root)
    blocks = [
        _block(Work(root), task, size, found, seeds, named)
        for (task, size), found in sorted(groups.items(), key=lambda item: order[item[0][0]])
    ]
    return [replace(block, contaminated=_contaminated(block, seen)) for block in blocks]


def _contaminated(block: BlockData, seen: Contamination) -> tuple[str, ...]:
    reading = [cell.finetune.model.name for cell in block.cells.values() if cell.reads_encoder and cell.finetune.model]
    sets = [name for name in block.described.sets if name != "dev"]
    found = []
    for encoder in dict.fromkeys(reading):
        found += sentences(encoder, block.task, seen.of(encoder, [block.task, *sets]), sets)
    return tuple(found)


def _block(work: Work, task: str, size: str, found: list[Cell], seeds: Sequence[int], named: set[str]) -> BlockData:
    described, lengths, subsample = work.task(task), work.lengths(task), work.subsample(task, size)
    undrawn = [seed for seed in seeds if str(seed) not in subsample.seeds]
    if undrawn:
        what = f"no training rows were drawn for seeds {undrawn} of the grid"
        raise wrong(work.subsample_file(task, size), what, "subsample", "rows-missing")
    drawn = {str(seed): subsample.seeds[str(seed)] for seed in seeds}
    rows = {name: JudgedRows(name == "dev" and described.folded) for name in described.sets}
    cells = {
        cell.method: _cell(work, cell, seeds, cell.method in named, described, rows) for cell in dict.fromkeys(found)
    }
    group_of = work.groups(task)
    seen = {name: one for name, one in rows.items() if len(one.gold)}
    judged = {name: one.judged for name, one in seen.items()}
    groups = {name: one.groups(group_of.get(name, {})) for name, one in seen.items()}
    return BlockData(
        task,
        size,
        described,
        subsample.model_copy(update={"seeds": drawn}),
        lengths,
        {name: one.gold for name, one in seen.items()},
        {name: places for name, places in judged.items() if places is not None},
        {name: found for name, found in groups.items() if found is not None},
        {name: positive_of(described, name) for name in described.sets},
        cells,
    )


def _cell(
    work: Work,
    cell: Cell,
    seeds: Sequence[int],
    searches: bool,
    described: PreparedTask,
    rows: Mapping[str, JudgedRows],
) -> CellData:
    result, finetune = work.evaluation(cell), work.finetune(cell)
    search = work.search(cell) if searches else None
    records = {run.seed: run for run in result.runs}
    trained = {run.seed: run for run in finetune.runs}
    file, stage = work.result_file(cell), "evaluate"
    if missing := [seed for seed in seeds if seed not in records or seed not in trained]:
        raise wrong(file, f"seeds {missing} of the grid have not been run", stage, "run-missing")
    if stale := [seed for seed in seeds if records[seed].key != trained[seed].key]:
        raise wrong(
            file,
            f"the evaluation of seeds {stale} belongs to other runs than work/finetune",
            stage,
            "outdated-evaluation",
        )
    for record in (records[seed] for seed in seeds):
        if record.ok and set(record.sets) != set(described.sets):
            what = f"seed {record.seed} was judged on {sorted(record.sets)}, but the task's sets are "
            raise wrong(file, what + str(sorted(described.sets)), stage, "sets-differ")
    finetune = finetune.model_copy(update={"runs": [trained[seed] for seed in seeds]})
    parts: dict[str, TrainingManifest | SearchManifest] = {"finetune": finetune}
    if search is not None:
        parts["search"] = search
    environments = {
        seed: {name: one.environment or {} for name, part in parts.items() for one in part.runs if one.seed == seed}
        for seed in seeds
    }
    curves = [points for name in parts if (points := work.curves(name, cell, seeds)) is not None]
    return CellData(
        cell.method,
        tuple(_run(work, cell, records[seed], described.kind, rows, environments[seed]) for seed in seeds),
        finetune,
        search,
        tuple(point for points in curves for point in points) if curves else None,
        tuple(one for name in parts for one in work.logged(name, cell, seeds)),
        {name: _of_seeds(found, seeds) for name, found in work.findings(cell).items()},
    )


def _of_seeds(found: Finding, seeds: Sequence[int]) -> Finding:
    records = {run.seed: run for run in found.runs}
    return found.model_copy(update={"runs": [records[seed] for seed in seeds if seed in records]})


def _run(
    work: Work,
    cell: Cell,
    record: EvaluationRecord,
    kind: str,
    rows: Mapping[str, JudgedRows],
    environments: Mapping[str, Mapping[str, Any]],
) -> Run:
    predictions = {}
    for name in record.sets if record.ok else ():
        found = work.predictions(cell, record.seed, name, kind)
        if not rows[name].fits(record.seed, found):
            what = f"its examples or gold labels differ from those of other runs on {name}, so runs cannot be paired"
            raise wrong(work.predictions_file(cell, record.seed, name), what, "evaluate", "rows-differ")
        predictions[name] = found.predicted
    return Run(
        seed=record.seed,
        ok=record.ok,
        error=record.error,
        key=record.key,
        variant=record.variant,
        degraded=tuple(record.degraded),
        collapsed=record.collapsed,
        sets=record.sets if record.ok else {},
        cost=record.cost,
        predictions=predictions,
        environments=environments,
    )
