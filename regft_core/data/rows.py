"""Raw rows of one file, one after the other: CSV and TSV, JSON lines, Parquet, Excel. Nothing is kept in memory."""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import IO, TextIO, cast

from regft_core.data.declare import Row
from regft_core.data.file_format import (
    MAX_BYTES,
    NAMED,
    NAMES_COLUMNS,
    STARTS,
    UNSAID,
    FileFormat,
    Told,
    WrongFile,
    check_names,
    damaged,
    is_known,
    not_text,
    open_bytes,
    suffix_of,
    tell,
)
from regft_core.data.workbook import open_sheet
from regft_core.errors import DataError
from regft_core.io.paths import what_is

#: Rows of a Parquet file that are decoded at a time.
_PARQUET_ROWS = 1_000


def table(stream: TextIO, told: Told, where: str) -> tuple[list[str], Iterator[Row]]:
    """Column names and rows of CSV or TSV with a header line; quoted fields may hold delimiters and line breaks.

    ``stream`` was opened with ``newline=""``. Raises DataError here for a bad header, while iterating for a bad row.
    """
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(stream, delimiter=told.delimiter, quoting=told.quoting, strict=True)

    def torn(error: csv.Error, line: int) -> DataError:
        hint = f"check the quotes from line {line} on: each one that opens a field has to be closed"
        return DataError("csv-syntax", f"{where}: the row that begins on line {line}: {error}\n    -> {hint}")

    try:
        header = next(reader, None)
    except csv.Error as error:
        raise torn(error, 1) from error
    if not header:
        raise WrongFile("empty-file", "has an empty first line", NAMES_COLUMNS)
    check_names(header)

    def rows() -> Iterator[Row]:
        count, line = 0, reader.line_num + 1
        try:
            for values in reader:
                if values:  # a blank line is no row
                    count += 1
                    position = f"row {count} (line {line})"
                    if len(values) != len(header):
                        fields = "1 field" if len(values) == 1 else f"{len(values)} fields"
                        raise DataError(
                            "field-count",
                            f"{where}: {position} has {fields}, the header {len(header)}: "
                            f"{_excerpt(values)}"
                            "\n    -> quote fields that hold the delimiter or a line break (CSV), or use .jsonl",
                        )
                    yield Row(position, dict(zip(header, values, strict=True)))
                line = reader.line_num + 1
        except csv.Error as error:
            raise torn(error, line) from error

    return header, rows()


def json_lines(lines: Iterable[str], where: str) -> Iterator[Row]:
    """Rows of JSON lines; ``lines`` end at ``\\n`` only: texts may hold other Unicode line breaks.

    Raises DataError with the line that is no object.
    """
    count = 0
    for line, content in enumerate(lines, start=1):
        if not content.strip():
            continue
        try:
            value = json.loads(content)
        except (ValueError, RecursionError) as error:  # also a number of thousands of digits
            message = f"{where}: line {line} is not JSON ({error}): {content[:60]!r}"
            raise DataError("not-json", f"{message}\n    -> correct that line, or remove it") from error
        if not isinstance(value, dict):
            message = f"{where}: line {line} is not an object {{column: value}}: {content[:60]!r}"
            raise DataError("not-an-object", f"{message}\n    -> write one object on each line")
        count += 1
        yield Row(f"row {count} (line {line})", value)


def parquet(file: IO[bytes]) -> tuple[list[str], int, Iterator[Row]]:
    """Column names, number of rows, and the rows of a Parquet file. Raises WrongFile, here or while rows are read."""
    import pyarrow
    import pyarrow.parquet

    try:
        opened = pyarrow.parquet.ParquetFile(file)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise damaged("Parquet", error) from error

    def rows() -> Iterator[Row]:
        count = 0
        try:
            for batch in opened.iter_batches(batch_size=_PARQUET_ROWS):
                for values in batch.to_pylist():
                    count += 1
                    yield Row(f"row {count}", values)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise damaged("Parquet", error) from error

    return check_names(opened.schema_arrow.names), opened.metadata.num_rows, rows()


def _excerpt(values: list[str]) -> str:
    text = repr(values)
    return text if len(text) <= 100 else text[:100] + "..."


