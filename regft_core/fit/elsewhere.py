"""Further files of ``regft fit``: out-of-distribution sets of the task (``--ood``), texts without labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regft_core.data.examples import WrongText, text_of
from regft_core.errors import Problem
from regft_core.fit.labels import Labels
from regft_core.fit.own_rows import Asked, OwnRows, name_of, rows_of
from regft_core.kinds._reading import as_text
from regft_core.names import listing, plural, suggestion
from regft_core.schema.tasks import RESERVED_SETS
from regft_core.statistics.decision import FEWEST_ROWS


@dataclass(frozen=True)
class Elsewhere:
    """A file with the columns and labels of the training file.

    Attributes:
        rows: that have a text and a label which is not left out.
        unlabelled: how cells without a label are written.
        without_text: rows that are left out.
    """

    file: Path
    rows: int
    unlabelled: tuple[str, ...]
    without_text: int

    @property
    def name(self) -> str:
        """The set's name: that of the file."""
        return name_of(self.file)

    def declared(self, asked: Asked, own: OwnRows) -> dict[str, Any]:
        """Return the set's YAML, in the task's ``ood``; labels are read as those of the training file."""
        dropped = sorted({*own.unlabelled, *self.unlabelled, *own.left_out})
        data: dict[str, Any] = {
            "source": {"kind": "files", **asked.how.model_dump()},
            "split": self.file.name,
            "drop_labels": dropped or None,
            "drop_empty": self.without_text > 0 or None,
        }
        return {key: value for key, value in data.items() if value is not None}


def read_elsewhere(asked: Asked, own: OwnRows) -> tuple[list[Elsewhere], list[Problem]]:
    """Return the files of ``asked.ood``, and everything that is wrong with them."""
    found, problems = [], list[Problem]()
    for file in asked.ood:
        one, wrong = _read(file, asked, own)
        problems += [Problem(code, str(file), 0, "--ood", message, hint) for code, message, hint in wrong]
        found += [one] if one else []
    names = [asked.file.name, *(one.file.name for one in found)]
    for at, one in enumerate(found):
        if one.file.name in names[: at + 1] or one.name in {*RESERVED_SETS, *(other.name for other in found[:at])}:
            message, hint = f"'{one.name}' is the name of another set, or a word of the results", "rename the file"
            problems.append(Problem("name-taken", str(one.file), 0, "--ood", message, hint))
    return found, problems


def count_unlabelled(asked: Asked) -> tuple[int, list[Problem]]:
    """Return the rows of the file of ``asked.unlabelled``, and what is wrong with it; they are read with the task's."""
    if asked.unlabelled is None:
        return 0, []
    option, file = "--unlabelled", str(asked.unlabelled)
    texts = {name: column for name, column in asked.columns.items() if name in ("text", "pair")}
    rows, wrong = rows_of(asked.unlabelled, asked.how, texts)
    problems = [Problem(code, file, 0, option, text, hint) for code, text, hint in _told(wrong)]
    if asked.unlabelled.name in (asked.file.name, *(one.name for one in asked.ood)):
        problems.append(Problem("name-taken", file, 0, option, "is the name of another file", "rename the file"))
    return len(rows or ()), problems


def _read(file: Path, asked: Asked, own: OwnRows) -> tuple[Elsewhere | None, list[tuple[str, str, str]]]:
    columns = {option: name for option, name in asked.columns.items() if option != "group"}
    rows, problems = rows_of(file, asked.how, columns)
    if problems or rows is None:
        return None, _told(problems)
    raw = {row.position: row.values.get(asked.label) for row in rows}
    labels = Labels(raw, own.kind, asked.how.decimal, own.delimiter or ";", "" in own.unlabelled)
    unlabelled, without_text, count = set[str](), 0, 0
    for row in rows:
        try:
            texts = [text_of(row.values.get(column), column) for column in (asked.text, asked.pair) if column]
        except WrongText as error:
            return None, [("not-text", f"{row.position}: {error}", "correct the row, or remove it")]
        if row.position not in labels.of_rows:
            unlabelled.add(as_text(row.values.get(asked.label)) or "")
        elif None in texts:
            without_text += 1
        elif own.left_out.keys().isdisjoint(labels.of_rows[row.position]):
            count += 1
    wrong = [*labels.mistakes(), *_unknown(labels, own)]
    if count < FEWEST_ROWS and not wrong:
        message = f"{plural(count, 'row')} with text and label; {FEWEST_ROWS} are the least that decide anything"
        wrong = [("too-few-rows", message, "label more rows, or leave --ood out")]
    return (None, wrong) if wrong else (Elsewhere(file, count, tuple(sorted(unlabelled)), without_text), [])


def _told(wrong: Iterable[tuple[str, str, str, str]]) -> list[tuple[str, str, str]]:
    """Return what ``rows_of`` says of a file, with the option of a column in front of the message."""
    return [(code, f"{option}: {text}" if option else text, hint) for code, option, text, hint in wrong]


def _unknown(labels: Labels, own: OwnRows) -> Iterator[tuple[str, str, str]]:
    """Yield labels that the training file lacks."""
    if own.labels is None:
        return
    known = {*own.labels, *own.left_out}
    if unknown := sorted({label for parts in labels.of_rows.values() for label in parts} - known):
        message = f"{plural(len(unknown), 'label')} that no training row has: {listing(unknown)}"
        yield "unknown-label", message, suggestion(unknown[0], sorted(known), "labels of the training rows")
