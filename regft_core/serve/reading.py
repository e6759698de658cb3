"""The texts in the rows of a new file: which columns hold them, and what a cell may be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regft_core.data.declare import Row
from regft_core.data.examples import Example
from regft_core.data.file_format import separator_hint
from regft_core.errors import DataError
from regft_core.names import listing, nearest
from regft_core.serve.model import ServedAnswers, ServedModel


@dataclass(frozen=True)
class Columns:
    """Where the texts are: column names of the file."""

    text: str
    text_pair: str | None


def choose_columns(
    model: ServedModel | ServedAnswers, names: Sequence[str], data: Path | str, text: str | None, text_pair: str | None
) -> Columns:
    """The columns to read: what the caller says, else those of the training data.

    Raises DataError when they are not there, or a pair is given to a model of single texts.
    """
    columns = columns_of_requests(model, text, text_pair)
    require_columns(names, [("--text", columns.text), ("--text-pair", columns.text_pair)], data)
    return columns


def columns_of_requests(model: ServedModel | ServedAnswers, text: str | None, text_pair: str | None) -> Columns:
    """The columns to read, not compared with those of any file. Raises DataError for a pair for a model of texts."""
    if text_pair is not None and model.pairs is False:
        raise DataError(
            "single-text-model", "--text-pair: this model was trained on single texts\n    -> leave --text-pair out"
        )
    return Columns(text or model.text or "text", text_pair or model.text_pair)


def require_columns(names: Sequence[str], wanted: Sequence[tuple[str, str | None]], data: Path | str) -> None:
    """Raise DataError when a wanted column (option that names it, column) is not among ``names``."""
    missing = [(option, name) for option, name in wanted if name is not None and name not in names]
    if not missing:
        return
    if hint := separator_hint(names, [str(name) for _, name in missing], "save it with commas"):
        raise DataError("column-missing", f"{data}: no column '{missing[0][1]}' ({missing[0][0]})\n    -> {hint}")
    nears = [nearest(str(name), names) for _, name in missing]
    if [option for option, _ in missing] == ["--text", "--text-pair"] and None not in nears and nears[0] != nears[1]:
        # Names that differ in a letter (text_a, text_b) are equally near: a pair is rather in the order of the file.
        nears.sort(key=lambda near: names.index(str(near)))
    lines = []
    for (option, name), near in zip(missing, nears, strict=True):
        lines.append(f"no column '{name}' ({option})" + (f", did you mean '{near}'?" if near else ""))
    options = " ".join(f"{option} COLUMN" for option in dict.fromkeys(option for option, _ in missing))
    raise DataError(
        "column-missing",
        f"{data}: {'; '.join(lines)}\n    -> its columns are {listing(repr(name) for name in names)}; "
        f"name the right one: {options}",
    )


def example_of(row: Row, columns: Columns) -> Example | None:
    """The texts of a row; None where one is empty. Raises DataError for something else than text."""
    text = _text(row, columns.text)
    pair = None if columns.text_pair is None else _text(row, columns.text_pair)
    if text is None or (columns.text_pair is not None and pair is None):
        return None
    return Example(row.position, text, pair, 0)


def _text(row: Row, column: str) -> str | None:
    """The text of a cell; None for an empty one. Raises DataError for something else than text."""
    value = row.values.get(column)
    if isinstance(value, list | tuple) and value and all(isinstance(part, str) for part in value):
        value = " ".join(value)  # keyword lists, as in training data
    if (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or (isinstance(value, str) and not value.strip())
    ):
        return None
    if not isinstance(value, str):
        raise DataError(
            "not-text",
            f"{row.position}: column '{column}' is {repr(value)[:60]}, not text\n"
            "    -> correct the row, or name another column",
        )
    return value
