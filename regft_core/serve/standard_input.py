"""Answer rows of standard input as they come, as JSON lines.

A thread reads rows ahead. Whatever it has read while the model was busy is answered together, so that a single line
is answered at once and a long file in large batches.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from typing import IO

from regft_core.data.file_format import Row, Table, delimited
from regft_core.data.table import explained_as, json_lines
from regft_core.errors import DataError, RegftError
from regft_core.serve.answers import Counted, Writer, answer_columns, require_columns
from regft_core.serve.model import ServedModel
from regft_core.serve.predict import Answering

#: What lines may be: an object each, fields below a header, or a text each.
FORMATS = ("jsonl", "csv", "tsv", "text")
WHERE = "standard input"
#: Rows that are answered together, at most.
CHUNK_ROWS = 256
#: A row, what went wrong behind the last one, or None at the end.
Waiting = queue.Queue[Row | RegftError | None]


def predict_stream(
    model: ServedModel,
    source: IO[bytes],
    out: IO[str],
    form: str = "jsonl",
    *,
    keep: Sequence[str] = (),
) -> Counted:
    """Write the answer to each row of ``source`` to ``out``, flushed as soon as it is known.

    Lines are those that ``predict_file`` writes into a .jsonl file. Which rows share a batch depends on time: in fp32
    a probability moves by about 1e-6 at most (``evaluate/logits.py``).

    Args:
        source: UTF-8 in the format ``form``, one of ``FORMATS``.
        keep: columns to copy.

    Raises:
        DataError: a wrong row, or none at all; the rows before it are answered.
        RunFailed: the model gives NaN.
    """
    started = time.monotonic()
    with explained_as(WHERE):
        table = _opened(model, source, form)
        require_columns(table, model.columns, keep, WHERE)
    writer = Writer(".jsonl", out, answer_columns(model, keep, WHERE))
    answering = Answering(model, keep, writer, Counted())
    waiting: Waiting = queue.Queue(2 * CHUNK_ROWS)
    threading.Thread(target=_read, args=(table.rows, waiting), daemon=True).start()
    chunk: list[Row] = []
    while isinstance(item := waiting.get(), Row):
        chunk.append(item)
        if len(chunk) == CHUNK_ROWS or waiting.empty():
            answering.answer(chunk)
            out.flush()
            chunk = []
    answering.answer(chunk)
    if item is not None:
        raise item
    answering.end(WHERE)
    answering.counted.seconds = time.monotonic() - started
    return answering.counted


def _opened(model: ServedModel, source: IO[bytes], form: str) -> Table:
    """Return the rows of standard input; of JSON lines the columns are those of the first row. Raises WrongFile."""
    stream = TextIOWrapper(source, encoding="utf-8-sig", newline="\n" if form in ("jsonl", "text") else "")
    if form != "text":
        return json_lines(stream) if form == "jsonl" else delimited(stream, f".{form}")
    text, *second = model.columns
    if second:
        raise DataError("two-texts", "--format text: the model reads two texts\n    -> --format jsonl, or csv")
    lines = (line.rstrip("\r\n") for line in stream)
    rows = (Row(f"line {number}", {text: line}) for number, line in enumerate(lines, start=1))
    return Table([text], rows)


def _read(rows: Iterator[Row], waiting: Waiting) -> None:
    """Put every row into ``waiting``, then None, or what went wrong."""
    try:
        with explained_as(WHERE):
            for row in rows:
                waiting.put(row)
        waiting.put(None)
    except RegftError as error:
        waiting.put(error)
