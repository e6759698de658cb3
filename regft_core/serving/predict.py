"""Predict a whole file with an exported model: read, score and write in chunks, in the order of the file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from regft_core import __version__
from regft_core.data.declare import Row
from regft_core.data.rows import open_table
from regft_core.errors import DataError
from regft_core.io import canonical_json, sha256_text
from regft_core.kinds import find
from regft_core.names import plural
from regft_core.serving.model import ServedAnswers, ServedModel
from regft_core.serving.partial import partial_file
from regft_core.serving.progress import Progress
from regft_core.serving.reading import Columns, choose_columns, example_of, require_columns
from regft_core.serving.writing import DIGITS, Writer, check_output

#: Rows that are in memory at a time; batches of similar length are made of them.
CHUNK_ROWS = 2_000


@dataclass
class Counted:
    """What happened: rows written, rows cut to the model's length, rows without a text (and so without prediction),
    rows on which the model is not confident enough to answer; of the rows, those that an earlier call predicted."""

    rows: int = 0
    cut: int = 0
    empty: int = 0
    abstained: int = 0
    resumed: int = 0
    seconds: float = 0.0


def predict_file(
    model: ServedModel | ServedAnswers,
    data: Path,
    out: Path,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    keep: Sequence[str] = (),
    overwrite: bool = False,
) -> Counted:
    """Write ``out`` (.csv or .jsonl): ``row``, the kept columns, ``prediction`` and a probability per label.

    The file appears complete or not at all. A row without a text gets no prediction and is counted. Killed, the same
    call goes on after the last whole chunk, and writes the bytes that it would have written (``partial.py``).

    Args:
        data: .csv, .tsv, .jsonl or .parquet, also .gz.
        text, text_pair: columns to read; by default those of the training data.
        keep: columns of ``data`` to copy.
        overwrite: replace an existing ``out``.

    Raises:
        DataError: a column or a row is missing, the file cannot be read, or ``out`` exists.
        RunFailed: the model gives NaN.
        StoreError: ``out`` cannot be written.
    """
    check_output(out, data, overwrite)
    started = time.monotonic()
    with open_table(data) as table:
        columns = choose_columns(model, table.names, data, text, text_pair)
        require_columns(table.names, [("--keep", name) for name in keep], data)
        own = [
            "row",
            "prediction",
            *(["answered"] if model.abstain else []),
            *find(model.kind).score_columns(model.labels),
        ]
        if taken := [name for name in keep if name in own]:
            raise DataError(
                "column-taken", f"--keep {taken[0]}: predictions have a column of that name\n    -> rename it in {data}"
            )
        with partial_file(out, _key(model, data, columns, keep, own)) as partial:
            counted = Counted(**partial.counted)
            writer = Writer(out, partial.file, [own[0], *keep, *own[1:]], header=not partial.counted)
            if partial.counted:
                print(f"goes on after {plural(counted.rows, 'row')}, predicted before", file=sys.stderr)
                counted.resumed = sum(1 for _ in islice(table.rows, counted.rows))
            progress = Progress(table, counted.rows)
            while chunk := list(islice(table.rows, CHUNK_ROWS)):
                for values in _predicted(model, chunk, columns, keep, counted):
                    writer.row(values)
                partial.keep(asdict(replace(counted, resumed=0)))
                progress(counted.rows)
            progress.end()
            if not counted.rows:
                raise DataError("no-rows", f"{data}: no rows below the header\n    -> nothing to predict")
    counted.seconds = time.monotonic() - started
    return counted


def _key(
    model: ServedModel | ServedAnswers, data: Path, columns: Columns, keep: Sequence[str], own: Sequence[str]
) -> str:
    """Hash of what decides the bytes of the output: files by size and time of change, options, threads, torch."""
    import torch

    of_model = sorted(model.directory.rglob("*")) if model.directory is not None else []
    states = [(str(path.resolve()), *_state(path)) for path in [data, *(path for path in of_model if path.is_file())]]
    how = [model.precision, model.device, torch.get_num_threads(), torch.__version__, __version__, CHUNK_ROWS]
    return sha256_text(canonical_json([states, how, columns.text, columns.text_pair, list(keep), list(own)]))


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _predicted(
    model: ServedModel | ServedAnswers,
    chunk: Sequence[Row],
    columns: Columns,
    keep: Sequence[str],
    counted: Counted,
) -> Iterator[dict[str, Any]]:
    """The lines of one chunk, in its order."""
    examples = [example_of(row, columns) for row in chunk]
    present = [example for example in examples if example is not None]
    found = iter(model.scores(present).tolist() if present else ())
    counted.cut += model.cut(present) if present else 0
    counted.empty += len(chunk) - len(present)
    kind = find(model.kind)
    names = kind.score_columns(model.labels)
    for row, example in zip(chunk, examples, strict=True):
        counted.rows += 1
        values: dict[str, Any] = {"row": counted.rows, **{name: row.values.get(name) for name in keep}}
        if example is not None:
            scores = next(found)
            answer = kind.answer(scores, model.labels)
            if model.abstain is not None:
                values["answered"] = max(scores) >= model.abstain.threshold
                counted.abstained += not values["answered"]
            if values.get("answered", True):
                values["prediction"] = answer if isinstance(answer, str) else round(answer, DIGITS)
            values |= {name: round(score, DIGITS) for name, score in zip(names, scores)}
        yield values
