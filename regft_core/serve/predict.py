"""Predict a file with an exported model in chunks, in the order of the file, or a stream; a killed call goes on."""

from __future__ import annotations

import fcntl
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import IO, Any

from rich.progress import Progress

from regft_core import __version__
from regft_core.data.file_format import Row, Table, delimited
from regft_core.data.table import explained_as, json_lines, open_table
from regft_core.disk.canonical import sha256_json
from regft_core.disk.files import explained, fsync, write_json
from regft_core.disk.reading import read_json
from regft_core.errors import DataError, RegftError, StoreError
from regft_core.kinds import find
from regft_core.names import plural
from regft_core.output import console
from regft_core.schema.sources import UNSAID, FileFormat
from regft_core.serve.answers import (
    Counted,
    Writer,
    answer_columns,
    answers,
    check_output,
    format_of,
    readable,
    require_columns,
    require_text,
)
from regft_core.serve.model import ServedModel

#: Rows, and characters of their texts, that are in memory at a time; batches of similar length are made of them. A core
#: answers so many with a small encoder in some seconds, and what is answered is kept. Not by a clock: the bits depend
#: on who shares a batch.
CHUNK_ROWS, CHUNK_CHARACTERS = 2_000, 100_000


@dataclass
class Answering:
    """Rows of one file or stream, answered chunk by chunk and written."""

    model: ServedModel
    keep: Sequence[str]
    writer: Writer
    counted: Counted

    def answer(self, rows: Sequence[Row]) -> None:
        """Write the answer to each row."""
        examples = [readable(row, self.model.columns, self.counted) for row in rows]
        kept = [{name: row.values.get(name) for name in self.keep} for row in rows]
        for values in answers(self.model, examples, self.counted, kept):
            self.writer.row(values)


def predict_file(
    model: ServedModel,
    data: Path,
    out: Path,
    how: FileFormat = UNSAID,
    *,
    keep: Sequence[str] = (),
    overwrite: bool = False,
) -> Counted:
    """Write ``out`` (.csv or .jsonl): ``row``, the columns to ``keep``, ``prediction`` and a probability per label.

    The file appears complete or not at all; killed, the same call goes on and gives the same bytes. A row without a
    text is counted. Raises DataError, RunFailed for NaN, StoreError where ``out`` cannot be written.
    """
    check_output(out, data, overwrite)
    started = time.monotonic()
    how = format_of(data, how, model)
    with open_table(data, how) as table:
        require_columns(table, model.columns, keep, data)
        names = answer_columns(model, keep, data)
        with partial_file(out, _key(model, data, how, keep, names)) as (file, before, keep_lines):
            counted = Counted(**before)
            scores = find(model.served.kind).score_columns(model.labels)
            writer = Writer(out.suffix.lower(), file, names, scores, header=not before)
            if before:
                print(f"goes on after {plural(counted.rows, 'row')}, predicted before", file=sys.stderr)
                counted.resumed = sum(1 for _ in islice(table.rows, counted.rows))
            answering = Answering(model, keep, writer, counted)
            with Progress(console=console(error=True), transient=True, disable=not sys.stderr.isatty()) as progress:
                bar = progress.add_task("", total=1.0)
                while chunk := _chunk(table.rows, model.columns):
                    answering.answer(chunk)
                    keep_lines(asdict(replace(counted, resumed=0)))
                    progress.update(bar, completed=table.done(), description=plural(counted.rows, "row"))
            require_text(answering.counted, data)
    counted.seconds = time.monotonic() - started
    return counted


def _chunk(rows: Iterator[Row], columns: Sequence[str]) -> list[Row]:
    """Return the next rows that are answered together; none at the end."""
    chunk, characters = list[Row](), 0
    for row in islice(rows, CHUNK_ROWS):
        chunk.append(row)
        texts = map(row.values.get, columns)
        characters += sum(len(text) for text in texts if isinstance(text, str))
        if characters >= CHUNK_CHARACTERS:
            break
    return chunk


def _key(model: ServedModel, data: Path, how: FileFormat, keep: Sequence[str], names: Sequence[str]) -> str:
    """Hash of what decides the bytes of the output: files by size and time of change, options, threads, torch."""
    import torch

    files = [data, *(path for path in sorted(model.directory.rglob("*")) if path.is_file())]
    states = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    machine: list[Any] = [model.precision, model.device, torch.get_num_threads(), torch.__version__, __version__]
    machine += [CHUNK_ROWS, CHUNK_CHARACTERS]
    return sha256_json([states, machine, how.model_dump(), model.columns, list(keep), list(names)])


