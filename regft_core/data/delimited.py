"""CSV and TSV: the delimiter, and rows that a stray quote has swallowed."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Literal, TextIO

from regft_core.data.file_format import DELIMITERS, Table, WrongFile, tabular
from regft_core.schema.file_format import UNSAID, FileFormat

Lines = Iterator[tuple[int, list[str]]]
#: Different values of a column that are remembered to recognise rows within quotes, and how often one must occur.
REMEMBERED, REPEATED = 1_000, 3


def delimited(stream: TextIO, suffix: str, how: FileFormat = UNSAID) -> Table:
    """Read CSV or TSV with a header line; quoted fields may hold delimiters and line breaks.

    A first line ``sep=;`` names the delimiter, as Excel writes it.

    Args:
        stream: opened with ``newline=""``.

    Raises WrongFile: for a bad header, and later for a bad row.
    """
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

    A line counts where it has the fields that are to be expected there, and one of them is a value that its column
    repeats (a label). Texts that hold line breaks and commas have no such value; a number may be chance, so that lines
    count by numbers alone only where there are several.
    """
    number, header = next(lines, (1, []))
    width = len(header)
    values: list[Counter[str]] = [Counter() for _ in header]
    inside: list[tuple[int, dict[int, str]]] = []  # line of the row, and column -> whole field of a line within quotes
    yield number, header
    for number, cells in lines:
        for column, (counter, cell) in enumerate(zip(values, cells)):
            if len(cell) <= 100 and (len(counter) < REMEMBERED or cell in counter):
                counter[cell] += 1
            if "\n" in cell and width > 1:
                first, *between, last = (part.rstrip("\r").split(delimiter) for part in cell.split("\n"))
                inside += [(number, dict(enumerate(fields))) for fields in between if len(fields) == width]
                if len(first) == width - column > 1:  # ends the row that begins before the quote
                    inside.append((number, dict(enumerate(first[1:], start=column + 1))))
                if len(last) == column + 1 > 1:  # begins the row that ends behind it
                    inside.append((number, dict(enumerate(last[:-1]))))
        yield number, cells
    # A value of such lines alone counts in a column that repeats values, as labels do.
    repeats = [max(counter.values(), default=0) >= REPEATED for counter in values]
    within = Counter(field for _, fields in inside for field in fields.items())

    def is_label(column: int, field: str) -> bool:
        alone = repeats[column] and field == field.strip() and within[column, field] >= REPEATED
        return bool(field) and (values[column][field] >= REPEATED or alone)

    found = [(line, [field for at, field in fields.items() if is_label(at, field)]) for line, fields in inside]
    rows = [(line, labels) for line, labels in found if labels]
    by_chance = not any(c.isalpha() for _, labels in rows for label in labels for c in label)
    if len(rows) >= (REPEATED if by_chance else 1):
        line, (label, *_) = rows[0]
        message = f"holds {len(rows)} lines within quotes that look like rows (first in line {line}, '{label[:60]}')"
        hint = "a quote before them is not closed where it should be: remove it, or write it as two quotes"
        raise WrongFile("rows-in-quotes", message, hint)