@dataclass(frozen=True)
class OpenTable:
    """A file that is being read.

    ``names``: its columns (of JSON lines: the keys of the first row); ``rows``: to be read once;
    ``done``: how much of the file was read, between 0 and 1.
    """

    names: list[str]
    rows: Iterator[Row]
    done: Callable[[], float]


@contextmanager
def open_table(path: Path, how: FileFormat = UNSAID, where: str | None = None) -> Iterator[OpenTable]:
    """Open a data file (``FORMATS``, also .gz) to read its rows one after the other; the only reader of such files.

    ``where`` heads messages, by default the path. Raises DataError, here or while rows are read: no such file, unknown
    format, empty, damaged, in another encoding or format than its name and ``how`` say.
    """
    where = where or str(path)
    if not is_known(path):
        raise DataError("unknown-format", f"{where}: unknown format\n    -> {NAMED}")
    if not path.is_file():
        if (kind := what_is(path)) is None:
            raise DataError("file-missing", f"{where}: no such file\n    -> give the path of a data file")
        raise DataError("not-a-file", f"{where}: is {kind}, not a file\n    -> give the path of a data file")
    try:
        with path.open("rb"):
            size, suffix = path.stat().st_size, suffix_of(path)
    except OSError as error:
        raise DataError(
            "cannot-read", f"{where}: cannot be read ({error.strerror or error})\n    -> check the file's permissions"
        ) from error
    if size == 0:
        raise DataError("empty-file", f"{where}: empty file\n    -> {STARTS.get(suffix, 'copy it again')}")
    with _in_words(path, how, where):
        if suffix == ".xlsx":
            with open_sheet(path, how.sheet) as sheet:
                lines = (Row(f"row {n} (line {line})", values) for n, (line, values) in enumerate(sheet.rows, start=1))
                yield _counted(sheet.names, max(sheet.lines - 1, 0), lines)
            return
        told = None if suffix == ".parquet" else tell(path, how)
        with path.open("rb") as raw:
            packed = path.name.lower().endswith(".gz")
            plain = cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if packed else raw

            def done() -> float:
                return min(1.0, raw.tell() / size)

            if told is None:
                with tempfile.TemporaryFile() as unpacked:
                    if packed:  # Parquet is read from its end
                        shutil.copyfileobj(plain, unpacked)
                        unpacked.seek(0)
                    yield _counted(*parquet(unpacked if packed else raw))
                return
            text = TextIOWrapper(plain, encoding=told.encoding, newline="\n" if suffix == ".jsonl" else "")
            if suffix == ".jsonl":
                objects = json_lines(text, where)
                first = next(objects, None)
                if first is None:
                    raise DataError("no-rows", f"{where}: no rows\n    -> one JSON object per line")
                yield OpenTable(list(first.values), _chain(first, objects), done)
            else:
                names, rows = table(text, told, where)
                yield OpenTable(names, rows, done)


@contextmanager
def _in_words(path: Path, how: FileFormat, where: str) -> Iterator[None]:
    """Turn what a wrong file raises, whenever it is noticed, into a sentence."""
    try:
        try:
            yield
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise damaged("gzip", error) from error
        except UnicodeDecodeError as error:
            raise _undecodable(path, how, error) from error
    except WrongFile as wrong:
        hint = f"\n    -> {wrong.hint}" if wrong.hint else ""
        raise DataError(wrong.code, f"{where}: {wrong}{hint}") from wrong


def _undecodable(path: Path, how: FileFormat, found: UnicodeDecodeError) -> WrongFile:
    """The line of a byte that was met amid a long file, which is read once more up to it."""
    decoder, before = codecs.getincrementaldecoder(tell(path, how).encoding)(), 0
    with open_bytes(path) as stream:
        while part := stream.read(MAX_BYTES):
            try:
                decoder.decode(part)
            except UnicodeDecodeError as error:
                return not_text(error, how.encoding, before)
            before += part.count(b"\n")
    return not_text(found, how.encoding, before)


def _chain(first: Row, others: Iterator[Row]) -> Iterator[Row]:
    yield first
    yield from others


def _counted(names: list[str], count: int, rows: Iterator[Row]) -> OpenTable:
    read = 0

    def counting() -> Iterator[Row]:
        nonlocal read
        for row in rows:
            read += 1
            yield row

    return OpenTable(names, counting(), lambda: min(1.0, read / count) if count else 1.0)
