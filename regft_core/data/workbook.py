"""The rows of one sheet of an Excel workbook (.xlsx), one after the other; read with openpyxl."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regft_core.data.file_format import WrongFile, check_names, damaged
from regft_core.names import listing, nearest

#: What openpyxl raises for archives that are not whole, or not workbooks. XML parsers raise SyntaxError, also for
#: entities that multiply or name other files.
_DAMAGED = (zipfile.BadZipFile, KeyError, ValueError, OSError, EOFError, SyntaxError)


@dataclass(frozen=True)
class Sheet:
    """A sheet that is being read: ``rows``: (line, values by column) of lines that are not blank.

    ``lines``: how many the workbook says it has; 0 where it does not say.
    """

    names: list[str]
    rows: Iterator[tuple[int, dict[str, Any]]]
    lines: int


@contextmanager
def open_sheet(path: Path, wanted: str | None) -> Iterator[Sheet]:
    """Open the sheet ``wanted`` (None: the only one that is not hidden); its first line names the columns.

    Formulas have the values that were saved with them.

    Raises WrongFile, here or while rows are read: no workbook, no such sheet, no header, a cell with an error.
    """
    try:
        import openpyxl
    except ImportError as error:
        hint = "in the project's environment: pip install -c constraints.txt -e ."
        raise WrongFile("package-missing", "needs the package 'openpyxl', which is not installed", hint) from error
    with path.open("rb") as file:
        if not file.read(4).startswith(b"PK\x03\x04"):
            hint = "save it as .xlsx in Excel; name a text file .csv, .tsv or .jsonl"
            raise WrongFile("another-format", "is not an Excel workbook (.xlsx)", hint)
        try:
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
        except _DAMAGED as error:
            raise damaged("workbook", error) from error
        try:
            sheet = _chosen(book, wanted)
            expected = sheet.max_row or 0
            sheet.reset_dimensions()  # some programs write wrong ones
            lines = _lines(sheet)
            found = next(lines, None)
            names = [] if found is None else ["" if name is None else str(name).strip() for name in found[1]]
            while names and not names[-1]:
                names.pop()
            if not names:
                raise WrongFile("empty-file", "is empty", "the first line of the sheet names the columns")
            check_names(names)
            yield Sheet(names, ((line, _by_column(names, line, row)) for line, row in lines), expected)
        finally:
            book.close()


def _chosen(book: Any, wanted: str | None) -> Any:
    sheets = {sheet.title: sheet for sheet in book.worksheets}
    shown = [title for title, sheet in sheets.items() if sheet.sheet_state == "visible"] or list(sheets)
    if wanted in sheets:
        return sheets[wanted]
    if wanted is None and len(shown) == 1:
        return sheets[shown[0]]
    if wanted is None:
        hint = f"name one under source: sheet: {shown[0]}" if shown else "add one"
        raise WrongFile("sheet-missing", f"has the sheets {listing(repr(name) for name in shown)}", hint)
    near = nearest(wanted, shown)
    similar = f"did you mean '{near}'? " if near else ""
    hint = f"{similar}its sheets: {', '.join(shown)}"
    raise WrongFile("sheet-missing", f"has no sheet '{wanted}'", hint)


def _lines(sheet: Any) -> Iterator[tuple[int, list[Any]]]:
    """Number and values of each line that is not blank."""
    try:
        for line, cells in enumerate(sheet.iter_rows(), start=1):
            if wrong := next((cell for cell in cells if cell.data_type == "e"), None):
                place = f"cell {wrong.coordinate} holds the error {wrong.value}"
                raise WrongFile("error-in-cell", place, "correct the formula, or leave the cell empty")
            values = [cell.value for cell in cells]
            if any(value is not None for value in values):
                yield line, values
    except _DAMAGED as error:
        if isinstance(error, WrongFile):
            raise
        raise damaged("workbook", error) from error


def _by_column(names: list[str], line: int, values: list[Any]) -> dict[str, Any]:
    """The cells of a line under their names; beyond the names only empty cells may stand."""
    if any(value is not None for value in values[len(names) :]):
        message = f"has {len(values)} cells in line {line}, and its first line names {len(names)} columns"
        raise WrongFile("field-count", message, "name every column, or empty the cells beyond them")
    return dict(zip(names, [*values, *[None] * len(names)]))
