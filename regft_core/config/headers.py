"""Column names of a data file from its first line, so that validation needs no whole file."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Literal, cast

#: A header or first object longer than this is left to the stage that reads the file.
MAX_BYTES = 1024 * 1024
#: So is a compressed Parquet file larger than this: its schema is at its end.
MAX_COMPRESSED = 16 * MAX_BYTES


def quoting_of(delimiter: str, quoted: bool) -> Literal[0, 3]:
    """How the csv module reads quotes where ``delimiter`` separates fields; ``quoted``: a TSV is quoted as CSV is."""
    # A .tsv whose quotes are plain characters (GLUE's files) would swallow rows if they were
    # taken as quoting, so in TSV a quote is a character like any other unless the task says otherwise.
    return csv.QUOTE_NONE if delimiter == "\t" and not quoted else csv.QUOTE_MINIMAL


def columns_of(path: Path, *, quoted: bool = False) -> list[str] | None:
    """Column names of a .csv, .tsv, .jsonl or .parquet file, also .gz; of .jsonl those of its first object.

    ``quoted``: fields of a .tsv are quoted as in CSV. None when the first ``MAX_BYTES`` do not hold the header.
    Raises ValueError, with the reason, for a file that is damaged, empty or not what its name says.
    """
    name = path.name.lower()
    try:
        with open_bytes(path) as stream:
            if name.removesuffix(".gz").endswith(".parquet"):
                large = name.endswith(".gz") and path.stat().st_size > MAX_COMPRESSED
                return None if large else _parquet(stream)
            start = stream.read(MAX_BYTES)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"is a gzip file that is damaged or cut off ({error})") from error
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror or error})") from error
    whole = len(start) < MAX_BYTES
    text = _text(start)
    if name.removesuffix(".gz").endswith(".jsonl"):
        return _first_object(text, whole)
    return _header(text, "\t" if name.removesuffix(".gz").endswith(".tsv") else ",", whole, quoted)


def separator_hint(names: Sequence[str], wanted: Iterable[str], file: str) -> str:
    """What to do about a header that is one name because ``file`` separates its columns by another character.

    Empty when that is not so: the header has several names, or none of ``wanted`` is a part of it.
    """
    kind = ".tsv" if file.lower().removesuffix(".gz").endswith(".tsv") else ".csv"
    given, own = ("tabs", "\t") if kind == ".tsv" else ("commas", ",")
    if len(names) != 1:
        return ""
    for mark, word in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars"), (",", "commas")):
        parts = [part.strip().strip('"') for part in names[0].split(mark)]
        if mark != own and len(parts) > 1 and not set(parts).isdisjoint(wanted):
            return (
                f"its columns are separated by {word}, and {kind} means {given}: "
                "write it anew (data/README.md has the lines)"
            )
    return ""


def open_bytes(path: Path) -> IO[bytes]:
    """The content of a file, unpacked when its name ends in ``.gz``."""
    return cast("IO[bytes]", gzip.open(path)) if path.name.lower().endswith(".gz") else path.open("rb")


def _text(start: bytes) -> str:
    """The part up to the last line break, so that no character is cut in two."""
    end = start.rfind(b"\n") + 1 if len(start) == MAX_BYTES else len(start)
    try:
        return start[:end].decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = start[: error.start].count(b"\n") + 1
        raise ValueError(f"is not UTF-8 text (line {line}, byte {start[error.start]:#04x})") from error


def _header(text: str, delimiter: str, whole: bool, quoted: bool) -> list[str] | None:
    stream, quoting = io.StringIO(text, newline=""), quoting_of(delimiter, quoted)
    try:
        reader = csv.reader(stream, delimiter=delimiter, quoting=quoting, strict=True)
        header = next(reader, None)
    except csv.Error as error:
        if not whole:
            return None
        raise ValueError(f"has a first line that is no header ({error})") from error
    if not header:
        if not whole:
            return None
        raise ValueError("is empty; its first line names the columns")
    return header


def _first_object(text: str, whole: bool) -> list[str] | None:
    line = next((line for line in text.split("\n") if line.strip()), None)
    if line is None:
        if not whole:
            return None
        raise ValueError("is empty; each line is one JSON object")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"has a first line that is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise ValueError("has a first line that is not a JSON object {column: value}")
    return list(value)


def _parquet(stream: IO[bytes]) -> list[str]:
    import pyarrow
    import pyarrow.parquet

    try:
        # The schema is at the end: a compressed file must be unpacked to get there.
        source = io.BytesIO(stream.read()) if isinstance(stream, gzip.GzipFile) else stream
        names: list[str] = pyarrow.parquet.read_schema(source).names
    except (pyarrow.ArrowException, ValueError) as error:
        message = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"is a Parquet file that is damaged or cut off ({message})") from error
    return names