@contextmanager
def partial_file(out: Path, key: str) -> Iterator[tuple[IO[str], dict[str, Any], Callable[[dict[str, Any]], None]]]:
    """Yield the lines of ``out`` so far, what an earlier call has counted of them, and a function that keeps them.

    The function makes the lines so far durable, with what a later call shall get as counted. They become ``out`` when
    the block ends without an error. When the process is interrupted or killed, or the disk is full, they wait for the
    next call with the same ``key``. After another error nothing of them stays: it would come again. Lines of another
    key are dropped, with a notice.

    Raises:
        DataError: another process writes the same output.
        StoreError: it cannot be written.
    """
    path = out.with_name(f"{out.name}.partial")
    state = path.with_name(f"{path.name}.json")
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        binary = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115 - closed below

    def flush() -> None:
        file.flush()
        os.fsync(binary.fileno())

    def keep(counted: dict[str, Any]) -> None:
        with explained(state):
            flush()
        write_json(state, {"key": key, "bytes": binary.tell(), "counted": counted})

    try:
        fcntl.flock(binary, fcntl.LOCK_EX | fcntl.LOCK_NB)
        before = _earlier(path, state, key)
        binary.truncate(before["bytes"])
        binary.seek(before["bytes"])
        file = TextIOWrapper(binary, "utf-8", newline="", write_through=True)
        try:
            yield file, before["counted"], keep
        except StoreError:
            raise
        except Exception:
            path.unlink(missing_ok=True)
            state.unlink(missing_ok=True)
            raise
        with explained(out):
            flush()
            os.replace(path, out)
            fsync(out.parent)
        state.unlink(missing_ok=True)
    except BlockingIOError as error:
        message = f"--out {out}: another process is writing it now"
        raise DataError("in-the-way", f"{message}\n    -> wait, or choose another name") from error
    finally:
        with suppress(OSError, ValueError):
            binary.close()


def _earlier(path: Path, state: Path, key: str) -> dict[str, Any]:
    """What an earlier call has written of ``path`` (``bytes``, ``counted``); nothing of another key."""
    nothing = {"bytes": 0, "counted": {}}
    try:
        before: dict[str, Any] = read_json(state, dict)
    except StoreError:
        return nothing
    if before.get("key") == key and path.stat().st_size >= before["bytes"]:
        return before
    print(f"{path}: of another model, file or option; begins anew", file=sys.stderr)
    return nothing


# ---------------------------------------------------------------------------- standard input

# A thread reads rows ahead. Whatever it has read while the model was busy is answered together, so that a single line
# is answered at once and a long file in large batches.

#: What lines may be: an object each, fields below a header, or a text each.
FORMATS = ("jsonl", "csv", "tsv", "text")
WHERE = "standard input"
#: Rows that are answered together, at most.
STREAM_ROWS = 256
#: A row, what went wrong behind the last one, or None at the end.
Waiting = queue.Queue[Row | RegftError | None]


def predict_stream(
    model: ServedModel,
    source: IO[bytes],
    out: IO[str],
    form: str = "jsonl",
    *,
    keep: Sequence[str] = (),
    how: FileFormat = UNSAID,
) -> Counted:
    """Write the answer to each row of ``source`` (UTF-8, in the format ``form``) to ``out``, as soon as it is known.

    Raises DataError for a wrong row, after the answers to those before it, or none at all, RunFailed for NaN.
    """
    started = time.monotonic()
    with explained_as(WHERE):
        table = _opened(model, source, form, how)
        require_columns(table, model.columns, keep, WHERE)
    writer = Writer(".jsonl", out, answer_columns(model, keep, WHERE))
    answering = Answering(model, keep, writer, Counted())
    waiting: Waiting = queue.Queue(2 * STREAM_ROWS)
    threading.Thread(target=_read, args=(table.rows, waiting), daemon=True).start()
    chunk: list[Row] = []
    while isinstance(item := waiting.get(), Row):
        chunk.append(item)
        if len(chunk) == STREAM_ROWS or waiting.empty():
            answering.answer(chunk)
            out.flush()
            chunk = []
    answering.answer(chunk)
    if item is not None:
        raise item
    require_text(answering.counted, WHERE)
    answering.counted.seconds = time.monotonic() - started
    return answering.counted


def _opened(model: ServedModel, source: IO[bytes], form: str, how: FileFormat) -> Table:
    """Return the rows of standard input; of JSON lines the columns are those of the first row. Raises WrongFile."""
    stream = TextIOWrapper(source, encoding="utf-8-sig", newline="\n" if form in ("jsonl", "text") else "")
    if form != "text":
        how = how.model_copy(update={"quoted": model.served.file_format.get("quoted", False)})
        return json_lines(stream) if form == "jsonl" else delimited(stream, f".{form}", how)
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
