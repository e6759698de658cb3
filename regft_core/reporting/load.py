"""Read everything that the grid names from ``work/``; what the grid does not name is never opened.

DVC leaves outputs of removed methods, sizes and seeds in place, so the grid decides, not the
directory listing. Every missing or contradictory file is an error that names the stage to run.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core.config.contamination import Contamination, read_contamination, sentences
from regft_core.config.grid import Cell
from regft_core.errors import DataError, StoreError
from regft_core.evaluation import ood
from regft_core.io import read_json

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Run:
    """One seed of a cell, as evaluated."""

    seed: int
    ok: bool
    error: str | None
    key: str
    variant: str | None
    degraded: tuple[str, ...]
    #: set -> None, "constant" or "majority"
    collapsed: Mapping[str, str | None]
    #: set -> {"n", "metrics", "majority", "warning"}
    sets: Mapping[str, Mapping[str, Any]]
    cost: Mapping[str, Any]
    #: set -> [n] predictions in the set's label space
    predictions: Mapping[str, Array]
    #: phase -> where it ran, as recorded; empty for records that say nothing
    environments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class CurvePoint:
    """One optimiser step of one run."""

    seed: int
    phase: str
    step: int
    loss: float | None
    learning_rate: float | None
    gradient_norm: float | None


@dataclass(frozen=True)
class CellData:
    """One method on one task at one size."""

    method: str
    runs: tuple[Run, ...]
    finetune: Mapping[str, Any]
    search: Mapping[str, Any] | None
    #: None when the stage left no file.
    curves: tuple[CurvePoint, ...] | None
    #: (seed, phase, step, name, value) as the method logged them
    diagnostics: tuple[tuple[int, str, int, str, float], ...]
    #: Evaluation beyond the scores -> its file, with the runs of the grid's seeds.
    evaluations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def trains_encoder(self) -> bool:
        """False for arms that leave the encoder as it is, such as a linear probe on its features."""
        return bool(self.finetune.get("trains_encoder", True))

    @property
    def reads_encoder(self) -> bool:
        """False for arms whose answers owe nothing to the encoder: a bag of words, a constant."""
        return bool(self.finetune.get("reads_encoder", True))

    @property
    def encoder(self) -> str | None:
        """Hash of the content of the encoder that the runs started from; None for arms without one."""
        return (self.finetune.get("model") or {}).get("content_sha256")


@dataclass(frozen=True)
class BlockData:
    """All methods on one task at one size."""

    task: str
    size: str
    #: ``task.json``
    described: Mapping[str, Any]
    #: ``manifest.json`` of the subsamples
    subsample: Mapping[str, Any]
    #: Content of ``work/lengths/<task>.json``: tokens of the rows of every set
    lengths: Mapping[str, Any]
    #: set -> [n] gold labels, shared by all runs
    gold: Mapping[str, Array]
    #: set -> index of the class that F1 counts (None without labels)
    positive: Mapping[str, int | None]
    cells: Mapping[str, CellData]
    #: What weakens the block because an encoder was trained on it or on one of its sets, in sentences
    contaminated: tuple[str, ...] = ()

    @property
    def modes(self) -> list[str]:
        """How the block's encoders read pairs: jointly, separately."""
        models = [cell.finetune.get("model") for cell in self.cells.values()]
        return list(dict.fromkeys(str(model.get("pairs") or "jointly") for model in models if model))

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
        _block(root / "work", task, size, found, seeds, named)
        for (task, size), found in sorted(groups.items(), key=lambda item: order[item[0][0]])
    ]
    return [replace(block, contaminated=_contaminated(block, seen)) for block in blocks]


def _contaminated(block: BlockData, seen: Contamination) -> tuple[str, ...]:
    reading = [cell for cell in block.cells.values() if cell.reads_encoder and cell.finetune.get("model")]
    sets = [name for name in block.described["sets"] if name != "dev"]
    found = []
    for encoder in dict.fromkeys(str(cell.finetune["model"]["name"]) for cell in reading):
        found += sentences(encoder, block.task, seen.of(encoder, [block.task, *sets]), sets)
    return tuple(found)


