"""The rows of one sheet of an Excel workbook (.xlsx), one after the other; read with openpyxl."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import IO, Any

from regft_core.data.file_format import TITLES, Advice, Row, Table, WrongFile, advised, check_names, damaged, title_hint
from regft_core.names import listing, nearest

#: What openpyxl raises for archives that are not whole, or not workbooks. XML parsers raise SyntaxError, also for
#: entities that multiply or name other files.
_DAMAGED = (zipfile.BadZipFile, KeyError, ValueError, OSError, EOFError, SyntaxError)


@contextmanager
def open_sheet(file: IO[bytes], wanted: str | None, advice: Advice) -> Iterator[Table]:
    """Read a sheet of a workbook, ``wanted`` or the only one that is not hidden. Cells are text, as in CSV.

    Formulas have the values that were saved with them.
    """
    import openpyxl

    if not file.read(4).startswith(b"PK\x03\x04"):
        hint = "save it as .xlsx in Excel; name a text file .csv, .tsv or .jsonl"
        raise WrongFile("another-format", "is not an Excel workbook (.xlsx)", hint)
    try:
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
    except _DAMAGED as error:
        raise damaged("workbook", error) from error
    try:
        sheet = _chosen(book, wanted, advice)
        total, count = max(1, (sheet.max_row or 0) - 1), 0
        sheet.reset_dimensions()  # some programs write wrong ones
        lines = _lines(sheet)
        top = list(islice(lines, TITLES))
        names = [name.strip() for name in top[0][1]] if top else []
        while names and not names[-1]:
            names.pop()
        if not names:
            raise WrongFile("empty-file", "is empty", "the first line of the sheet names the columns")
        check_names(names)

        def rows() -> Iterator[Row]:
            nonlocal count
            for line, values in chain(top[1:], lines):
                count += 1
                cells = values + [""] * (len(names) - len(values))
                if any(cells[len(names) :]):
                    message = f"has {len(cells)} cells in line {line}, and line {top[0][0]} names {len(names)} columns"
                    raise WrongFile("field-count", message, f"{title_hint(names)}empty the cells beyond the columns")
                if len(names) > 1 and cells[: len(names)] == names:
                    message = f"repeats its header in line {line}"
                    raise WrongFile("header-repeated", message, "remove that line: it is no row")
                yield Row(f"row {count} (line {line})", dict(zip(names, cells)))

        yield Table(names, rows(), lambda: min(1.0, count / total), f"line {top[0][0]}", top)
    finally:
        book.close()


def _chosen(book: Any, wanted: str | None, advice: Advice) -> Any:
    sheets = {sheet.title: sheet for sheet in book.worksheets}
    shown = [title for title, sheet in sheets.items() if sheet.sheet_state == "visible"] or list(sheets)
    if wanted is None and len(shown) == 1:
        return sheets[shown[0]]
    if wanted is None:
        message = f"has the sheets {listing(repr(name) for name in shown)}"
        raise WrongFile("sheet-missing", message, advised("sheet", shown[0], advice) if shown else "add one")
    if wanted not in sheets:
        near = nearest(wanted, shown)
        similar = f"did you mean '{near}'? " if near else ""
        raise WrongFile("sheet-missing", f"has no sheet '{wanted}'", f"{similar}its sheets: {', '.join(shown)}")
    return sheets[wanted]


def _lines(sheet: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield number and cells of each line that is not blank."""
    try:
        for line, cells in enumerate(sheet.iter_rows(), start=1):
            if wrong := next((cell for cell in cells if cell.data_type == "e"), None):
                place = f"cell {wrong.coordinate} holds the error {wrong.value}"
                raise WrongFile("error-in-cell", place, "correct the formula, or leave the cell empty")
            values = [_as_shown(cell.value) for cell in cells]
            if any(values):
                yield line, values
    except WrongFile:
        raise
    except _DAMAGED as error:
        raise damaged("workbook", error) from error


def _as_shown(value: Any) -> str:
    """Return a cell as Excel writes it into a CSV file."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)
