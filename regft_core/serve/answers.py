"""Rows that are read and answers to them, alike in files, streams and requests; CSV (no formulas) or JSON lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, ClassVar

from regft_core.data.examples import Example, WrongText, means_none, text_of
from regft_core.data.file_format import Row, Table, column_problems
from regft_core.data.table import readable_as
from regft_core.errors import DataError
from regft_core.kinds import find
from regft_core.kinds._reading import is_nan
from regft_core.schema.sources import FileFormat
from regft_core.serve.model import ServedModel

FORMATS = (".csv", ".jsonl")
#: Options of the command line that name the columns of a model.
OPTIONS = ("--text", "--text-pair")
#: A cell that starts with one of these may be run as a formula when a spreadsheet opens the file.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
#: Digits after the point of probabilities, and of a value in all: beyond them are the last bits of sums.
DIGITS = 6


@dataclass
class Counted:
    """Counts of rows: ``cut`` to the model's length, ``empty`` without prediction; of ``tokens``, ``unknown`` ones."""

    SHOWN: ClassVar[int] = 3

    rows: int = 0
    cut: int = 0
    tokens: int = 0
    unknown: int = 0
    empty: int = 0
    unreadable: int = 0
    unreadable_rows: list[str] = field(default_factory=list)
    words_for_none: int = 0
    abstained: int = 0
    resumed: int = 0
    seconds: float = 0.0


def answer_columns(model: ServedModel, keep: Sequence[str], data: Path | str) -> list[str]:
    """The columns of the output. Raises DataError for a kept column with the name of another."""
    answered = ["answered"] if model.served.abstain else []
    names = ["prediction", *answered, *find(model.served.kind).score_columns(model.labels)]
    if taken := [name for name in keep if name in ("row", *names)]:
        message = f"--keep {taken[0]}: predictions have a column of that name"
        raise DataError("column-taken", f"{message}\n    -> rename it in {data}")
    return ["row", *keep, *names]


def answers(
    model: ServedModel,
    examples: Sequence[Example | None],
    counted: Counted,
    kept: Sequence[Mapping[str, Any]] = (),
    scores: Iterator[Sequence[float]] | None = None,
) -> Iterator[dict[str, Any]]:
    """The lines of some rows: ``row``, what is ``kept`` of each, the ``answer_columns``; ``scores``: if known."""
    present = [example for example in examples if example is not None]
    if scores is None:
        scores = iter(model.scores(present).tolist() if present else [])
    cut, unknown, tokens = model.count_tokens(present)
    counted.cut, counted.unknown, counted.tokens = counted.cut + cut, counted.unknown + unknown, counted.tokens + tokens
    counted.empty += len(examples) - len(present)
    counted.words_for_none += sum(means_none(one.text) or means_none(one.text_pair or "") for one in present)
    kind = find(model.served.kind)
    names = kind.score_columns(model.labels)
    for index, example in enumerate(examples):
        counted.rows += 1
        values: dict[str, Any] = {"row": counted.rows, **(kept[index] if kept else {})}
        if example is not None:
            row_scores = list(next(scores))
            answer = kind.answer(model.served.deciding(row_scores), model.labels)
            if model.served.abstain is not None:
                values["answered"] = max(row_scores) >= model.served.abstain.threshold
                counted.abstained += not values["answered"]
            if values.get("answered", True):
                values["prediction"] = answer if isinstance(answer, str) else rounded(answer)
            values |= {name: round(score, DIGITS) for name, score in zip(names, row_scores)}
        yield values


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
    """Writes one line per row, in a format of ``FORMATS``; in CSV ``scores`` have ``DIGITS`` digits."""

    def __init__(
        self, form: str, file: IO[str], columns: Sequence[str], scores: Sequence[str] = (), *, header: bool = True
    ) -> None:
        self._json = form == ".jsonl"
        self._file = file
        self._columns, self._scores = list(columns), set(scores)
        if not self._json:
            # Python quotes the characters of its line end: without "\r" there a lone one within a text would end a row.
            lines = SimpleNamespace(write=lambda row: file.write(row.removesuffix("\r\n") + "\n"))
            self._csv = csv.writer(lines, lineterminator="\r\n")
            if header:
                self._csv.writerow([safe_cell(encodable(name)) for name in self._columns])

    def row(self, values: Mapping[str, Any]) -> None:
        """Write the values of the columns; None is an empty cell, and so is a number that is none."""
        line = {name: None if is_nan(value := values.get(name)) else value for name in self._columns}
        if self._json:
            self._file.write(encodable(json.dumps(line, ensure_ascii=False, default=str)) + "\n")
        else:
            self._csv.writerow([safe_cell(_cell(line[name], name in self._scores)) for name in self._columns])