def _json(path: Path, stage: str) -> Any:
    try:
        return read_json(path)
    except StoreError as error:
        raise DataError(
            error.code, f"{error.text}\n    -> run `dvc repro` (stage {stage}), then the report again"
        ) from error


def _block(work: Path, task: str, size: str, found: list[Cell], seeds: Sequence[int], named: set[str]) -> BlockData:
    described = _json(work / "datasets" / task / "task.json", f"dataset@{task}")
    lengths = _json(work / "lengths" / f"{task}.json", f"lengths@{task}")
    drawn = work / "subsamples" / task / size / "manifest.json"
    subsample = _json(drawn, f"subsample@{task}")
    undrawn = [seed for seed in seeds if str(seed) not in subsample["seeds"]]
    if undrawn:
        raise DataError(
            "rows-missing",
            f"{drawn}: no training rows were drawn for seeds {undrawn} of the grid"
            f"\n    -> run `dvc repro` (stage subsample@{task}), then the report again",
        )
    subsample |= {"seeds": {str(seed): subsample["seeds"][str(seed)] for seed in seeds}}
    gold: dict[str, tuple[list[str], Array]] = {}
    cells = {
        cell.method: _cell(work, cell, seeds, cell.method in named, described, gold) for cell in dict.fromkeys(found)
    }
    return BlockData(
        task,
        size,
        described,
        subsample,
        lengths,
        {name: labels for name, (_, labels) in gold.items()},
        {name: positive_index(described, name) for name in described["sets"]},
        cells,
    )


def positive_index(described: Mapping[str, Any], name: str) -> int | None:
    """Index, among the set's labels, of what the task's positive label counts as."""
    own, declared = described["labels"] or [], described["sets"][name]
    to_set = ood.label_indices(own, declared["labels"] or own, declared["label_map"], name)
    return ood.positive_index(own, described["positive_label"], to_set)


def _cell(
    work: Path,
    cell: Cell,
    seeds: Sequence[int],
    searches: bool,
    described: Mapping[str, Any],
    gold: dict[str, tuple[list[str], Array]],
) -> CellData:
    place, name = cell.directory, f"{cell.method}-{cell.task}"
    evaluated = work / "evaluate" / place
    result = _json(evaluated / "result.json", f"evaluate@{name}")
    finetune = _json(work / "finetune" / place / "manifest.json", f"finetune@{name}")
    search = _json(work / "search" / place / "manifest.json", f"search@{name}") if searches else None
    records = {run["seed"]: run for run in result["runs"]}
    trained = {run["seed"]: run for run in finetune["runs"]}
    missing = [seed for seed in seeds if seed not in records or seed not in trained]
    if missing:
        raise DataError(
            "run-missing",
            f"{evaluated / 'result.json'}: seeds {missing} of the grid have not been run"
            f"\n    -> run `dvc repro` (stage evaluate@{name}), then the report again",
        )
    stale = [seed for seed in seeds if records[seed]["key"] != trained[seed]["key"]]
    if stale:
        raise DataError(
            "outdated-evaluation",
            f"{evaluated / 'result.json'}: the evaluation of seeds {stale} belongs to other runs than work/finetune"
            f"\n    -> run `dvc repro` (stage evaluate@{name}), then the report again",
        )
    finetune |= {"runs": [trained[seed] for seed in seeds]}
    parts = {"finetune": finetune, "search": search} if search else {"finetune": finetune}
    runs = tuple(
        replace(_run(evaluated, records[seed], described, gold, name), environments=_environments(parts, seed))
        for seed in seeds
    )
    phases = [work / "finetune" / place] + ([work / "search" / place] if searches else [])
    kept = set(seeds)
    curve_files = [folder / "curves.csv" for folder in phases if (folder / "curves.csv").is_file()]
    curves = tuple(_point(row, path) for path in curve_files for row in _rows(path) if int(row["seed"]) in kept)
    diagnostics = tuple(
        (int(row["seed"]), row["phase"], int(row["step"]), row["name"], float(row["value"]))
        for folder in phases
        if (folder / "method_metrics.csv").is_file()
        for row in _rows(folder / "method_metrics.csv")
        if int(row["seed"]) in kept
    )
    found = _evaluations(evaluated, seeds, name)
    return CellData(cell.method, runs, finetune, search, curves if curve_files else None, diagnostics, found)


