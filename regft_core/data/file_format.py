"""Names of data formats, a table of rows as it is read, what is wrong with a file or its columns; CSV and TSV."""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TextIO

from regft_core.names import listing, nearest
from regft_core.schema import NAME_LENGTH
from regft_core.schema.sources import UNSAID, FileFormat

FORMATS = (".csv", ".tsv", ".jsonl", ".parquet", ".xlsx")
NAMED = f"save it as {', '.join(FORMATS[:-1])} (each also with .gz) or {FORMATS[-1]}; .jsonl has one JSON object a line"
#: Delimiters that are looked for in a header, with their names.
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
#: Number and cells of each line.
Lines = Iterator[tuple[int, list[str]]]


class WrongFile(ValueError):
    """A fault of a file, as the end of a sentence that begins with its name; ``hint`` is the next step."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code, self.hint = code, hint


@dataclass(frozen=True)
class Row:
    """One raw row: ``position`` is where a user finds it ("row 3 (line 4)"), ``values`` by column name."""

    position: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """A file that is being read: columns ``names`` (told in ``header``), ``rows`` to be read once, share ``done``."""

    names: list[str]
    rows: Iterator[Row]
    header: str = "line 1"
    done: Callable[[], float] = lambda: 0.0


def suffix_of(path: Path) -> str:
    """Return the ending that names the format, ``.gz`` apart."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def is_known(path: Path) -> bool:
    """Return whether the name is that of a format that can be read."""
    return suffix_of(path) in FORMATS and not path.name.lower().endswith(".xlsx.gz")


def advised(key: str, value: str) -> str:
    """Return how a user says ``key: value`` of a file: as an option, or in the ``source`` of a task's YAML."""
    option = f"--{key} {'tab' if value == chr(9) else shlex.quote(value)}"
    return f"add {option} (to a task's source: {key}: {json.dumps(value, ensure_ascii=False)})"


def check_names(names: list[str]) -> list[str]:
    """Return the names of columns; raises WrongFile for one that occurs twice. One column may have none."""
    if repeated := next((name for name, count in Counter(filter(None, names)).items() if count > 1), None):
        raise WrongFile("column-twice", f"names the column '{repeated}' twice", "rename or remove one of them")
    return names


def tabular(lines: Lines) -> Table:
    """Return the table of numbered lines, the first of which names the columns. WrongFile, also while rows are read."""
    first, names = next(lines, (1, []))
    if not names:
        raise WrongFile("empty-file", "is empty, or its first line is", "its first line names the columns")
    header = names
    if names.count("") > 1:  # of several without a name a row would keep the last cell alone
        names = [name or f"column {number}" for number, name in enumerate(names, start=1)]
    check_names(names)

    def rows() -> Iterator[Row]:
        for count, (line, cells) in enumerate(lines, start=1):
            position = f"row {count} (line {line})"
            if len(cells) != len(names):
                message = f"has {len(cells)} cells in {position}, and line {first} names {len(names)} columns"
                hint = "remove lines above the header, quote cells that hold the delimiter, or use .jsonl"
                raise WrongFile("field-count", f"{message}: {repr(cells)[:100]}", hint)
            if cells == header and len(names) > 1:
                raise WrongFile("header-repeated", f"repeats its header in {position}", "remove that line")
            yield Row(position, dict(zip(names, cells, strict=True)))

    return Table(names, rows(), header=f"line {first}")


def column_problems(table: Table, wanted: Sequence[tuple[str, str]]) -> list[tuple[str, str, str]]:
    """Return (option or key, message, hint) for each ``wanted`` (option or key, column) that a table lacks."""
    present = set(table.names)
    missing = [(key, name) for key, name in wanted if name not in present]
    for mark, word in DELIMITERS.items() if missing else ():
        parts = {part.strip().strip('"') for name in table.names if mark in name for part in name.split(mark)}
        if not (parts - present).isdisjoint(name for _, name in missing):
            hint = f"{word} seem to separate its columns: {advised('delimiter', mark)}"
            return [(missing[0][0], f"no column '{missing[0][1]}'", hint)]
    shown = f"{table.header} names the columns: {listing(repr(name[:60]) for name in table.names)}"
    problems = []
    for key, name in missing:
        outer, near = name.partition(".")[0], nearest(name, table.names)
        if "." in name and outer in present:
            message, hint = f"no column '{name}', and fields within '{outer}' are not read", "write them on one level"
        else:
            message, hint = f"no column '{name}'", f"did you mean '{near}'? {shown}" if near else shown
            hint += "" if near or table.header != "line 1" else "; write the names on the first line"
        problems.append((key, message, hint))
    return problems


def name_of(file: Path) -> str:
    """Return the name of a file's task or set: its own, in the letters that names may have."""
    name = re.sub(r"[^a-z0-9_-]+", "-", file.name.split(".")[0].lower()).strip("-_")
    return name[:NAME_LENGTH] or "rows"


