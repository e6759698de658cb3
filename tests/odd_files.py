"""Contents of data files for tests: workbooks, Parquet, lines of reviews."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from tests.small_project import review


def workbook(**sheets: Sequence[Sequence[Any]]) -> bytes:
    """Return an .xlsx with a sheet for each keyword."""
    import openpyxl

    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    written = io.BytesIO()
    book.save(written)
    return written.getvalue()


def parquet(rows: list[dict[str, Any]]) -> bytes:
    """Return a Parquet file of some rows."""
    import pyarrow
    import pyarrow.parquet

    written = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), written)
    return written.getvalue()


def texts(count: int) -> list[str]:
    """Return different texts."""
    return [f"{review(number)} {number}" for number in range(count)]
