"""How a data file is written: format, encoding and delimiter, told from its name, its first bytes and its header.

The one place that knows it: validation reads the header with it (``headers``), stages the rows (``data.rows``).
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, cast

FORMATS = (".csv", ".tsv", ".jsonl", ".parquet", ".xlsx")
NAMED = f"save it as {', '.join(FORMATS[:-1])} (each also with .gz) or {FORMATS[-1]}; .jsonl has one JSON object a line"
#: How a text file begins, for a hint on an empty one.
NAMES_COLUMNS = "its first line names the columns"
STARTS = {".csv": NAMES_COLUMNS, ".tsv": NAMES_COLUMNS, ".jsonl": "each line is one JSON object"}
#: What is looked at before the rows: a header or first object longer than this is left to the stage that reads them.
MAX_BYTES = 1024 * 1024
#: Delimiters that are looked for in a header, with their names.
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
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


class WrongFile(ValueError):
    """What is wrong with a file, as the end of a sentence that begins with its name; ``hint`` says what to do."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code, self.hint = code, hint


@dataclass(frozen=True)
class FileFormat:
    """What is said of a file beside its name; ``FilesSource`` has the same keys.

    Attributes:
        delimiter: None: told from the header.
        encoding: None: told from the byte-order mark, else UTF-8.
        quoted: fields of a .tsv are quoted as in CSV.
        sheet: of an .xlsx; None: the only one.
    """

    delimiter: str | None = None
    encoding: str | None = None
    quoted: bool = False
    sheet: str | None = None


#: Nothing is said: all is told from the file.
UNSAID = FileFormat()


@dataclass(frozen=True)
class Told:
    """How a text file is written, and its first ``MAX_BYTES`` as text: complete lines only, unless ``whole``."""

    encoding: str
    delimiter: str
    quoting: Literal[0, 3]
    start: str
    whole: bool


def suffix_of(path: Path) -> str:
    """The ending that names the format, ``.gz`` apart."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def is_known(path: Path) -> bool:
    """Whether the name is that of a format that can be read."""
    return suffix_of(path) in FORMATS and not path.name.lower().endswith(".xlsx.gz")


def open_bytes(path: Path) -> IO[bytes]:
    """The content of a file, unpacked when its name ends in ``.gz``."""
    return cast("IO[bytes]", gzip.open(path)) if path.name.lower().endswith(".gz") else path.open("rb")


def tell(path: Path, how: FileFormat) -> Told:
    """How a .csv, .tsv or .jsonl file is written. Raises WrongFile: unreadable, empty, no text, another format."""
    try:
        with open_bytes(path) as stream:
            start = stream.read(MAX_BYTES)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise damaged("gzip", error) from error
    except OSError as error:
        raise unreadable(error) from error
    suffix, whole = suffix_of(path), len(start) < MAX_BYTES
    encoding = _encoding(start, how.encoding)
    _check_content(start, suffix, encoding)
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(start, final=whole)
    except UnicodeDecodeError as error:
        raise not_text(error, how.encoding) from error
    if not whole:
        text = text[: text.rfind("\n") + 1]
    if whole and not text.strip():
        raise WrongFile("empty-file", "is empty", STARTS[suffix])
    delimiter = how.delimiter or _delimiter(text, suffix, how.quoted)
    return Told(encoding, delimiter, _quoting(suffix, delimiter, how.quoted), text, whole)


def header(told: Told) -> list[str] | None:
    """Column names of a delimited file; None when its header is longer than what was looked at. Raises WrongFile."""
    try:
        names = _first(told.start, told.delimiter, told.quoting)
    except csv.Error as error:
        if not told.whole:
            return None
        raise WrongFile("csv-syntax", f"has a first line that is not a header ({error})", "check its quotes") from error
    if names is None and not told.whole:
        return None
    if not names:
        raise WrongFile("empty-file", "has an empty first line", NAMES_COLUMNS)
    return check_names(names)


def check_names(names: list[str]) -> list[str]:
    """The names, as they are; raises WrongFile where one stands twice. Columns without a name are nobody's."""
    if repeated := sorted({name for name in names if name and names.count(name) > 1}):
        raise WrongFile("column-twice", f"names the column '{repeated[0]}' twice", "rename or remove one of them")
    return names


