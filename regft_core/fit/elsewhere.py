"""Further files of ``regft fit``: out-of-distribution sets of the task (``--ood``), texts without labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regft_core.errors import Problem
from regft_core.fit.labels import Labels
from regft_core.fit.own_rows import Asked, OwnRows, cells_of, name_of, rows_of
from regft_core.names import listing, plural, suggestion
from regft_core.schema.tasks import RESERVED_SETS
from regft_core.statistics.decision import FEWEST_ROWS


@dataclass(frozen=True)
class Elsewhere:
    """A file with the columns and labels of the training file.

    Attributes:
        rows: that have a text and a label which is not left out.
        declared: the set's YAML, in the task's ``ood``; labels are read as those of the training file.
    """

    file: Path
    rows: int
    declared: dict[str, Any]

    @property
    def name(self) -> str:
        """The set's name: that of the file."""
        return name_of(self.file)


def read_elsewhere(asked: Asked, own: OwnRows) -> tuple[list[Elsewhere], list[Problem]]:
    """Return the files of ``asked.ood``, and everything that is wrong with them."""
    found, problems = list[Elsewhere](), list[Problem]()
    for file in asked.ood:
        of = replace(asked, file=file, group=None)
        one, wrong = _read(of, own)
        problems += wrong
        taken = {*RESERVED_SETS, *(other.name for other in found)}
        if one.name in taken or file.name in (asked.file.name, *(other.file.name for other in found)):
            message = f"'{one.name}' is the name of another set, or a word of the results"
            problems.append(of.problem("name-taken", "--ood", message, "rename the file"))
        found.append(one)
    return found, problems


def count_unlabelled(asked: Asked) -> tuple[int, list[Problem]]:
    """Return the rows of the file of ``asked.unlabelled``, and what is wrong with it; they are read with the task's."""
    if asked.unlabelled is None:
        return 0, []
    of = replace(asked, file=asked.unlabelled)
    rows, problems = rows_of(of, {name: column for name, column in of.columns.items() if name in ("text", "pair")})
    if of.file.name in (asked.file.name, *(one.name for one in asked.ood)):
        problems.append(of.problem("name-taken", "--unlabelled", "is the name of another file", "rename the file"))
    return len(rows), problems


def _read(asked: Asked, own: OwnRows) -> tuple[Elsewhere, list[Problem]]:
    rows, problems = rows_of(asked, asked.columns)
    raw = {row.position: row.values.get(asked.label) for row in rows}
    labels = Labels(raw, own.kind, asked.how.decimal, own.delimiter or ";", "" in own.unlabelled)
    cells = cells_of(asked, rows, labels)
    count = sum(own.left_out.keys().isdisjoint(label) for _, label in cells.labelled)
    dropped = sorted({*own.unlabelled, *cells.unlabelled, *own.left_out})
    declared: dict[str, Any] = {"source": {"kind": "files", **asked.how.model_dump()}, "split": asked.file.name}
    declared |= {"drop_labels": dropped} if dropped else {}
    declared |= {"drop_empty": True} if cells.without_text else {}
    problems += [*cells.problems, *map(asked.of_label, labels.mistakes())]
    known = None if own.labels is None else {*own.labels, *own.left_out}
    if known is not None and (unknown := sorted({one for labels in labels.of_rows.values() for one in labels} - known)):
        message = f"{plural(len(unknown), 'label')} that no training row has: {listing(unknown)}"
        hint = suggestion(unknown[0], sorted(known), "labels of the training rows")
        problems.append(asked.problem("unknown-label", "--label", message, hint))
    if count < FEWEST_ROWS and not problems:
        message = f"{plural(count, 'row')} with text and label; {FEWEST_ROWS} are the least that decide anything"
        problems.append(asked.problem("too-few-rows", "--ood", message, "label more rows, or leave --ood out"))
    return Elsewhere(asked.file, count, declared), problems
