"""Predictions as CSV (cells that no spreadsheet takes for a formula) or JSON lines, row by row."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from regft_core.errors import DataError

FORMATS = (".csv", ".jsonl")
#: A cell that starts with one of these may be run as a formula when a spreadsheet opens the file.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
#: Digits after the point of probabilities, and of a value in all: beyond them are the last bits of sums.
DIGITS = 6


def rounded(value: float) -> float:
    """A predicted value to its first ``DIGITS`` digits, whatever its unit."""
    return float(f"{value:.{DIGITS}g}")


def safe_cell(value: Any) -> Any:
    """``value`` as a spreadsheet may show it: text that could be a formula gets a leading ``'``; numbers stay."""
    if not isinstance(value, str) or not value.lstrip(" ").startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return "'" + value
    return value


def encodable(text: str) -> str:
    """Return a text that any file can hold: U+FFFD in place of half a surrogate pair."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Writer:
    """Writes one line per row to an open text file, in a format of ``FORMATS``; of CSV the ``header`` first."""

    def __init__(self, form: str, file: IO[str], columns: Sequence[str], *, header: bool = True) -> None:
        self._json = form == ".jsonl"
        self._file = file
        self._columns = list(columns)
        if not self._json:
            self._csv = csv.writer(file, lineterminator="\n")
            if header:
                self._csv.writerow([safe_cell(encodable(name)) for name in self._columns])

    def row(self, values: Mapping[str, Any]) -> None:
        """Write the values of the columns; None is an empty cell."""
        if self._json:
            line = {name: values.get(name) for name in self._columns}
            self._file.write(encodable(json.dumps(line, ensure_ascii=False, default=str)) + "\n")
            return
        self._csv.writerow([safe_cell(_cell(name, values.get(name))) for name in self._columns])


def _cell(name: str, value: Any) -> Any:
    if isinstance(value, float) and name != "prediction":
        return f"{value:.{DIGITS}f}"
    if isinstance(value, bool | list | dict):
        value = json.dumps(value, ensure_ascii=False, default=str)
    return encodable(value) if isinstance(value, str) else value


def check_output(out: Path, data: Path, overwrite: bool) -> None:
    """Raise DataError when ``out`` cannot be written: its ending, a file that is there, the file that is read."""
    if out.suffix.lower() not in FORMATS:
        raise DataError(
            "unknown-format", f"--out {out}: unknown format\n    -> the name ends in {' or '.join(FORMATS)}"
        )
    if out.resolve() == data.resolve():
        raise DataError("output-is-input", f"--out {out} is the file that is read\n    -> choose another name")
    if out.exists() and not overwrite:
        raise DataError("in-the-way", f"--out {out} exists\n    -> choose another name, or add --overwrite")
