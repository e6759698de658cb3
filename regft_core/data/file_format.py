"""Names of data formats, a table of rows as it is read, and what is wrong with a file or its columns."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regft_core.names import listing, nearest

FORMATS = (".csv", ".tsv", ".jsonl", ".parquet", ".xlsx")
NAMED = f"save it as {', '.join(FORMATS[:-1])} (each also with .gz) or {FORMATS[-1]}; .jsonl has one JSON object a line"
NAMES_COLUMNS = "its first line names the columns"
#: Delimiters that are looked for in a header, with their names.
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


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
    """A file that is being read.

    Attributes:
        names: its columns; of JSON lines the keys of the first rows.
        rows: to be read once.
        header: where the names are, for messages.
        done: share of the file that was read.
    """

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


def damaged(what: str, error: Exception) -> WrongFile:
    """Return the fault of a file that is not whole, or of another format than its name says."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    hint = "copy it again, or name it by its format"
    return WrongFile("damaged-file", f"is a {what} file that is damaged or cut off ({reason})", hint)


def check_names(names: list[str]) -> list[str]:
    """Return the names of columns; raises WrongFile for one that occurs twice. Columns without a name are not read."""
    if repeated := next((name for name, count in Counter(filter(None, names)).items() if count > 1), None):
        raise WrongFile("column-twice", f"names the column '{repeated}' twice", "rename or remove one of them")
    return names


def tabular(lines: Iterator[tuple[int, list[str]]]) -> Table:
    """Return the table of numbered lines of cells, the first of which names the columns.

    Raises WrongFile: for a bad header, and later for a row of another length, or one that repeats the header.
    """
    first, names = next(lines, (1, []))
    if not names:
        raise WrongFile("empty-file", "is empty, or its first line is", NAMES_COLUMNS)
    check_names(names)

    def rows() -> Iterator[Row]:
        for count, (line, cells) in enumerate(lines, start=1):
            position = f"row {count} (line {line})"
            if len(cells) != len(names):
                message = f"has {len(cells)} cells in {position}, and line {first} names {len(names)} columns"
                hint = "remove lines above the header, quote cells that hold the delimiter, or use .jsonl"
                raise WrongFile("field-count", f"{message}: {repr(cells)[:100]}", hint)
            if cells == names and len(names) > 1:
                raise WrongFile("header-repeated", f"repeats its header in {position}", "remove that line")
            yield Row(position, dict(zip(names, cells, strict=True)))

    return Table(names, rows(), header=f"line {first}")


def column_problems(table: Table, wanted: Sequence[tuple[str, str]]) -> list[tuple[str, str, str]]:
    """Return (what names it, message, hint) for each wanted column that a table lacks; one for a wrong delimiter.

    Args:
        wanted: pairs of the option or key that names a column, and the column.
    """
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


def below_data(split: str) -> Path:
    """The path of a file below ``data/``, which may be written in front or not."""
    parts = Path(split).parts
    return Path(*parts[1:]) if parts[:1] == ("data",) else Path(*parts)
