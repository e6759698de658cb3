"""Raw rows of one file, one after the other: CSV and TSV, JSON lines, Parquet. Nothing is kept in memory."""

from __future__ import annotations

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

from regft_core.config.headers import quoting_of
from regft_core.data.declare import Row
from regft_core.errors import DataError

FORMATS = (".csv", ".tsv", ".jsonl", ".parquet")
#: Rows of a Parquet file that are decoded at a time.
_PARQUET_ROWS = 1_000


def suffix_of(path: Path) -> str:
    """The ending that names the format, ``.gz`` apart."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def table(stream: TextIO, delimiter: str, where: str, *, quoted: bool = False) -> tuple[list[str], Iterator[Row]]:
    """Column names and rows of CSV or TSV with a header line; quoted fields may hold delimiters and line breaks.

    ``stream`` was opened with ``newline=""``. Raises DataError here for a bad header, while iterating for a bad row.
    """
    quoting = quoting_of(delimiter, quoted)
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(stream, delimiter=delimiter, quoting=quoting, strict=True)

    def damaged(error: csv.Error) -> DataError:
        return DataError(
            "csv-syntax", f"{where}: line {reader.line_num}: {error}\n    -> check the quotes on that line"
        )

    try:
        header = next(reader, None)
    except csv.Error as error:
        raise damaged(error) from error
    if not header:
        raise DataError("empty-file", f"{where}: empty file\n    -> its first line names the columns")
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise DataError("column-twice", f"{where}: line 1 names the column '{repeated[0]}' twice")

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
            raise damaged(error) from error

    return header, rows()


def json_lines(lines: Iterable[str], where: str) -> Iterator[Row]:
    """Rows of JSON lines; ``lines`` end at ``\\n`` only: texts may hold other Unicode line breaks."""
    count = 0
    for line, content in enumerate(lines, start=1):
        if not content.strip():
            continue
        try:
            value = json.loads(content)
        except (ValueError, RecursionError) as error:  # also a number of thousands of digits
            raise DataError("not-json", f"{where}: line {line} is not JSON ({error}): {content[:60]!r}") from error
        if not isinstance(value, dict):
            raise DataError(
                "not-an-object", f"{where}: line {line} is not an object {{column: value}}: {content[:60]!r}"
            )
        count += 1
        yield Row(f"row {count} (line {line})", value)


def parquet(file: IO[bytes], where: str) -> tuple[list[str], int, Iterator[Row]]:
    """Column names, number of rows, and the rows of a Parquet file."""
    import pyarrow
    import pyarrow.parquet

    def damaged(error: Exception) -> DataError:
        message = str(error).splitlines()[0]
        return DataError(
            "damaged-file", f"{where}: the Parquet file is damaged or cut off ({message})\n    -> copy it again"
        )

    try:
        opened = pyarrow.parquet.ParquetFile(file)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise damaged(error) from error

    def rows() -> Iterator[Row]:
        count = 0
        try:
            for batch in opened.iter_batches(batch_size=_PARQUET_ROWS):
                for values in batch.to_pylist():
                    count += 1
                    yield Row(f"row {count}", values)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise damaged(error) from error

    return opened.schema_arrow.names, opened.metadata.num_rows, rows()


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
def open_table(path: Path) -> Iterator[OpenTable]:
    """Open a .csv, .tsv, .jsonl or .parquet file, also .gz, to read its rows one after the other.

    Raises DataError, here or while rows are read: no such file, unknown format, empty, damaged, not UTF-8.
    """
    where = str(path)
    suffix = suffix_of(path)
    if suffix not in FORMATS:
        raise DataError(
            "unknown-format",
            f"{where}: unknown format\n    -> the name ends in one of {', '.join(FORMATS)}, or that + .gz",
        )
    if not path.is_file():
        raise DataError(
            ("not-a-file" if path.exists() else "file-missing"),
            f"{where}: {'not a file' if path.exists() else 'no such file'}",
        )
    size = path.stat().st_size
    if size == 0:
        raise DataError("empty-file", f"{where}: empty file")
    with _readable(where), path.open("rb") as raw:
        packed = path.name.lower().endswith(".gz")
        plain = cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if packed else raw

        def done() -> float:
            return min(1.0, raw.tell() / size)

        if suffix == ".parquet":
            with tempfile.TemporaryFile() as unpacked:
                if packed:  # Parquet is read from its end
                    shutil.copyfileobj(plain, unpacked)
                    unpacked.seek(0)
                names, count, rows = parquet(unpacked if packed else raw, where)
                yield _counted(names, count, rows)
            return
        text = TextIOWrapper(plain, encoding="utf-8-sig", newline="\n" if suffix == ".jsonl" else "")
        if suffix == ".jsonl":
            lines = json_lines(text, where)
            first = next(lines, None)
            if first is None:
                raise DataError("no-rows", f"{where}: no rows\n    -> one JSON object per line")
            yield OpenTable(list(first.values), _chain(first, lines), done)
        else:
            names, rows = table(text, "\t" if suffix == ".tsv" else ",", where)
            yield OpenTable(names, rows, done)


@contextmanager
def _readable(where: str) -> Iterator[None]:
    """Turn what a damaged file raises, whenever it is noticed, into a sentence."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            "damaged-file", f"{where}: the gzip file is damaged or cut off ({error})\n    -> copy it again"
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(
            "not-utf8",
            f"{where}: not UTF-8 text (byte {error.object[error.start]:#04x})\n    -> save the file as UTF-8",
        ) from error


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

    return OpenTable(names, counting(), lambda: read / count if count else 1.0)
