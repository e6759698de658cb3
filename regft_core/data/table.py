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
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, cast

from regft_core.data.delimited import delimited
from regft_core.data.file_format import (
    NAMED,
    NAMES_COLUMNS,
    ONE_OBJECT,
    Advice,
    Row,
    Table,
    WrongFile,
    advised,
    check_names,
    damaged,
    is_known,
    suffix_of,
)
from regft_core.data.workbook import open_sheet
from regft_core.disk.paths import what_is
from regft_core.errors import DataError
from regft_core.schema.file_format import UNSAID, FileFormat

#: Byte-order marks and their encodings; the longer ones first, for one begins with another.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF8: "utf-8-sig",
}
#: First bytes of formats, what such a file is, and what to do where text was promised.
_CONTENTS = {
    b"PK\x03\x04": ("an Excel workbook (.xlsx) or a zip file", "name it .xlsx, or save the sheet as .csv"),
    b"\xd0\xcf\x11\xe0": ("an old Excel workbook (.xls)", "save it as .xlsx, or save the sheet as .csv"),
    b"PAR1": ("a Parquet file", "name it .parquet"),
    b"\x1f\x8b": ("a gzip file", "add .gz to its name"),
}
#: How files begin, for a hint on an empty one.
_BEGINS = {".csv": NAMES_COLUMNS, ".tsv": NAMES_COLUMNS, ".jsonl": ONE_OBJECT}
#: Bytes in which the header is looked for; rows of a Parquet file, or lines of JSON, that are read ahead.
_START, _AHEAD = 1 << 20, 1_000


@contextmanager
def open_table(
    path: Path, how: FileFormat = UNSAID, where: str | None = None, advice: Advice = "option"
) -> Iterator[Table]:
    """Open a data file (``FORMATS``, also .gz) to read its rows one after the other.

    Args:
        where: heads messages; the path when absent.
        advice: how messages name what can be said of the file.

    Raises:
        DataError: here or while rows are read: no such file, unknown format, empty, damaged, not as ``how`` says.
    """
    with explained_as(where or str(path)), opened(path, how, advice) as table:
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
def opened(path: Path, how: FileFormat = UNSAID, advice: Advice = "key") -> Iterator[Table]:
    """Open a file as ``open_table`` does. Raises WrongFile."""
    suffix, packed = suffix_of(path), path.name.lower().endswith(".gz")
    if not is_known(path):
        raise WrongFile("unknown-format", "has an unknown format", NAMED)
    if (kind := what_is(path)) != "a file":
        code, message = ("not-a-file", f"is {kind}, not a file") if kind else ("file-missing", "there is no such file")
        raise WrongFile(code, message, "give the path of a data file")
    try:
        raw, size = path.open("rb"), path.stat().st_size
    except OSError as error:
        reason = error.strerror or str(error)
        raise WrongFile("cannot-read", f"cannot be read ({reason})", "check the file's permissions") from error
    if size == 0:
        raise WrongFile("empty-file", "is empty", _BEGINS.get(suffix, "copy it again"))
    try:
        with raw:
            plain = cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if packed else raw
            if suffix == ".xlsx":
                with open_sheet(raw, how.sheet, advice) as table:
                    yield table
            elif suffix == ".parquet" and packed:  # it is read from its end
                with tempfile.TemporaryFile() as unpacked:
                    shutil.copyfileobj(plain, unpacked)
                    yield parquet(unpacked)
            elif suffix == ".parquet":
                yield parquet(raw)
            else:
                yield replace(
                    _text(path, plain, how, advice), done=lambda: 1.0 if raw.closed else min(1.0, raw.tell() / size)
                )
    except UnicodeDecodeError as error:
        raise _not_text(path, packed, how, advice) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise damaged("gzip", error) from error


