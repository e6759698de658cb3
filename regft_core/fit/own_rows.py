"""The files of rows of ``regft fit`` as they are: their texts and labels, the task that reads them.

Beside labelled rows may be out-of-distribution sets and texts without labels. What is wrong with them is collected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from regft_core.data.examples import Example, WrongText, text_key, text_of
from regft_core.data.file_format import Row, column_problems, name_of
from regft_core.data.table import open_table, utf8_or
from regft_core.errors import DataError, Problem
from regft_core.fit.labels import LEAST_ROWS, Labels, Wrong, left_out, too_little
from regft_core.kinds import find
from regft_core.kinds._reading import as_text, looks_like_number
from regft_core.names import listing, plural, suggestion
from regft_core.schema.sources import UNSAID, FileFormat
from regft_core.schema.tasks import RESERVED_SETS
from regft_core.statistics.decision import FEWEST_ROWS

#: A class with a smaller share of the rows makes macro-F1 the metric.
RARE = 0.2


@dataclass(frozen=True)
class Asked:
    """Options of a command line for a file: its columns, its format, and the kind where labels do not tell it."""

    file: Path
    text: str
    label: str
    pair: str | None = None
    group: str | None = None
    kind: str | None = None
    how: FileFormat = UNSAID
    #: Files of the same columns that judge out of distribution.
    ood: tuple[Path, ...] = ()
    #: A file with the columns of the texts alone.
    unlabelled: Path | None = None

    @property
    def files(self) -> list[Path]:
        return [file for file in (self.file, *self.ood, self.unlabelled) if file is not None]

    @property
    def columns(self) -> dict[str, str]:
        """Option -> column, of those that were given."""
        given = {"text": self.text, "pair": self.pair, "label": self.label, "group": self.group}
        return {option: name for option, name in given.items() if name is not None}

    @cached_property
    def written(self) -> FileFormat:
        """How the file is written: as ``how`` says, but UTF-8 where it is that."""
        return utf8_or(self.file, self.how, self.text)

    @property
    def task_name(self) -> str:
        return name_of(self.file)

    def problem(self, code: str, option: str, message: str, hint: str) -> Problem:
        return Problem(code, str(self.file), 0, option, message, hint)

    def of_label(self, wrong: Wrong) -> Problem:
        return self.problem(wrong[0], "--label", *wrong[1:])


@dataclass(frozen=True)
class OwnRows:
    """The rows of a file and what they are.

    Attributes:
        labels: their names; None for numbers.
        counts, left_out: rows of each label that is learned, and of each that has too few.
        delimiter: what joins the labels of a cell; None where a row has one.
        unlabelled: how cells without a label are written.
        without_label, without_text: rows that are left out.
        why: how the kind was told, and what changes it.
    """

    examples: tuple[Example, ...]
    kind: str
    labels: tuple[str, ...] | None
    counts: Mapping[str, int]
    delimiter: str | None
    unlabelled: tuple[str, ...]
    without_label: int
    without_text: int
    why: str
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def metrics(self) -> tuple[str, ...]:
        kind = find(self.kind)
        if not kind.has_labels:
            return ("spearman", "r2", "pearson", "mse")
        if not kind.one_label:
            return ("f1_micro", "f1_macro", "accuracy")
        if kind.ordered:
            return ("kappa_quadratic", "mae")
        return ("f1_macro", "accuracy") if self.rarest else ("accuracy", "f1_macro")

    @property
    def rare_line(self) -> str:
        """Return a sentence on how labels with few rows are treated; empty where there are none."""
        counts = self.counts.items() if find(self.kind).one_label else ()
        rare = list(self.left_out) or [label for label, count in counts if count < LEAST_ROWS]
        few = f"{plural(len(rare), 'label')} with fewer than {LEAST_ROWS} rows ({listing(rare)})"
        if self.left_out:
            return f"left out: {few}, {plural(sum(self.left_out.values()), 'row')}: never predicted, and in no score"
        return f"rare: {few}: hardly ever predicted, and scores count what is missed" if rare else ""

    @property
    def notes(self) -> list[str]:
        """Sentences on labels with few rows, and on rows that are left out."""
        lines = [self.rare_line] if self.rare_line else []
        if self.without_label or self.without_text:
            unlabelled = plural(self.without_label, "row")
            lines.append(f"left out: {unlabelled} without a label, {self.without_text} without a text")
        return lines

    @property
    def in_every_fold(self) -> list[int]:
        """Rows of the labels that every fold should have: all, or in a long tail the second most frequent alone."""
        counts = sorted(self.counts.values(), reverse=True)
        return counts if min(counts, default=0) >= LEAST_ROWS else [max(LEAST_ROWS, count) for count in counts[1:2]]

    def task(self, asked: Asked, train: str, dev: Mapping[str, int]) -> dict[str, Any]:
        """Return the YAML of a task that reads the rows: ``train`` is their file below ``data/``, ``dev`` the folds."""
        columns = {"text": asked.text, "text_pair": asked.pair, "label": asked.label, "group": asked.group}
        columns["label_delimiter"] = self.delimiter
        labels = list(self.labels) if self.labels is not None else None
        data: dict[str, Any] = {
            "kind": self.kind,
            "source": {"kind": "files", **asked.written.model_dump()},
            "splits": {"train": train, "dev": dict(dev)},
            "columns": {key: value for key, value in columns.items() if value is not None},
            "labels": labels,
            # Numbers are names of labels here, not positions in the list.
            "label_values": {one: one for one in labels or ()} if any(map(looks_like_number, labels or ())) else None,
            "drop_labels": [*self.unlabelled, *self.left_out] or None,
            "drop_empty": self.without_text > 0 or None,
            "metrics": list(self.metrics),
            "primary": self.metrics[0],
        }
        return {key: value for key, value in data.items() if value is not None}

    @property
    def rarest(self) -> str:
        """The rarest class where it is rare, else empty."""
        kind = find(self.kind)
        if not kind.one_label or kind.ordered or not self.counts:
            return ""
        name = min(self.counts, key=lambda label: self.counts[label])
        return name if self.counts[name] < RARE * len(self.examples) else ""


def read_own(asked: Asked) -> tuple[OwnRows | None, list[Problem]]:
    """Return the rows of a file, and everything that is wrong with it; None where no task can be made of them."""
    rows, problems = rows_of(asked, asked.columns, asked.written)
    problems += _same_columns(asked)
    return (None, problems) if problems else _read(asked, rows)


def rows_of(asked: Asked, columns: Mapping[str, str], how: FileFormat) -> tuple[list[Row], list[Problem]]:
    """Return the rows of a file and what is wrong: it cannot be read, or lacks one of ``columns`` (by their option)."""
    file = asked.file
    if not file.exists():
        near = sorted(path.name for path in file.parent.glob("*")) if file.parent.is_dir() else []
        hint = suggestion(file.name, near, f"files in {file.parent}")
        return [], [asked.problem("file-missing", "", "no such file", hint)]
    try:
        with open_table(file, how) as table:
            missing = column_problems(table, [(f"--{option}", name) for option, name in columns.items()])
            return [] if missing else list(table.rows), [asked.problem("column-missing", *one) for one in missing]
    except DataError as error:
        message, _, hint = error.text.removeprefix(f"{file}: ").partition("\n    -> ")
        return [], [asked.problem(error.code, "", message, hint)]


def _same_columns(asked: Asked) -> Iterator[Problem]:
    """Yield two options that name one column; a group may be a text (a premise)."""
    for option, other in (("pair", "text"), ("label", "text"), ("label", "pair"), ("group", "label")):
        if asked.columns.get(option) == asked.columns.get(other, ""):
            message = f"'{asked.columns[option]}' is also --{other}"
            yield asked.problem("same-column", f"--{option}", message, "name two different columns")


class Cells(NamedTuple):
    """Texts and labels of rows that have both, how cells without a label are written, rows with a label alone."""

    labelled: list[tuple[Example, list[str]]]
    unlabelled: list[str]
    without_text: int
    problems: list[Problem]


def cells_of(asked: Asked, rows: Sequence[Row], labels: Labels) -> Cells:
    labelled, unlabelled, without_text, problems = list[tuple[Example, list[str]]](), list[str](), 0, list[Problem]()
    for number, row in enumerate(rows):
        cell = labels.of_rows.get(row.position)
        try:
            text = text_of(row.values.get(asked.text), asked.text)
            pair = text_of(row.values.get(asked.pair), asked.pair) if asked.pair is not None else ""
            group = text_of(as_text(row.values.get(asked.group)), asked.group) if asked.group is not None else ""
            for label in cell or ():
                text_of(label, asked.label)
        except WrongText as error:
            problems.append(asked.problem("not-text", "", f"{row.position}: {error}", "correct the row, or remove it"))
            continue
        if cell is None:
            unlabelled.append(as_text(row.values.get(asked.label)) or "")
        elif text is None or pair is None:
            without_text += 1
        elif group is None:
            message = f"{row.position}: column '{asked.group}' has no group"
            problems.append(asked.problem("group-missing", "--group", message, "fill it in, or leave --group out"))
        else:
            labelled.append((Example(str(number), text, pair or None, 0), cell))
    return Cells(labelled, unlabelled, without_text, problems[:LEAST_ROWS])


def _read(asked: Asked, rows: Sequence[Row]) -> tuple[OwnRows | None, list[Problem]]:
    labels = Labels({row.position: row.values.get(asked.label) for row in rows}, asked.kind, asked.how.decimal)
    if wrong := list(labels.mistakes()):
        return None, [asked.of_label(one) for one in wrong]
    labelled, unlabelled, without_text, problems = cells_of(asked, rows, labels)
    cells = [cell for _, cell in labelled]
    has_labels = find(labels.kind).has_labels
    counts = Counter(label for cell in cells for label in cell) if has_labels else Counter[str]()
    useless = too_little(labels, cells, counts) if len(cells) >= 2 * LEAST_ROWS and not problems else None
    problems += [asked.of_label(useless)] if useless else []
    few = {label: counts.pop(label) for label in left_out(find(labels.kind), counts)}
    own = OwnRows(
        examples=tuple(example for example, cell in labelled if few.keys().isdisjoint(cell)),
        kind=labels.kind,
        labels=tuple(sorted(counts, key=labels.order)) if has_labels else None,
        counts=counts,
        delimiter=labels.delimiter,
        unlabelled=tuple(sorted(set(unlabelled))),
        without_label=len(unlabelled),
        without_text=without_text,
        why=labels.why,
        left_out=few,
    )
    return own, problems or list(_too_little(asked, own, len(cells)))


def _too_little(asked: Asked, own: OwnRows, labelled: int) -> Iterator[Problem]:
    """Yield what makes rows useless: too few of them, or texts that leave nothing to compare."""
    texts = len(set(map(text_key, own.examples)))
    if labelled < 2 * LEAST_ROWS:
        message = f"{plural(labelled, 'row')} with text and label; {2 * LEAST_ROWS} are the least"
        hint = f"label more rows ({own.without_label} have no label, {own.without_text} no text); 50 are a start"
        yield asked.problem("too-few-rows", "", message, hint)
    elif texts < LEAST_ROWS:
        message = f"{plural(texts, 'different text')} in {labelled} rows; {LEAST_ROWS} are the least"
        yield asked.problem("one-text", "--text", message, "name another column")


@dataclass(frozen=True)
class Elsewhere:
    """A file with the columns and labels of the training file, its usable rows, and its YAML in the task's ``ood``."""

    file: Path
    rows: int
    declared: dict[str, Any]

    @property
    def name(self) -> str:
        return name_of(self.file)


