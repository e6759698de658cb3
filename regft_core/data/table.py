"""The one reader of data files and of standard input: rows of CSV and TSV, JSON lines, Parquet and Excel, in order.

Nothing is kept in memory. The standard library's ``csv`` reads text: it refuses rows of another length and quotes that
stay open, and it answers a pipe line by line. ``pandas.read_csv`` fills or shifts such rows without a word.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, cast

from regft_core.data.file_format import (
    NAMED,
    Lines,
    Row,
    Table,
    WrongFile,
    advised,
    check_names,
    column_problems,
    delimited,
    is_known,
    suffix_of,
    tabular,
)
from regft_core.disk.paths import what_is
from regft_core.errors import DataError
from regft_core.names import listing, suggestion
from regft_core.schema.sources import UNSAID, FileFormat

#: Byte-order marks of other encodings than UTF-8; that of UTF-32 begins like one of UTF-16.
_MARKS = {
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
}
_ONE_OBJECT = "write one JSON object {column: value} on each line, each key once"
#: Bytes in which NUL is looked for; rows of a Parquet file, or lines of JSON, that are read ahead.
_START, _AHEAD = 1 << 20, 1_000
#: What gzip raises for a file that is not whole.
_NOT_WHOLE = (EOFError, gzip.BadGzipFile, zlib.error)


@contextmanager
def open_table(path: Path, how: FileFormat = UNSAID, where: str | None = None) -> Iterator[Table]:
    """Open a data file (``FORMATS``, also .gz). Raises DataError, headed by ``where``, also while rows are read."""
    with explained_as(where or str(path)), opened(path, how) as table:
        yield table


@contextmanager
def explained_as(where: str) -> Iterator[None]:
    """Turn a WrongFile, whenever it is noticed, into a DataError that begins with ``where``; also what is not UTF-8."""
    try:
        yield
    except UnicodeDecodeError as error:
        hint = "convert it first, for instance with iconv"
        raise DataError("not-utf8", f"{where}: is not UTF-8 text ({error.reason})\n    -> {hint}") from error
    except WrongFile as wrong:
        hint = f"\n    -> {wrong.hint}" if wrong.hint else ""
        raise DataError(wrong.code, f"{where}: {wrong}{hint}") from wrong


@contextmanager
def opened(path: Path, how: FileFormat = UNSAID) -> Iterator[Table]:
    """Open a file as ``open_table`` does. Raises WrongFile."""
    if not is_known(path):
        raise WrongFile("unknown-format", "has an unknown format", NAMED)
    if (kind := what_is(path)) != "a file":
        code, message = ("not-a-file", f"is {kind}, not a file") if kind else ("file-missing", "there is no such file")
        raise WrongFile(code, message, "give the path of a data file")
    suffix, packed = suffix_of(path), path.name.lower().endswith(".gz")
    wrong = Exception if suffix in (".xlsx", ".parquet") else _NOT_WHOLE  # their readers have errors of many kinds

    @contextmanager
    def sound() -> Iterator[None]:
        try:
            yield
        except WrongFile:
            raise
        except UnicodeDecodeError as error:
            raise _not_text(path, packed, how) from error
        except wrong as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            message = f"is damaged or cut off, or is no {'.gz' if packed else suffix} file ({reason})"
            raise WrongFile("damaged-file", message, "copy it again, or name it by its format") from error

    def sound_rows(rows: Iterator[Row]) -> Iterator[Row]:
        with sound():
            yield from rows

    try:
        raw, size = path.open("rb"), path.stat().st_size
    except OSError as error:
        raise WrongFile("cannot-read", f"cannot be read ({error.strerror})", "check its permissions") from error
    if not size:
        raise WrongFile("empty-file", "is empty", "copy it again")
    with raw:
        with sound():
            table = _table(cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if packed else raw, suffix, how)
        rows, done = sound_rows(table.rows), lambda: 1.0 if raw.closed else min(1.0, raw.tell() / size)
        yield replace(table, rows=rows, done=done)


def readable_as(path: Path, how: FileFormat, other: FileFormat, wanted: Sequence[tuple[str, str]]) -> FileFormat:
    """Return ``how`` where a file can be read so to its end and has the columns ``wanted``, else ``other``."""
    try:
        with opened(path, how) as table:
            if column_problems(table, wanted):
                return other
            if (how.encoding, how.delimiter) != (other.encoding, other.delimiter):
                deque(table.rows, maxlen=0)  # another byte or field may stand on the last line
    except WrongFile as wrong:
        unlike = wrong.code in ("not-utf8", "binary-file", "sheet-missing") or how.delimiter != other.delimiter
        return other if unlike else how
    return how


def utf8_or(path: Path, how: FileFormat, column: str) -> FileFormat:
    """Return ``how`` without its encoding where a file is UTF-8; other files of one call may not be."""
    ascii_bytes = bytes(range(128))
    if how.encoding is None or ascii_bytes.decode(how.encoding, "replace") != ascii_bytes.decode():
        return how  # UTF-16, or ISO-2022-JP, which is valid UTF-8
    return readable_as(path, how.model_copy(update={"encoding": None}), how, [("--text", column)])


def _table(stream: IO[bytes], suffix: str, how: FileFormat) -> Table:
    if suffix == ".xlsx":
        return tabular(_sheet_lines(stream, how))
    if suffix == ".parquet":
        return parquet(io.BytesIO(stream.read()) if isinstance(stream, gzip.GzipFile) else stream)
    start = stream.read(_START)
    stream.seek(0)
    encoding = _encoding(start, how)
    if b"\0" in start and not encoding.lower().replace("_", "-").startswith(("utf-16", "utf-32")):
        utf16 = f"for UTF-16 text without a byte-order mark {advised('encoding', 'utf-16-le')}"
        hint = f"name a workbook .xlsx, a Parquet file .parquet, a gzip file .gz; {utf16}"
        raise WrongFile("binary-file", f"is a binary file, not {suffix} text", hint)
    text = io.TextIOWrapper(stream, encoding=encoding, newline="\n" if suffix == ".jsonl" else "")
    return json_lines(text, _AHEAD) if suffix == ".jsonl" else delimited(text, suffix, how)


def _encoding(start: bytes, how: FileFormat) -> str:
    if how.encoding is not None:
        return "utf-8-sig" if codecs.lookup(how.encoding).name == "utf-8" else how.encoding
    return next((encoding for encoding, marks in _MARKS.items() if start.startswith(marks)), "utf-8-sig")


def _not_text(path: Path, packed: bool, how: FileFormat) -> WrongFile:
    """Return the first byte that the encoding has not, by its line: the file is read once more up to it."""
    place = ""
    with cast(IO[bytes], gzip.open(path)) if packed else path.open("rb") as stream:
        encoding = _encoding(stream.read(4), how)
        stream.seek(0)
        for number, line in enumerate(io.TextIOWrapper(stream, encoding, "surrogateescape", newline="\n"), start=1):
            if wrong := re.search("[\udc80-\udcff]", line):
                place = f" (line {number}, byte {ord(wrong[0]) - 0xDC00:#04x})"
                break
    hint = f"save the file as UTF-8, or {advised('encoding', 'cp1252')} (Windows, Western Europe), or its own"
    code, name = ("not-utf8", "UTF-8") if how.encoding is None else ("not-its-encoding", how.encoding)
    return WrongFile(code, f"is not {name} text{place}", hint)


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raises ValueError, also for a key that occurs twice and for endless nesting."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            raise ValueError(f"a key occurs twice among {[name for name, _ in pairs]}")
        return values

    try:
        return json.loads(text, object_pairs_hook=unique)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def json_lines(lines: Iterable[str], ahead: int = 1) -> Table:
    """Read JSON lines, which end at ``\\n`` only; ``ahead`` rows are read to know the columns. Raises WrongFile."""

    def objects() -> Iterator[Row]:
        contents = ((line, content) for line, content in enumerate(lines, start=1) if content.strip())
        for count, (line, content) in enumerate(contents, start=1):
            try:
                value = parse_json(content)
            except ValueError as error:  # also a number of thousands of digits
                raise WrongFile("not-json", f"line {line} is not JSON ({error})"[:200], _ONE_OBJECT) from error
            if not isinstance(value, dict):
                raise WrongFile("not-an-object", f"line {line} is not an object: {content[:60]!r}", _ONE_OBJECT)
            yield Row(f"row {count} (line {line})", value)

    rows = objects()
    first = list(islice(rows, ahead))
    if not first:
        raise WrongFile("empty-file", "is empty", _ONE_OBJECT)
    names = list(dict.fromkeys(name for row in first for name in row.values))
    return Table(names, chain(first, rows), header="the start of the file")


def parquet(file: IO[bytes]) -> Table:
    """Read a Parquet file. Raises what pyarrow raises, here or while rows are read."""
    import pyarrow.parquet

    content = pyarrow.parquet.ParquetFile(file)
    values = (row for batch in content.iter_batches(batch_size=_AHEAD) for row in batch.to_pylist())
    rows = (Row(f"row {count}", row) for count, row in enumerate(values, start=1))
    return Table(check_names(content.schema_arrow.names), rows, header="its schema")


def _sheet_lines(file: IO[bytes], how: FileFormat) -> Lines:
    """Yield number and cells of each line of the sheet (by default the only visible one) but blank ones."""
    import openpyxl

    book = openpyxl.load_workbook(file, read_only=True, data_only=True)
    sheets, wanted = {sheet.title: sheet for sheet in book.worksheets}, how.sheet
    shown = [title for title, sheet in sheets.items() if sheet.sheet_state == "visible"] or list(sheets)
    if wanted is None and len(shown) != 1:
        message = f"has the sheets {listing(repr(name) for name in shown)}"
        raise WrongFile("sheet-missing", message, advised("sheet", shown[0]) if shown else "add one")
    if wanted is not None and wanted not in sheets:
        raise WrongFile("sheet-missing", f"has no sheet '{wanted}'", suggestion(wanted, shown, "its sheets"))
    sheet = sheets[shown[0] if wanted is None else wanted]
    sheet.reset_dimensions()  # some programs write wrong ones
    width = 0
    for line, cells in enumerate(sheet.iter_rows(), start=1):
        if wrong := next((cell for cell in cells if cell.data_type == "e"), None):
            message = f"cell {wrong.coordinate} holds the error {wrong.value}"
            raise WrongFile("error-in-cell", message, "correct the formula, or leave the cell empty")
        values = [_as_shown(cell.value, how.decimal or ".") for cell in cells]
        while values and not values[-1]:
            values.pop()
        if values and not width:
            width, values = len(values), [name.strip() for name in values]
        if values:
            yield line, values + [""] * (width - len(values))


def _as_shown(value: Any, decimal: str) -> str:
    """Return a cell as Excel writes it into a CSV file, where ``decimal`` is the decimal mark."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return str(int(value) if value.is_integer() else value).replace(".", decimal)
    return "" if value is None else str(value)