def _cell(value: Any, is_score: bool) -> Any:
    if isinstance(value, float) and is_score:
        return f"{value:.{DIGITS}f}"
    if isinstance(value, bool | list | dict):
        value = json.dumps(value, ensure_ascii=False, default=str)
    return encodable(value) if isinstance(value, str) else value


def check_output(out: Path, data: Path, overwrite: bool) -> None:
    """Raise DataError when ``out`` cannot be written: its ending, a file that is there, the file that is read."""
    if out.suffix.lower() not in FORMATS:
        hint = f"the name ends in {' or '.join(FORMATS)}"
        raise DataError("unknown-format", f"--out {out}: unknown format\n    -> {hint}")
    if out.resolve() == data.resolve():
        raise DataError("output-is-input", f"--out {out} is the file that is read\n    -> choose another name")
    if out.exists() and not overwrite:
        raise DataError("in-the-way", f"--out {out} exists\n    -> choose another name, or add --overwrite")


def format_of(path: Path, how: FileFormat, model: ServedModel) -> FileFormat:
    """Return how a new file is read: as ``how`` says, completed as the training file where else it cannot be read."""
    said = {str(key): value for key, value in model.served.file_format.items()} | how.model_dump()
    alone = how.model_copy(update={"quoted": said.get("quoted", False)})
    completed, wanted = alone.model_copy(update=said), [*zip(OPTIONS, model.columns)]
    if alone == completed:
        return completed
    in_utf8 = readable_as(path, completed.model_copy(update={"encoding": how.encoding}), completed, wanted)
    return readable_as(path, alone, in_utf8, wanted)


def require_columns(table: Table, columns: Sequence[str], keep: Sequence[str], data: Path | str) -> None:
    """Raise DataError when a column of the texts, or one to ``keep``, is not there."""
    if problems := column_problems(table, [*zip(OPTIONS, columns), *(("--keep", name) for name in keep)]):
        lines = "; ".join(f"{message} ({option})" for option, message, _ in problems)
        hints = dict.fromkeys(hint for _, _, hint in problems)
        options = " ".join(f"{option} COLUMN" for option, _, _ in problems)
        raise DataError("column-missing", f"{data}: {lines}\n    -> {'; '.join(hints)}; name the right one: {options}")


def example_of(row: Row, columns: Sequence[str]) -> Example | None:
    """Return the texts of a row; None where one is empty. Raises WrongText for something else than text."""
    texts = [text_of(row.values.get(column), column) for column in columns]
    if None in texts:
        return None
    return Example(row.position, texts[0] or "", texts[1] if len(texts) > 1 else None, 0)


def readable(row: Row, columns: Sequence[str], counted: Counted) -> Example | None:
    """Return the texts of a row as ``example_of``; None and counted for one that holds something else than text."""
    try:
        return example_of(row, columns)
    except WrongText as error:
        counted.unreadable += 1
        if len(counted.unreadable_rows) < counted.SHOWN:
            counted.unreadable_rows.append(f"{row.position}: {error}")
        return None


def require_text(counted: Counted, data: Path | str) -> None:
    """Raise DataError where no row could be read, or there was none."""
    if not counted.rows:
        raise DataError("no-rows", f"{data}: no rows\n    -> give a file with rows")
    if counted.rows == counted.unreadable:
        first, hint = counted.unreadable_rows[0], "name another column: --text COLUMN"
        raise DataError("not-text", f"{data}: no row has a text: {first}\n    -> {hint}")