def separator_hint(
    names: Sequence[str], wanted: Sequence[str], remedy: str = "write delimiter: {} under source"
) -> str:
    """What to do where a header was split at another delimiter than its own, so that ``wanted`` are not found.

    Empty when no other delimiter gives one of them. ``remedy`` takes the delimiter as YAML writes it.
    """
    for mark, word in DELIMITERS.items():
        parts = {part.strip().strip('"') for name in names for part in name.split(mark)} - set(names)
        if any(mark in name for name in names) and not parts.isdisjoint(wanted):
            written = '"\\t"' if mark == "\t" else f'"{mark}"'
            return f"{word} seem to separate its columns: {remedy.format(written)}"
    return ""


def unreadable(error: OSError) -> WrongFile:
    """A file that the system does not open."""
    hint = "check that the file is there, and its permissions"
    return WrongFile("cannot-read", f"cannot be read ({error.strerror or error})", hint)


def damaged(what: str, error: Exception) -> WrongFile:
    """A file that is not whole."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return WrongFile("damaged-file", f"is a {what} file that is damaged or cut off ({reason})", "copy it again")


def not_text(error: UnicodeDecodeError, given: str | None, lines: int = 0) -> WrongFile:
    """A file with a byte that its encoding has not, behind ``lines`` lines and the rest of the bytes of ``error``."""
    line = lines + error.object[: error.start].count(b"\n") + 1
    at = f"line {line}, byte {error.object[error.start]:#04x}"
    hint = (
        "save the file as UTF-8, or name its encoding (Windows, Western Europe: cp1252): "
        "encoding: cp1252 under source, or `regft fit --encoding cp1252`"
    )
    if given is not None:
        return WrongFile("not-its-encoding", f"is not {given} text ({at})", hint)
    return WrongFile("not-utf8", f"is not UTF-8 text ({at})", hint)


def _encoding(start: bytes, given: str | None) -> str:
    if given is not None:
        return "utf-8-sig" if codecs.lookup(given).name == "utf-8" else given
    return next((name for mark, name in _MARKS.items() if start.startswith(mark)), "utf-8-sig")


def _check_content(start: bytes, suffix: str, encoding: str) -> None:
    for mark, (what, hint) in _CONTENTS.items():
        if start.startswith(mark):
            raise WrongFile("another-format", f"is {what}, not {suffix} text", hint)
    if b"\0" in start and not encoding.lower().replace("_", "-").startswith(("utf-16", "utf-32")):
        hint = f"give a {suffix} file; UTF-16 text without a byte-order mark needs encoding: utf-16-le under source"
        raise WrongFile("binary-file", "is a binary file, not text", hint)


def _delimiter(text: str, suffix: str, quoted: bool) -> str:
    """The format's own (a comma, of .tsv a tab) where the header has it, else the one that gives most columns."""
    own = "\t" if suffix == ".tsv" else ","
    counts = {}
    for mark in (own, *DELIMITERS):
        try:
            counts[mark] = len(_first(text, mark, _quoting(suffix, mark, quoted)) or ())
        except csv.Error:
            counts[mark] = 0
    best = max(counts, key=lambda mark: counts[mark])  # the first of equals
    return own if counts[own] > 1 or counts[best] < 2 else best


def _quoting(suffix: str, delimiter: str, quoted: bool) -> Literal[0, 3]:
    # A .tsv whose quotes are plain characters (GLUE's files) would swallow rows if they were
    # taken as quoting, so there a quote is a character like any other unless the task says otherwise.
    return csv.QUOTE_NONE if suffix == ".tsv" and delimiter == "\t" and not quoted else csv.QUOTE_MINIMAL


def _first(text: str, delimiter: str, quoting: Literal[0, 3]) -> list[str] | None:
    stream = io.StringIO(text, newline="")
    return next(csv.reader(stream, delimiter=delimiter, quoting=quoting, strict=True), None)
