"""The files in ``work/``: where each is, how it is read, and, in ``key.json``, what its folder was made from."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pydantic import ValidationError

from regft_core.disk.canonical import sha256_file
from regft_core.disk.files import write_json
from regft_core.disk.reading import read_json, validation_text
from regft_core.errors import DataError, StoreError
from regft_core.kinds import find
from regft_core.lazy import np
from regft_core.runs.records import Evaluation, Finding, Manifest, PreparedTask, Record, SearchManifest, Subsample
from regft_core.settings.project import Cell

if TYPE_CHECKING:
    import pandas as pd

R = TypeVar("R", bound=Record)
#: Files in the folder of a cell: of search and finetune, of evaluate, of every step of search and finetune.
MANIFEST, RESULT, CURVES, LOGGED = "manifest.json", "result.json", "curves.csv", "method_metrics.csv"


#: Numbers of a step of training.
CURVE = ["loss", "learning_rate", "gradient_norm"]
_PLACE: dict[str, Callable[[str], Any]] = {"seed": int, "phase": str, "step": lambda text: int(float(text))}
#: Columns of the files of steps, and how each is read: curves, and the numbers that methods log.
COLUMNS = {
    CURVES: _PLACE | dict.fromkeys(("epoch", *CURVE), lambda text: float(text or "nan")),
    LOGGED: _PLACE | {"name": str, "value": float},
}


class Predictions(NamedTuple):
    """Predictions of one run on one set, by row; ``scored``: probabilities of the labels, or the value."""

    ids: list[str]
    gold: Any
    predicted: Any
    scored: list[list[float]]


@dataclass(frozen=True)
class Work:
    """The outputs of a project's stages; raises DataError for a file that is missing or not what it should be."""

    root: Path

    def folder(self, stage: str, cell: Cell) -> Path:
        """``work/<stage>/<method>/<task>/<size>``."""
        return self.root / "work" / stage / cell.directory

    def result_file(self, stage: str, cell: Cell) -> Path:
        """The records of a stage; the file is there when the cell was run."""
        return self.folder(stage, cell) / (RESULT if stage == "evaluate" else MANIFEST)

    def search(self, cell: Cell) -> SearchManifest:
        return read(self.result_file("search", cell), SearchManifest, "search")

    def finetune(self, cell: Cell) -> Manifest:
        return read(self.result_file("finetune", cell), Manifest, "finetune")

    def evaluation(self, cell: Cell) -> Evaluation:
        return read(self.result_file("evaluate", cell), Evaluation, "evaluate")

    def findings(self, cell: Cell) -> dict[str, Finding]:
        """Name -> what each evaluation beyond the scores found; the stage writes their folder as a whole."""
        files = sorted((self.folder("evaluate", cell) / "evaluations").glob("*.json"))
        return {file.stem: read(file, Finding, "evaluate") for file in files}

    def predictions_file(self, cell: Cell, seed: int, name: str) -> Path:
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

    def steps(
        self, name: str, cell: Cell, seeds: Sequence[int], searched: Collection[int] | None = None
    ) -> pd.DataFrame:
        """Read ``CURVES`` or ``LOGGED`` of search and finetune, in the order of ``seeds``; empty without the files.

        ``searched``: the seeds of which the search is read; None: all.
        """
        import pandas as pd

        readers, rows = COLUMNS[name], list[list[Any]]()
        for stage, of in (("search", seeds if searched is None else searched), ("finetune", seeds)):
            path, by_seed = self.folder(stage, cell) / name, dict[str, list[list[str]]]()
            try:
                for row in csv.reader(path.read_text(encoding="utf-8").splitlines()[1:] if path.is_file() else ()):
                    by_seed.setdefault(row[0], []).append(row)
                for row in (row for seed in seeds if seed in of for row in by_seed.get(str(seed), [])):
                    rows.append([read(text) for read, text in zip(readers.values(), row, strict=True)])
            except (OSError, ValueError, IndexError, csv.Error) as error:
                raise wrong(path, f"not a log of steps ({error})", stage) from error
        return pd.DataFrame(rows, columns=[*readers])

    def task_file(self, task: str) -> Path:
        return dataset_folder(self.root, task) / "task.json"

    def task(self, task: str) -> PreparedTask:
        return read(self.task_file(task), PreparedTask, "subsample")

    def groups(self, task: str) -> dict[str, dict[str, str]]:
        """Set -> identifier of each of its rows -> the row's group; empty for a task without groups."""
        path = dataset_folder(self.root, task) / "groups.json"
        return dict(_json(path, "subsample")) if path.is_file() else {}

    def subsample_file(self, task: str, size: str) -> Path:
        return self.root / "work" / "subsamples" / task / size / "manifest.json"

    def subsample(self, task: str, size: str) -> Subsample:
        return read(self.subsample_file(task, size), Subsample, "subsample")

    def lengths_file(self, task: str) -> Path:
        return self.root / "work" / "lengths" / f"{task}.json"

    def lengths(self, task: str) -> dict[str, Any]:
        """Tokens of the rows of every set; ``data.lengths`` says what is in it."""
        return _json(self.lengths_file(task), "subsample")


