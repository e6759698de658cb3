"""CSV and TSV: the delimiter, rows of the header's length, rows that a stray quote has swallowed."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Literal, TextIO

from regft_core.data.file_format import (
    DELIMITERS,
    NAMES_COLUMNS,
    TITLES,
    Row,
    Table,
    WrongFile,
    check_names,
    title_hint,
)
from regft_core.schema.file_format import UNSAID, FileFormat

#: Different values of a column that are remembered to recognise rows within quotes, and how often one must occur.
REMEMBERED, REPEATED = 1_000, 3


def delimited(stream: TextIO, suffix: str, how: FileFormat = UNSAID, start: str | None = None) -> Table:
    """Read CSV or TSV with a header line; quoted fields may hold delimiters and line breaks.

    A first line ``sep=;`` names the delimiter, as Excel writes it.

    Args:
        stream: opened with ``newline=""``.
        start: its beginning, to tell the delimiter from; None: that of the format is taken.

    Raises:
        WrongFile: for a bad header, and later for a bad row.
    """
    csv.field_size_limit(2**31 - 1)
    first = stream.readline()
    named = re.fullmatch(r"\ufeff?\"?sep=(.)\"?\r?\n?", first)
    skipped = 1 if named else 0
    delimiter = how.delimiter or (named[1] if named else _delimiter(start, suffix, how.quoted))
    quoting = _quoting(suffix, delimiter, how.quoted)
    lines = stream if named else chain([first], stream)
    reader = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)

    def records() -> Iterator[tuple[int, list[str]]]:
        """Yield line and fields of each row; a blank line is none."""
        line = 1 + skipped
        try:
            for values in reader:
                if values or line == 1 + skipped:
                    yield line, values
                line = reader.line_num + skipped + 1
        except csv.Error as error:
            hint = f"check the quotes from line {line} on: each one that opens a field has to be closed"
            message = f"cannot be split into rows: that of line {line}: {error}"
            raise WrongFile("csv-syntax", message, hint) from error

    every = records()
    header = next(every, (0, []))[1]
    if not header:
        raise WrongFile("empty-file", "has an empty first line", NAMES_COLUMNS)
    check_names(header)

    def rows() -> Iterator[Row]:
        quoted = _QuotedRows(delimiter, len(header))
        for count, (line, values) in enumerate(every, start=1):
            position = f"row {count} (line {line})"
            if len(values) != len(header):
                fields = "1 field" if len(values) == 1 else f"{len(values)} fields"
                message = f"{position} has {fields}, and the header (line {1 + skipped}) {len(header)}"
                hint = f"{title_hint(header)}quote fields that hold the delimiter or a line break, or use .jsonl"
                raise WrongFile("field-count", f"{message}: {repr(values)[:100]}", hint)
            if values == header and len(header) > 1:
                message = f"repeats its header in {position}: {repr(values)[:100]}"
                raise WrongFile("header-repeated", message, "remove that line: it is no row")
            if quoting == csv.QUOTE_MINIMAL and len(header) > 1:
                quoted.look(position, values)
            yield Row(position, dict(zip(header, values, strict=True)))
        quoted.check()

    top = [
        (number, {cell.strip().strip('"') for cell in line.strip().split(mark)})
        for number, line in enumerate(islice(io.StringIO(start or "", newline=""), TITLES), start=1)
        for mark in DELIMITERS
    ]
    return Table(header, rows(), header=f"line {1 + skipped}", top=top)


def _delimiter(start: str | None, suffix: str, quoted: bool) -> str:
    """Return the format's own (a comma, of .tsv a tab) where the header has it, else the one of most columns."""
    usual = "\t" if suffix == ".tsv" else ","
    counts = {}
    for mark in (usual, *DELIMITERS):
        quoting = _quoting(suffix, mark, quoted)
        reader = csv.reader(io.StringIO(start or "", newline=""), delimiter=mark, quoting=quoting, strict=True)
        try:
            counts[mark] = len(next(reader, ()))
        except csv.Error:
            counts[mark] = 0
    best = max(counts, key=lambda mark: counts[mark])  # the first of equals
    return usual if counts[usual] > 1 or counts[best] < 2 else best


def _quoting(suffix: str, delimiter: str, quoted: bool) -> Literal[0, 3]:
    # A .tsv whose quotes are plain characters (GLUE's files) would swallow rows if they were
    # taken as quoting, so there a quote is a character like any other unless the task says otherwise.
    return csv.QUOTE_NONE if suffix == ".tsv" and delimiter == "\t" and not quoted else csv.QUOTE_MINIMAL


class _QuotedRows:
    """Recognises rows that a stray quote has swallowed: lines within a cell that are rows, or ends of rows.

    A line counts where it has the fields that are to be expected there, and one of them is a value that its column
    repeats (a label). Texts that hold line breaks and commas have no such value; a number may be chance, so that lines
    count by numbers alone only where there are several.
    """

    def __init__(self, delimiter: str, width: int) -> None:
        self.delimiter, self.width = delimiter, width
        self.values: list[Counter[str]] = [Counter() for _ in range(width)]
        #: (position of the row, column -> value of whole fields of a line within quotes).
        self.inside: list[tuple[str, dict[int, str]]] = []

    def look(self, position: str, cells: Sequence[str]) -> None:
        """Remember the values of a row, and the lines within its cells that have as many fields as a row."""
        for column, (counter, cell) in enumerate(zip(self.values, cells)):
            if len(cell) <= 100 and (len(counter) < REMEMBERED or cell in counter):
                counter[cell] += 1
            if "\n" not in cell:
                continue
            first, *between, last = (line.rstrip("\r").split(self.delimiter) for line in cell.split("\n"))
            # The first line ends a row whose fields from ``column`` on it holds, the last one begins a row.
            lines = [(0, line) for line in between if len(line) == self.width]
            lines += [(column + 1, first[1:])] if len(first) == self.width - column > 1 else []
            lines += [(0, last[:-1])] if len(last) == column + 1 > 1 else []
            self.inside += [(position, dict(enumerate(parts, start=begin))) for begin, parts in lines]

    def check(self) -> None:
        """Raise WrongFile where lines within quotes are rows."""
        # A value of such lines alone counts in a column that repeats values, as labels do.
        repeating = [max(counter.values(), default=0) >= REPEATED for counter in self.values]
        within = [Counter(parts.get(column) for _, parts in self.inside) for column in range(self.width)]

        def is_label(column: int, part: str) -> bool:
            alone = repeating[column] and part == part.strip() and within[column][part] >= REPEATED
            return bool(part) and (self.values[column][part] >= REPEATED or alone)

        rows = [
            (position, repeated)
            for position, parts in self.inside
            if (repeated := [part for column, part in parts.items() if is_label(column, part)])
        ]
        by_chance = all(not any(map(str.isalpha, part)) for _, repeated in rows for part in repeated)
        if len(rows) >= (REPEATED if by_chance else 1):
            position, (value, *_) = rows[0]
            count = f"{len(rows)} lines" if len(rows) > 1 else "a line"
            message = f"holds {count} within quotes that look like rows (first in {position}, with '{value[:60]}')"
            hint = "a quote before them is not closed where it should be: remove it, or write it as two quotes"
            raise WrongFile("rows-in-quotes", message, hint)