def _text(path: Path, stream: IO[bytes], how: FileFormat, advice: Advice) -> Table:
    """Read a text file. Raises WrongFile or UnicodeDecodeError, here or while rows are read."""
    suffix, start = suffix_of(path), stream.read(_START)
    whole = len(start) < _START
    for mark, (what, hint) in _CONTENTS.items():
        if start.startswith(mark):
            raise WrongFile("another-format", f"is {what}, not {suffix} text", hint)
    encoding = _encoding(start, how)
    if b"\0" in start and not encoding.lower().replace("_", "-").startswith(("utf-16", "utf-32")):
        remedy = advised("encoding", "utf-16-le", advice)
        hint = f"give a {suffix} file; for UTF-16 text without a byte-order mark {remedy}"
        raise WrongFile("binary-file", "is a binary file, not text", hint)
    begin = codecs.getincrementaldecoder(encoding)().decode(start, final=whole)
    if whole and not begin.strip():
        raise WrongFile("empty-file", "is empty", _BEGINS[suffix])
    stream.seek(0)
    text = io.TextIOWrapper(stream, encoding=encoding, newline="\n" if suffix == ".jsonl" else "")
    return json_lines(text, _AHEAD) if suffix == ".jsonl" else delimited(text, suffix, how, begin)


def _encoding(start: bytes, how: FileFormat) -> str:
    if how.encoding is not None:
        return "utf-8-sig" if codecs.lookup(how.encoding).name == "utf-8" else how.encoding
    return next((name for mark, name in _MARKS.items() if start.startswith(mark)), "utf-8-sig")


def _not_text(path: Path, packed: bool, how: FileFormat, advice: Advice) -> WrongFile:
    """Return the first byte that the encoding has not, by its line: the file is read once more up to it."""
    place = ""
    with cast(IO[bytes], gzip.open(path)) if packed else path.open("rb") as stream:
        encoding = _encoding(stream.read(4), how)
        stream.seek(0)
        for number, line in enumerate(io.TextIOWrapper(stream, encoding, "surrogateescape", newline="\n"), start=1):
            if wrong := re.search("[\udc80-\udcff]", line):
                place = f" (line {number}, byte {ord(wrong[0]) - 0xDC00:#04x})"
                break
    hint = f"save the file as UTF-8, or {advised('encoding', 'cp1252', advice)} (Windows, Western Europe), or its own"
    code, name = ("not-utf8", "UTF-8") if how.encoding is None else ("not-its-encoding", how.encoding)
    return WrongFile(code, f"is not {name} text{place}", hint)


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raises ValueError, also for a key that stands twice and for endless nesting."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            name = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
            raise KeyError(name)
        return values

    try:
        return json.loads(text, object_pairs_hook=unique)
    except KeyError as error:
        raise ValueError(f"the key {error} stands twice") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def json_lines(lines: Iterable[str], ahead: int = 1) -> Table:
    """Read JSON lines; ``lines`` end at ``\\n`` only: texts may hold other Unicode line breaks.

    Args:
        ahead: rows that are read to know the columns.

    Raises:
        WrongFile: here or while rows are read: a line that is no object, or names a key twice.
    """

    def objects() -> Iterator[Row]:
        count = 0
        for line, content in enumerate(lines, start=1):
            if not content.strip():
                continue
            try:
                value = parse_json(content)
            except ValueError as error:  # also a number of thousands of digits
                message = f"line {line} is not JSON ({error}): {content[:60]!r}"
                raise WrongFile("not-json", message, f"{ONE_OBJECT}, each key once") from error
            if not isinstance(value, dict):
                raise WrongFile("not-an-object", f"line {line} is not an object: {content[:60]!r}", ONE_OBJECT)
            count += 1
            yield Row(f"row {count} (line {line})", value)

    rows = objects()
    first = list(islice(rows, ahead))
    if not first:
        raise WrongFile("empty-file", "is empty", ONE_OBJECT)
    names = list(dict.fromkeys(name for row in first for name in row.values))
    return Table(names, chain(first, rows), header="the start of the file")


def parquet(file: IO[bytes]) -> Table:
    """Read a Parquet file. Raises WrongFile, here or while rows are read."""
    import pyarrow
    import pyarrow.parquet

    wrong = (pyarrow.ArrowException, OSError, ValueError)
    try:
        opened = pyarrow.parquet.ParquetFile(file)
    except wrong as error:
        raise damaged("Parquet", error) from error
    total, count = max(1, opened.metadata.num_rows), 0

    def rows() -> Iterator[Row]:
        nonlocal count
        try:
            for batch in opened.iter_batches(batch_size=_AHEAD):
                for values in batch.to_pylist():
                    count += 1
                    yield Row(f"row {count}", values)
        except wrong as error:
            raise damaged("Parquet", error) from error

    return Table(check_names(opened.schema_arrow.names), rows(), lambda: count / total, "its schema")
