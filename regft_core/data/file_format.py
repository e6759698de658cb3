"""How data files are written, what a file gives when it is read, and what is wrong with one."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from regft_core.names import listing, nearest

FORMATS = (".csv", ".tsv", ".jsonl", ".parquet", ".xlsx")
NAMED = f"save it as {', '.join(FORMATS[:-1])} (each also with .gz) or {FORMATS[-1]}; .jsonl has one JSON object a line"
NAMES_COLUMNS = "its first line names the columns"
ONE_OBJECT = "write one JSON object {column: value} on each line"
#: Delimiters that are looked for in a header, with their names.
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
#: Lines in which a header below a title is looked for.
TITLES = 30


class WrongFile(ValueError):
    """A fault of a file, as the end of a sentence that begins with its name; ``hint`` says what to do."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code, self.hint = code, hint


#: How advice names a key: under ``source`` of a task's YAML, or as an option of the command that reads the file.
Advice = Literal["key", "option"]


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
        done: share of the file that was read.
        header: where the names stand, for messages.
        top: numbers and cells of the first lines, among which the names may stand below a title.
    """

    names: list[str]
    rows: Iterator[Row]
    done: Callable[[], float] = lambda: 0.0
    header: str = "line 1"
    top: Sequence[tuple[int, Collection[str]]] = ()


def suffix_of(path: Path) -> str:
    """Return the ending that names the format, ``.gz`` apart."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def is_known(path: Path) -> bool:
    """Return whether the name is that of a format that can be read."""
    return suffix_of(path) in FORMATS and not path.name.lower().endswith(".xlsx.gz")


def advised(key: str, value: str, advice: Advice) -> str:
    """Return how a user says ``key: value`` of a file: as an option, or in a task's YAML."""
    if advice == "option":
        return f"add --{key} {'tab' if value == chr(9) else shlex.quote(value)}"
    return f"write {key}: {json.dumps(value, ensure_ascii=False)} under source"


def check_names(names: list[str]) -> list[str]:
    """Return the names; raises WrongFile where one stands twice. Columns without a name are nobody's."""
    counts = Counter(names)
    if repeated := next((name for name in names if name and counts[name] > 1), None):
        raise WrongFile("column-twice", f"names the column '{repeated}' twice", "rename or remove one of them")
    return names


def damaged(what: str, error: Exception) -> WrongFile:
    """Return what is wrong with a file that is not whole."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return WrongFile("damaged-file", f"is a {what} file that is damaged or cut off ({reason})", "copy it again")


def title_hint(header: Sequence[str]) -> str:
    """Return the start of a hint where a title seems to stand above the names of the columns."""
    return f"{NAMES_COLUMNS}; remove lines above them, or " if sum(map(bool, header)) == 1 else ""


def column_problems(
    table: Table, wanted: Sequence[tuple[str, str]], advice: Advice = "option"
) -> list[tuple[str, str, str]]:
    """Return (what names it, message, hint) for each wanted column that a table lacks.

    A header that is wrong as a whole (another delimiter, a title above it) is one problem.

    Args:
        wanted: pairs of the option or key that names a column, and the column.
    """
    present = set(table.names)
    missing = [(key, name) for key, name in wanted if name not in present]
    if not missing:
        return []
    shown = listing(repr(name[:60]) for name in table.names)
    key, first = missing[0]
    for mark, word in DELIMITERS.items():
        parts = {part.strip().strip('"') for name in table.names if mark in name for part in name.split(mark)}
        if not (parts - present).isdisjoint(name for _, name in missing):
            hint = f"{word} seem to separate its columns: {advised('delimiter', mark, advice)}"
            return [(key, f"no column '{first}'", hint)]
    for line, cells in table.top:
        if all(name in cells for _, name in wanted):
            hint = f"remove the lines above line {line}: the first line names the columns"
            return [(key, f"no column '{first}'; {table.header} was taken for their names: {shown}", hint)]
    problems = []
    for key, name in missing:
        outer, near = name.partition(".")[0], nearest(name, table.names)
        if "." in name and outer in present:
            message, hint = f"no column '{name}', and fields within '{outer}' are not read", "write them on one level"
        else:
            message = f"no column '{name}'"
            hint = f"did you mean '{near}'? " if near else ""
            hint += f"{table.header} names the columns: {shown}"
            hint += "" if near or table.header != "line 1" else "; if that is a row, write the names above it"
        problems.append((key, message, hint))
    return problems
