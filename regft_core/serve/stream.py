"""Answer rows of standard input as they come, as JSON lines.

A thread reads rows ahead. Whatever it has read while the model was busy is answered together, so that a single line
is answered at once and a long file in large batches.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from typing import IO, Any

from regft_core.data.declare import Row
from regft_core.data.examples import Example
from regft_core.data.file_format import Told, WrongFile
from regft_core.data.rows import json_lines, table
from regft_core.errors import DataError, RegftError
from regft_core.serve.lines import Counted, answers
from regft_core.serve.model import ServedAnswers, ServedModel
from regft_core.serve.predict import answer_columns, kept
from regft_core.serve.reading import Columns, choose_columns, example_of, require_columns
from regft_core.serve.writing import Writer

#: What lines may be: an object each, fields below a header, or a text each.
FORMATS = ("jsonl", "csv", "tsv", "text")
WHERE = "standard input"
#: Rows that are answered together, at most.
CHUNK_ROWS = 256
_TABLES = {"csv": Told("utf-8-sig", ",", 0, "", False), "tsv": Told("utf-8-sig", "\t", 3, "", False)}

#: A row: its texts, and what is copied of it.
One = tuple[Example | None, dict[str, Any]]
Waiting = queue.Queue[One | RegftError | None]


def predict_stream(
    model: ServedModel | ServedAnswers,
    source: IO[bytes],
    out: IO[str],
    form: str = "jsonl",
    *,
    text: str | None = None,
    text_pair: str | None = None,
    keep: Sequence[str] = (),
) -> Counted:
    """Write the answer to each row of ``source`` to ``out``, flushed as soon as it is known.

    Lines are those that ``predict_file`` writes into a .jsonl file. Which rows share a batch depends on time: in fp32
    a probability moves by about 1e-6 at most (``scoring.predict``).

    Args:
        source: UTF-8 in the format ``form``, one of ``FORMATS``.
        text, text_pair, keep: as for ``predict_file``; with ``text`` lines there are no columns to name.

    Raises:
        DataError: a wrong row, or none at all; the rows before it are answered.
        RunFailed: the model gives NaN.
    """
    started = time.monotonic()
    names, rows = _opened(model, source, form, text, text_pair)
    columns = choose_columns(model, names, WHERE, text, text_pair)
    require_columns(names, [("--keep", name) for name in keep], WHERE)
    writer = Writer(".jsonl", out, answer_columns(model, keep, WHERE))
    waiting: Waiting = queue.Queue(2 * CHUNK_ROWS)
    threading.Thread(target=_read, args=(rows, columns, keep, waiting), daemon=True).start()
    counted = Counted()
    while True:
        chunk, end = _available(waiting)
        for values in answers(model, [example for example, _ in chunk], counted, [copied for _, copied in chunk]):
            writer.row(values)
        out.flush()
        if isinstance(end, RegftError):
            raise end
        if end:
            break
    if not counted.rows:
        raise _no_rows()
    counted.seconds = time.monotonic() - started
    return counted


def _opened(
    model: ServedModel | ServedAnswers, source: IO[bytes], form: str, text: str | None, text_pair: str | None
) -> tuple[list[str], Iterator[Row]]:
    """The names of the columns, and the rows; of JSON lines the names are those of the first row."""
    stream = TextIOWrapper(source, encoding="utf-8-sig", newline="\n" if form in ("jsonl", "text") else "")
    if form == "text":
        if model.pairs or text_pair is not None:
            raise DataError("two-texts", "--format text: the model reads two texts\n    -> --format jsonl, or csv")
        column = text or model.text or "text"
        lines = (line.rstrip("\r\n") for line in stream)
        return [column], (Row(f"line {number}", {column: line}) for number, line in enumerate(lines, start=1))
    try:
        if form in _TABLES:
            return table(stream, _TABLES[form], WHERE)
        rows = json_lines(stream, WHERE)
        first = next(rows, None)
    except (UnicodeDecodeError, WrongFile) as error:
        raise _in_words(error) from error
    if first is None:
        raise _no_rows()
    return list(first.values), itertools.chain([first], rows)


def _read(rows: Iterator[Row], columns: Columns, keep: Sequence[str], waiting: Waiting) -> None:
    """Put every row into ``waiting``, then None, or what went wrong."""
    try:
        for row in rows:
            waiting.put((example_of(row, columns), kept(row, keep)))
        waiting.put(None)
    except RegftError as error:
        waiting.put(error)
    except (UnicodeDecodeError, WrongFile) as error:
        waiting.put(_in_words(error))


def _no_rows() -> DataError:
    return DataError("no-rows", f"{WHERE}: no rows\n    -> nothing to predict")


def _in_words(error: UnicodeDecodeError | WrongFile) -> DataError:
    if isinstance(error, WrongFile):
        return DataError(error.code, f"{WHERE}: {error}\n    -> {error.hint}")
    return DataError(
        "not-utf8", f"{WHERE}: is not UTF-8 text ({error.reason})\n    -> convert it first, for instance with iconv"
    )


def _available(waiting: Waiting) -> tuple[list[One], RegftError | bool]:
    """The rows that are there, waiting for the first one; and whether (or by what error) they are the last."""
    chunk: list[One] = []
    one = waiting.get()
    while True:
        if one is None or isinstance(one, RegftError):
            return chunk, True if one is None else one
        chunk.append(one)
        if len(chunk) == CHUNK_ROWS:
            return chunk, False
        try:
            one = waiting.get_nowait()
        except queue.Empty:
            return chunk, False