def _evaluations(folder: Path, seeds: Sequence[int], name: str) -> dict[str, Mapping[str, Any]]:
    """What the evaluate stage wrote about each evaluation that is switched on; it writes the folder as a whole."""
    found = {}
    for path in sorted((folder / "evaluations").glob("*.json")):
        content = _json(path, f"evaluate@{name}")
        records = {run["seed"]: run for run in content["runs"]}
        found[path.stem] = content | {"runs": [records[seed] for seed in seeds if seed in records]}
    return found


def _environments(manifests: Mapping[str, Mapping[str, Any]], seed: int) -> dict[str, Mapping[str, Any]]:
    """phase -> where the run of ``seed`` was made, for the phases that it went through."""
    return {
        phase: run.get("environment") or {}
        for phase, manifest in manifests.items()
        for run in manifest["runs"]
        if run["seed"] == seed
    }


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            "damaged-output", f"{path}: cannot be read as CSV: {error}; run the stage that writes it again"
        ) from error


def _point(row: dict[str, str], path: Path) -> CurvePoint:
    try:
        values = [float(row[name]) if row[name] else None for name in ("loss", "learning_rate", "gradient_norm")]
        return CurvePoint(int(row["seed"]), row["phase"], int(float(row["step"])), *values)
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(
            "damaged-output", f"{path}: not a curve ({error}); run the stage that writes it again"
        ) from error


def _run(
    folder: Path,
    record: Mapping[str, Any],
    described: Mapping[str, Any],
    gold: dict[str, tuple[list[str], Array]],
    name: str,
) -> Run:
    ok = record["status"] == "ok"
    if ok and set(record["sets"]) != set(described["sets"]):
        raise DataError(
            "sets-differ",
            f"{folder / 'result.json'}: seed {record['seed']} was judged on {sorted(record['sets'])}, but the task's "
            f"sets are {sorted(described['sets'])}\n    -> run `dvc repro` (stage evaluate@{name})",
        )
    predictions = {}
    for set_name in record["sets"] if ok else ():
        path = folder / "predictions" / f"seed-{record['seed']}" / f"{set_name}.jsonl"
        ids, labels, predicted = read_predictions(path, name)
        known = gold.setdefault(set_name, (ids, labels))
        if known[0] != ids or not np.array_equal(known[1], labels):
            raise DataError(
                "rows-differ",
                f"{path}: its examples or gold labels differ from those of other runs on {set_name}, so runs cannot "
                f"be paired\n    -> run `dvc repro` (stage evaluate@{name})",
            )
        predictions[set_name] = predicted
    return Run(
        seed=record["seed"],
        ok=ok,
        error=record["error"],
        key=record["key"],
        variant=record.get("variant"),
        degraded=tuple(record.get("degraded") or ()),
        collapsed=record.get("collapsed") or {},
        sets=record["sets"] if ok else {},
        cost=record.get("cost") or {},
        predictions=predictions,
    )


def read_predictions(path: Path, name: str) -> tuple[list[str], Array, Array]:
    """Return (ids, gold labels [n], predictions [n]) as the evaluate stage of ``name`` (method-task) wrote them."""
    try:
        # One parse of the whole file: a report reads millions of such lines.
        rows = json.loads("[" + ",".join(path.read_text(encoding="utf-8").split("\n")[:-1]) + "]")
        ids = [row["idx"] for row in rows]
        labels = np.array([row["label"] for row in rows])
        predicted = np.array([row["prediction"] for row in rows])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            "damaged-output",
            f"{path}: cannot be read as predictions ({type(error).__name__}: {error})"
            f"\n    -> run `dvc repro` (stage evaluate@{name}), then the report again",
        ) from error
    return ids, labels, predicted
