"""Column names of a data file from its first line, so that validation needs no whole file."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from pathlib import Path
from typing import IO

from regft_core.data.file_format import (
    MAX_BYTES,
    UNSAID,
    FileFormat,
    WrongFile,
    check_names,
    damaged,
    header,
    open_bytes,
    suffix_of,
    tell,
    unreadable,
)
from regft_core.data.workbook import open_sheet

#: A compressed Parquet file larger than this is left to the stage that reads it: its schema is at its end.
MAX_COMPRESSED = 16 * MAX_BYTES


def columns_of(path: Path, how: FileFormat = UNSAID) -> list[str] | None:
    """Column names of a data file (``FORMATS``, also .gz); of .jsonl those of its first object.

    None when the first ``MAX_BYTES`` do not hold the header. Raises WrongFile for a file that is damaged, empty or
    not what its name says.
    """
    suffix = suffix_of(path)
    if suffix == ".parquet":
        return _parquet(path)
    if suffix == ".xlsx":
        with open_sheet(path, how.sheet) as sheet:
            return sheet.names
    told = tell(path, how)
    return _first_object(told.start, told.whole) if suffix == ".jsonl" else header(told)


def _first_object(text: str, whole: bool) -> list[str] | None:
    line = next((line for line in text.split("\n") if line.strip()), None)
    if line is None:
        if not whole:
            return None
        raise WrongFile("empty-file", "is empty", "each line is one JSON object")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        hint = "write one object {column: value} on each line"
        raise WrongFile("not-json", f"has a first line that is not JSON ({error})", hint) from error
    if not isinstance(value, dict):
        hint = "write one object on each line, not a list of them"
        raise WrongFile("not-an-object", "has a first line that is not a JSON object {column: value}", hint)
    return list(value)


def _parquet(path: Path) -> list[str] | None:
    import pyarrow
    import pyarrow.parquet

    packed = path.name.lower().endswith(".gz")
    try:
        if packed and path.stat().st_size > MAX_COMPRESSED:
            return None
        with open_bytes(path) as stream:
            # The schema is at the end: a compressed file must be unpacked to get there.
            source: IO[bytes] = io.BytesIO(stream.read()) if packed else stream
            names: list[str] = pyarrow.parquet.read_schema(source).names
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise damaged("gzip", error) from error
    except (pyarrow.ArrowException, ValueError) as error:
        raise damaged("Parquet", error) from error
    except OSError as error:
        raise unreadable(error) from error
    return check_names(names)
