"""Where everything in ``work/`` lies, and its reading: only what is asked for is opened."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from regft_core.errors import DataError, StoreError
from regft_core.io.reading import read_json, validation_text
from regft_core.kinds import find
from regft_core.lazy import np
from regft_core.runs.results.logs import Log
from regft_core.runs.results.records import (
    EvaluationResult,
    Finding,
    PreparedTask,
    Record,
    SearchManifest,
    Subsample,
    TrainingManifest,
)
from regft_core.settings.grid import Cell

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Predictions:
    """The predictions of one run on one set, by row: identifiers, gold labels [n], predictions [n].

    ``scored``: of each row the probabilities of the set's labels, or the value.
    """

    ids: list[str]
    gold: Any
    predicted: Any
    scored: list[list[float]]


@dataclass(frozen=True)
class Work:
    """The outputs of a project's stages.

    All methods that read raise DataError where a file is missing or is not what it should be; the message has the
    file, the key in it and the stage to run.
    """

    root: Path

    def folder(self, stage: str, cell: Cell) -> Path:
        """``work/<stage>/<method>/<task>/<size>``."""
        return self.root / "work" / stage / cell.directory

    def manifest_file(self, stage: str, cell: Cell) -> Path:
        """The file of ``search`` and ``finetune``; it is there when the cell was run."""
        return self.folder(stage, cell) / "manifest.json"

    def result_file(self, cell: Cell) -> Path:
        """The file of ``evaluation``; it is there when the cell was evaluated."""
        return self.folder("evaluate", cell) / "result.json"

    def search(self, cell: Cell) -> SearchManifest:
        """What the phases before fine-tuning left."""
        return read(self.manifest_file("search", cell), SearchManifest, "search")

    def finetune(self, cell: Cell) -> TrainingManifest:
        """What fine-tuning left."""
        return read(self.manifest_file("finetune", cell), TrainingManifest, "finetune")

    def evaluation(self, cell: Cell) -> EvaluationResult:
        """The scores."""
        return read(self.result_file(cell), EvaluationResult, "evaluate")

    def findings(self, cell: Cell) -> dict[str, Finding]:
        """Name -> what each evaluation beyond the scores found; the stage writes their folder as a whole."""
        files = sorted((self.folder("evaluate", cell) / "evaluations").glob("*.json"))
        return {file.stem: read(file, Finding, "evaluate") for file in files}

    def predictions_file(self, cell: Cell, seed: int, name: str) -> Path:
        """The predictions of one run on the set ``name``."""
        return self.folder("evaluate", cell) / "predictions" / f"seed-{seed}" / f"{name}.jsonl"

    def predictions(self, cell: Cell, seed: int, name: str, kind: str) -> Predictions:
        """The predictions of one run on the set ``name``; ``kind`` is its task's."""
        path = self.predictions_file(cell, seed, name)
        try:
            # One parse of the whole file: a report reads millions of such lines.
            rows = json.loads("[" + ",".join(path.read_text(encoding="utf-8").split("\n")[:-1]) + "]")
            ids, scored = [row["idx"] for row in rows], [row["scores"] for row in rows]
            dtype = find(kind).dtype
            gold, predicted = (np.array([row[key] for row in rows], dtype) for key in ("label", "prediction"))
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            what = f"cannot be read as predictions ({type(error).__name__}: {error})"
            raise wrong(path, what, "evaluate") from error
        return Predictions(ids, gold, predicted, scored)

    def curves(self, stage: str, cell: Cell) -> Log:
        """Loss, learning rate and gradient norm of every step."""
        return Log(self.folder(stage, cell) / "curves.csv", stage)

    def logged(self, stage: str, cell: Cell) -> Log:
        """What the methods logged."""
        return Log(self.folder(stage, cell) / "method_metrics.csv", stage)

    def task_file(self, task: str) -> Path:
        """What was prepared of a task."""
        return self.root / "work" / "datasets" / task / "task.json"

    def task(self, task: str) -> PreparedTask:
        """What was prepared of a task."""
        return read(self.task_file(task), PreparedTask, "plan")

    def groups(self, task: str) -> dict[str, dict[str, str]]:
        """Set -> identifier of each of its rows -> the row's group; empty for a task without groups."""
        path = self.root / "work" / "datasets" / task / "groups.json"
        return dict(_json(path, "plan")) if path.is_file() else {}

    def subsample_file(self, task: str, size: str) -> Path:
        """The file of ``subsample``."""
        return self.root / "work" / "subsamples" / task / size / "manifest.json"

    def subsample(self, task: str, size: str) -> Subsample:
        """The training rows that were drawn at one size."""
        return read(self.subsample_file(task, size), Subsample, "plan")

    def lengths(self, task: str) -> dict[str, Any]:
        """Tokens of the rows of every set; ``data.lengths`` says what is in it."""
        path = self.root / "work" / "lengths" / f"{task}.json"
        return _json(path, "plan")


def wrong(path: Path, what: str, stage: str, code: str = "damaged-output") -> DataError:
    """The error about a file of ``work/`` that a stage has to write again."""
    return DataError(code, f"{path}: {what}\n    -> run `dvc repro` (stage {stage}), then this again")


def _json(path: Path, stage: str) -> Any:
    try:
        return read_json(path)
    except StoreError as error:
        raise wrong(path, error.text.removeprefix(f"{path}: "), stage, error.code) from error


def read(path: Path, model: type[R], stage: str) -> R:
    """A file as a record; DataError as in ``Work``."""
    try:
        return model.model_validate(_json(path, stage))
    except ValidationError as error:
        raise wrong(path, validation_text(error), stage) from error
