"""The texts in the rows of a new file: how it is read, which columns hold them, which rows have none."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from regft_core.data.examples import Example, WrongText, text_of
from regft_core.data.file_format import Row, Table, WrongFile, column_problems
from regft_core.data.table import opened
from regft_core.errors import DataError
from regft_core.schema.file_format import FileFormat
from regft_core.serve.answers import Counted
from regft_core.serve.model import ServedModel


@dataclass(frozen=True)
class Columns:
    """Where the texts are: column names of the file."""

    text: str
    text_pair: str | None

    @property
    def options(self) -> list[tuple[str, str]]:
        """Option of the command line -> column."""
        pair = [] if self.text_pair is None else [("--text-pair", self.text_pair)]
        return [("--text", self.text), *pair]


def columns_of_requests(model: ServedModel, text: str | None, text_pair: str | None) -> Columns:
    """Return the columns to read: what the caller says, else those of the training data.

    Raises DataError for a pair for a model of single texts.
    """
    if text_pair is not None and model.pairs is False:
        raise DataError(
            "single-text-model", "--text-pair: this model was trained on single texts\n    -> leave --text-pair out"
        )
    return Columns(text or model.served.text, text_pair or model.served.text_pair)


def format_of(path: Path, how: FileFormat, model: ServedModel, columns: Columns) -> FileFormat:
    """Return how a new file is read: as ``how`` says, completed by the training file's format where it has to be.

    A file that tells its encoding and has the columns is read as it is.
    """
    completed = replace(how, **{k: value for k, value in model.served.file_format.items() if not getattr(how, k)})
    if completed == how:
        return how
    try:
        with opened(path, how, "option") as table:
            if column_problems(table, columns.options):
                return completed
            if how.encoding != completed.encoding:
                deque(table.rows, maxlen=0)  # a byte that is not UTF-8 may stand on the last line
    except WrongFile as wrong:
        return completed if wrong.code in ("not-utf8", "binary-file", "sheet-missing") else how
    return how


def require_columns(table: Table, columns: Columns, keep: Sequence[str], data: Path | str) -> None:
    """Raise DataError when a column of the texts, or one to ``keep``, is not there."""
    if problems := column_problems(table, [*columns.options, *(("--keep", name) for name in keep)]):
        lines = "; ".join(f"{message} ({option})" for option, message, _ in problems)
        hints = dict.fromkeys(hint for _, _, hint in problems)
        options = " ".join(f"{option} COLUMN" for option, _, _ in problems)
        raise DataError("column-missing", f"{data}: {lines}\n    -> {'; '.join(hints)}; name the right one: {options}")


def example_of(row: Row, columns: Columns) -> Example | None:
    """Return the texts of a row; None where one is empty. Raises WrongText for something else than text."""
    texts = [text_of(row.values.get(column), column) for _, column in columns.options]
    if None in texts:
        return None
    return Example(row.position, texts[0] or "", texts[1] if len(texts) > 1 else None, 0)


def readable(row: Row, columns: Columns, counted: Counted) -> Example | None:
    """Return the texts of a row as ``example_of``; None and counted for one that holds something else than text."""
    try:
        return example_of(row, columns)
    except WrongText as error:
        counted.unreadable += 1
        if len(counted.unreadable_rows) < counted.SHOWN:
            counted.unreadable_rows.append(f"{row.position}: {error}")
        return None