def read_elsewhere(asked: Asked, own: OwnRows) -> tuple[list[Elsewhere], list[Problem]]:
    found, problems = list[Elsewhere](), list[Problem]()
    for file in asked.ood:
        of = replace(asked, file=file, group=None)
        one, wrong = _read_elsewhere(of, own)
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
    of = replace(asked, file=asked.unlabelled, group=None)
    columns = {name: column for name, column in of.columns.items() if name in ("text", "pair")}
    rows, problems = rows_of(of, columns, of.written)
    problems += cells_of(of, rows, Labels({})).problems
    if not problems and rows != rows_of(of, columns, asked.written)[0]:  # one task has one encoding
        problems.append(of.problem("not-its-encoding", "--unlabelled", "is in another encoding", "save both as UTF-8"))
    if not problems and not any(text_of(row.values.get(asked.text), asked.text) for row in rows):
        problems.append(of.problem("no-rows", "--unlabelled", "no row has a text", "name a file with texts"))
    if of.file.name in (asked.file.name, *(one.name for one in asked.ood)):
        problems.append(of.problem("name-taken", "--unlabelled", "is the name of another file", "rename the file"))
    return len(rows), problems


def _read_elsewhere(asked: Asked, own: OwnRows) -> tuple[Elsewhere, list[Problem]]:
    rows, problems = rows_of(asked, asked.columns, asked.written)
    raw = {row.position: row.values.get(asked.label) for row in rows}
    labels = Labels(raw, own.kind, asked.how.decimal, own.delimiter or ";", "" in own.unlabelled)
    cells = cells_of(asked, rows, labels)
    count = sum(own.left_out.keys().isdisjoint(label) for _, label in cells.labelled)
    dropped = sorted({*own.unlabelled, *cells.unlabelled, *own.left_out})
    declared: dict[str, Any] = {"source": {"kind": "files", **asked.written.model_dump()}, "split": asked.file.name}
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