def below_data(split: str) -> Path:
    """Return the path of a file below ``data/``, which may be written in front or not."""
    path = Path(split)
    return path.relative_to("data") if path.parts[:1] == ("data",) else path


#: Different values of a column that are remembered to recognise rows within quotes, and how often one must occur.
REMEMBERED, REPEATED = 1_000, 3


def delimited(stream: TextIO, suffix: str, how: FileFormat = UNSAID) -> Table:
    """Read CSV or TSV with a header, opened with ``newline=""``; a first line ``sep=;`` names the delimiter."""
    csv.field_size_limit(2**31 - 1)
    first = stream.readline()
    named = re.fullmatch(r"\ufeff?\"?sep=(.)\"?\r?\n?", first)
    delimiter = how.delimiter or (named[1] if named else _delimiter(first, suffix, how.quoted))
    quoting = _quoting(suffix, delimiter, how.quoted)
    lines = stream if named else chain([first], stream)
    reader = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)
    records = _records(reader, 1 if named else 0)
    return tabular(_without_swallowed_rows(records, delimiter) if quoting == csv.QUOTE_MINIMAL else records)


def _records(reader: Iterator[list[str]], skipped: int) -> Lines:
    """Yield number and fields of each line, the first one also when it is blank."""
    line = 1 + skipped
    try:
        for fields in reader:
            if fields or line == 1 + skipped:
                yield line, fields
            line = reader.line_num + skipped + 1  # type: ignore[attr-defined]
    except csv.Error as error:
        hint = f"check the quotes from line {line} on: each one that opens a field has to be closed"
        raise WrongFile("csv-syntax", f"cannot be split into rows: that of line {line}: {error}", hint) from error


def _delimiter(header: str, suffix: str, quoted: bool) -> str:
    """Return the format's own (a comma, of .tsv a tab) where the header has it, else the one of most columns."""
    usual = "\t" if suffix == ".tsv" else ","
    counts = {}
    for mark in (usual, *DELIMITERS):
        try:
            fields = next(csv.reader([header], delimiter=mark, quoting=_quoting(suffix, mark, quoted), strict=True), [])
            counts[mark] = len(fields)
        except csv.Error:
            counts[mark] = 0
    best = max(counts, key=lambda mark: counts[mark])  # the first of equals
    return usual if counts[usual] > 1 or counts[best] < 2 else best


def _quoting(suffix: str, delimiter: str, quoted: bool) -> Literal[0, 3]:
    # A .tsv whose quotes are plain characters (GLUE's files) would swallow rows if they were
    # taken as quoting, so there a quote is a character like any other unless the task says otherwise.
    return csv.QUOTE_NONE if suffix == ".tsv" and delimiter == "\t" and not quoted else csv.QUOTE_MINIMAL


def _without_swallowed_rows(lines: Lines, delimiter: str) -> Lines:
    """Yield the lines; raise WrongFile at the end where lines within their quotes are rows, or ends of rows.

    A line counts where it has the fields to be expected there, one of them a value that its column repeats (a label).
    Lines with numbers alone count only where there are several.
    """
    number, header = next(lines, (1, []))
    yield number, header
    values: list[Counter[str]] = [Counter() for _ in header]
    inside: list[tuple[int, dict[int, str]]] = []  # line of the row, and column -> whole field of a line within quotes
    for number, cells in lines:
        for column, (counter, cell) in enumerate(zip(values, cells)):
            if len(cell) <= 100 and (len(counter) < REMEMBERED or cell in counter):
                counter[cell] += 1
            if "\n" in cell and len(header) > 1:
                # The first one ends the row that begins before the quote, the last begins the one that ends behind it.
                first, *between, last = (part.rstrip("\r").split(delimiter) for part in cell.split("\n"))
                inside += [(number, dict(enumerate(fields))) for fields in between if len(fields) == len(header)]
                if len(first) == len(header) - column > 1:
                    inside.append((number, dict(enumerate(first[1:], start=column + 1))))
                if len(last) == column + 1 > 1:
                    inside.append((number, dict(enumerate(last[:-1]))))
        yield number, cells
    within = Counter(field for _, fields in inside for field in fields.items())
    labels = {
        (column, field)
        for (column, field), count in within.items()
        # A value of such lines alone counts in a column that repeats values, as labels do.
        if max(values[column].values(), default=0) >= REPEATED
        and field == field.strip() != ""
        and values[column][field] + count >= REPEATED
    }
    rows = [(line, shown) for line, fields in inside if (shown := [f for at, f in fields.items() if (at, f) in labels])]
    by_chance = not any(c.isalpha() for _, shown in rows for field in shown for c in field)
    if len(rows) >= (REPEATED if by_chance else 1):
        line, (label, *_) = rows[0]
        message = f"holds {len(rows)} lines within quotes that look like rows (first in line {line}, '{label[:60]}')"
        hint = "a quote before them is not closed where it should be: remove it, or write it as two quotes"
        raise WrongFile("rows-in-quotes", message, hint)