def dataset_folder(root: Path, task: str) -> Path:
    return root / "work" / "datasets" / task


def described_task(root: Path, task: str) -> dict[str, Any]:
    """Return ``task.json`` of a task. Raises DataError where the stage subsample has not written it."""
    path = Work(root).task_file(task)
    if not path.is_file():
        raise DataError("not-prepared", f"{path} is missing; run `dvc repro` (stage subsample) first")
    return read_json(path, dict)


def wrong(path: Path, what: str, stage: str, code: str = "damaged-output") -> DataError:
    """The error about a file of ``work/`` that a stage has to write again."""
    return DataError(code, f"{path}: {what}\n    -> run `dvc repro` (stage {stage}), then this again")


def _json(path: Path, stage: str) -> Any:
    try:
        return read_json(path)
    except StoreError as error:
        what, *_ = error.text.removeprefix(f"{path}: ").splitlines()  # the next step is the stage
        raise wrong(path, what, stage, error.code) from error


def read(path: Path, model: type[R], stage: str) -> R:
    """A file as a record; DataError as in ``Work``."""
    try:
        return model.model_validate(_json(path, stage))
    except ValidationError as error:
        raise wrong(path, validation_text(error), stage) from error


KEY_FILE = "key.json"
#: Larger files are compared by size only: the keys of runs have the content of the rows in them.
HASHED_BYTES = 16_000_000


def seal(folder: Path, keys: Any) -> None:
    """Write ``key.json`` into a folder whose other files are complete; raises StoreError."""
    write_json(folder / KEY_FILE, {"keys": keys, "files": dict(_files(folder))})


def is_current(folder: Path, keys: Any) -> bool:
    """Whether the folder was made from these keys, and nothing in it was changed or lost since."""
    with suppress(StoreError, OSError, KeyError, TypeError):
        written = read_json(folder / KEY_FILE)
        return bool(written["keys"] == keys and written["files"] == dict(_files(folder)))
    return False


def keys_of(folder: Path) -> Any:
    """The keys that a folder was made from; None where it does not say."""
    with suppress(StoreError, KeyError, TypeError):
        return read_json(folder / KEY_FILE)["keys"]
    return None


def _files(folder: Path) -> Iterator[tuple[str, str]]:
    """Name below the folder -> its hash, or its size where it is large, of every file but ``key.json``."""
    start = len(os.fspath(folder)) + 1
    for parent, names, files in os.walk(folder):
        names.sort()
        for name in sorted(files):
            path = os.path.join(parent, name)
            if path[start:] != KEY_FILE:
                size = os.path.getsize(path)
                yield path[start:], sha256_file(path) if size <= HASHED_BYTES else f"{size} bytes"
