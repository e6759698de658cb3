"""Predict a whole file with an exported model: read, score and write in chunks, in the order of the file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from regft_core.data.declare import Row
from regft_core.data.rows import OpenTable, open_table
from regft_core.errors import DataError
from regft_core.io import atomic_file
from regft_core.kinds import find
from regft_core.serving.model import ServedAnswers, ServedModel
from regft_core.serving.reading import Columns, choose_columns, example_of, require_columns
from regft_core.serving.writing import DIGITS, Writer, check_output

#: Rows that are in memory at a time; batches of similar length are made of them.
CHUNK_ROWS = 2_000
#: Seconds between two lines of progress: on a terminal, and in a log file.
_EVERY = (0.5, 15.0)


@dataclass
class Counted:
    """What happened: rows written, rows cut to the model's length, rows without a text (and so without prediction),
    rows on which the model is not confident enough to answer."""

    rows: int = 0
    cut: int = 0
    empty: int = 0
    abstained: int = 0
    seconds: float = 0.0


def predict_file(
    model: ServedModel | ServedAnswers,
    data: Path,
    out: Path,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    keep: Sequence[str] = (),
    batch_size: int = 64,
    overwrite: bool = False,
) -> Counted:
    """Write ``out`` (.csv or .jsonl): ``row``, the kept columns, ``prediction`` and a probability per label.

    The file appears complete or not at all. A row without a text gets no prediction and is counted.

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
    counted = Counted()
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
        with atomic_file(out) as file:
            writer = Writer(out, file, [own[0], *keep, *own[1:]])
            progress = _Progress(table)
            while chunk := list(islice(table.rows, CHUNK_ROWS)):
                for values in _predicted(model, chunk, columns, keep, batch_size, counted):
                    writer.row(values)
                progress(counted.rows)
            progress.end()
            if not counted.rows:
                raise DataError("no-rows", f"{data}: no rows below the header\n    -> nothing to predict")
    counted.seconds = time.monotonic() - started
    return counted


def _predicted(
    model: ServedModel | ServedAnswers,
    chunk: Sequence[Row],
    columns: Columns,
    keep: Sequence[str],
    batch_size: int,
    counted: Counted,
) -> Iterator[dict[str, Any]]:
    """The lines of one chunk, in its order."""
    examples = [example_of(row, columns) for row in chunk]
    present = [example for example in examples if example is not None]
    found = iter(model.scores(present, batch_size).tolist() if present else ())
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


class _Progress:
    """Rows so far, share of the file and time left, on standard error."""

    def __init__(self, table: OpenTable) -> None:
        self._done = table.done
        self._terminal = sys.stderr.isatty()
        self._started = self._last = time.monotonic()

    def __call__(self, rows: int) -> None:
        now = time.monotonic()
        if now - self._last < _EVERY[0 if self._terminal else 1]:
            return
        self._last = now
        spent, done = now - self._started, self._done()
        left = f", about {spent * (1 - done) / done:.0f} s left" if 0 < done < 1 else ""
        text = f"{rows:,} rows, {100 * done:.0f}% of the file, {rows / spent:,.0f} rows/s{left}"
        print(f"\r{text}\x1b[K" if self._terminal else f"  {text}", end="" if self._terminal else "\n", file=sys.stderr)
        sys.stderr.flush()

    def end(self) -> None:
        if self._terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
