"""One file of labelled rows as it is: what kind of task it is, its labels, errors in it. Nothing is written.

The kind is told from the label column: numbers are a regression where there are many different ones, cells that join
several labels are ``multi_label``, all else are classes. ``Asked.kind`` says otherwise; ``ordinal`` is never guessed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regft_core.data.examples import Example
from regft_core.data.file_format import FileFormat
from regft_core.data.rows import open_table
from regft_core.errors import DataError, Problem
from regft_core.kinds import find
from regft_core.kinds._reading import as_text
from regft_core.names import plural, suggestion
from regft_core.schema import NAME_LENGTH
from regft_core.schema.tasks import check_encoding

#: More different numbers than this are values, not classes.
MOST_LEVELS = 10
#: Rows that a label needs, texts, and groups: one for each of the fewest folds.
LEAST_ROWS = 3
#: Cells of the label column, in lower case, that stand for no label.
MISSING = ("nan", "<na>", "#n/a")
#: A class with a smaller share of the rows makes macro-F1 the metric.
RARE = 0.2
#: What may stand between the labels of one cell.
DELIMITERS = (";", "|", ",")
#: Cells of the column that must join labels for it to count as ``multi_label``.
JOINED = 0.05
#: Of what such cells join, the share that must occur in other cells, too.
MOSTLY = 0.9


@dataclass(frozen=True)
class Asked:
    """What a command line says of a file: its columns, and the kind where it is not to be told from the labels."""

    file: Path
    text: str
    label: str
    pair: str | None = None
    group: str | None = None
    kind: str | None = None
    encoding: str | None = None

    @property
    def columns(self) -> dict[str, str]:
        """Option -> column, of those that were given."""
        given = {"text": self.text, "pair": self.pair, "label": self.label, "group": self.group}
        return {option: name for option, name in given.items() if name is not None}

    @property
    def task_name(self) -> str:
        """The task's name: that of the file, in the letters that names may have."""
        name = re.sub(r"[^a-z0-9_-]+", "-", self.file.name.split(".")[0].lower()).strip("-_")
        return name[:NAME_LENGTH] or "rows"


@dataclass(frozen=True)
class OwnRows:
    """The rows of a file and what they are.

    Attributes:
        kind: a file of ``regft_core/kinds``.
        labels: their names; None for numbers.
        counts: rows of each label.
        groups: how many there are; None where no column names them.
        delimiter: what joins the labels of a cell; None where a row has one.
        without_label, without_text: rows that are left out.
        why: how the kind was told, and what changes it.
    """

    examples: tuple[Example, ...]
    kind: str
    labels: tuple[str, ...] | None
    counts: Mapping[str, int]
    groups: int | None
    delimiter: str | None
    without_label: int
    without_text: int
    why: str

    @property
    def metrics(self) -> tuple[str, ...]:
        """The task's metrics, the primary one first."""
        kind = find(self.kind)
        if not kind.has_labels:
            return ("spearman", "r2", "pearson", "mse")
        if not kind.one_label:
            return ("f1_micro", "f1_macro", "accuracy")
        if kind.ordered:
            return ("kappa_quadratic", "mae")
        return ("f1_macro", "accuracy") if self.rare else ("accuracy", "f1_macro")

    def task(self, asked: Asked, train: str, dev: Mapping[str, int]) -> dict[str, Any]:
        """The YAML of a task that reads the rows: ``train`` is their file below ``data/``, ``dev`` the folds."""
        columns = {"text": asked.text, "text_pair": asked.pair, "label": asked.label, "group": asked.group}
        columns |= {"label_delimiter": self.delimiter}
        labels = list(self.labels) if self.labels is not None else None
        data: dict[str, Any] = {
            "kind": self.kind,
            "source": {"kind": "files"} | ({"encoding": asked.encoding} if asked.encoding else {}),
            "splits": {"train": train, "dev": dict(dev)},
            "columns": {key: value for key, value in columns.items() if value is not None},
            "labels": labels,
            # Digits are names of labels here, not positions in the list.
            "label_values": {label: label for label in labels or ()} if any(map(str.isdigit, labels or ())) else None,
            "drop_labels": [""] if self.without_label else None,
            "drop_empty": self.without_text > 0 or None,
            "metrics": list(self.metrics),
            "primary": self.metrics[0],
        }
        return {key: value for key, value in data.items() if value is not None}

    @property
    def rare(self) -> str:
        """The rarest class, where it has less than ``RARE`` of the rows; else empty."""
        kind = find(self.kind)
        if not kind.one_label or kind.ordered or not self.counts:
            return ""
        name = min(self.counts, key=lambda label: self.counts[label])
        return name if self.counts[name] < RARE * len(self.examples) else ""


def read_own(asked: Asked) -> tuple[OwnRows | None, list[Problem]]:
    """The rows of a file, and everything that is wrong with it; None where no task can be made of them."""
    if not asked.file.exists():
        near = sorted(path.name for path in asked.file.parent.glob("*")) if asked.file.parent.is_dir() else []
        hint = suggestion(asked.file.name, near, f"files in {asked.file.parent}")
        return None, [_problem("file-missing", asked, "", "no such file", hint)]
    if asked.encoding is not None:
        try:
            check_encoding(asked.encoding)
        except ValueError as error:
            return None, [_problem("unknown-encoding", asked, "--encoding", str(error), "leave it out for UTF-8")]
    try:
        with open_table(asked.file, FileFormat(encoding=asked.encoding)) as table:
            names, rows = table.names, [row.values for row in table.rows]
    except DataError as error:
        message, _, hint = error.text.removeprefix(f"{asked.file}: ").partition("\n    -> ")
        return None, [_problem(error.code, asked, "", message, hint)]
    problems = [
        _problem("column-missing", asked, f"--{option}", f"no column '{name}'", suggestion(name, names, "columns"))
        for option, name in asked.columns.items()
        if name not in names
    ]
    problems += _same_columns(asked)
    if problems:
        return None, problems
    return _read(asked, rows)


def _problem(code: str, asked: Asked, key: str, message: str, hint: str) -> Problem:
    return Problem(code, str(asked.file), 0, key, message, hint)


def _same_columns(asked: Asked) -> Iterator[Problem]:
    """Two options that name one column; a group may be a text (a premise)."""
    options = [option for option in asked.columns if option != "group"]
    for index, option in enumerate(options):
        for other in options[:index]:
            if asked.columns[option] == asked.columns[other]:
                message = f"'{asked.columns[option]}' is also --{other}"
                yield _problem("same-column", asked, f"--{option}", message, "name two different columns")
    if asked.group == asked.label:
        message = f"'{asked.group}' is also --label: all rows of a class would be one group"
        yield _problem("same-column", asked, "--group", message, "name another column, or leave --group out")


def _read(asked: Asked, rows: Sequence[Mapping[str, Any]]) -> tuple[OwnRows | None, list[Problem]]:
    cells = [as_text(row.get(asked.label)) or "" for row in rows]
    kind, delimiter, why = _kind(asked, [cell for cell in cells if cell])
    several, values = not find(kind).one_label and find(kind).has_labels, not find(kind).has_labels
    kept, without_label, without_text = [], 0, 0
    for number, (row, cell) in enumerate(zip(rows, cells, strict=True)):
        text, pair = as_text(row.get(asked.text)), as_text(row.get(asked.pair)) if asked.pair else None
        if not cell and not several:
            without_label += 1
        elif not text or (asked.pair and not pair):
            without_text += 1
        else:
            kept.append((Example(str(number), text, pair, 0), cell))
    counts = Counter[str]() if values else Counter(label for _, cell in kept for label in _parts(cell, delimiter))
    labels = None if values else tuple(sorted(counts, key=_by_number))
    problems = _too_little(asked, kind, [cell for _, cell in kept], counts, (without_label, without_text))
    examples = tuple(example for example, _ in kept)
    groups = len({as_text(rows[int(one.idx)].get(asked.group)) for one in examples}) if asked.group else None
    found = OwnRows(examples, kind, labels, counts, groups, delimiter, without_label, without_text, why)
    return found, problems or _too_alike(asked, examples, groups)


def _too_little(
    asked: Asked, kind: str, cells: Sequence[str], counts: Mapping[str, int], without: tuple[int, int]
) -> list[Problem]:
    """What makes rows useless: too few of them, one class, labels with hardly a row, as many labels as rows.

    ``without``: rows left out because they have no label, no text.
    """
    if len(cells) < 2 * LEAST_ROWS:
        parts = [f"{count} without a {what}" for count, what in zip(without, ("label", "text")) if count]
        beside = f" ({', '.join(parts)})" if parts else ""
        message = f"{plural(len(cells), 'row')} with text and label{beside}; {2 * LEAST_ROWS} are the least"
        return [
            _problem("too-few-rows", asked, "", message, "label more rows; from about 50 on a comparison says much")
        ]
    if missing := {cell: count for cell, count in Counter(cells).items() if cell.lower() in MISSING}:
        cell, count = next(iter(missing.items()))
        message = f"{plural(count, 'row')} with the label '{cell}', which is how programs write a missing one"
        hint = "empty these cells to leave the rows out; if it is a class, give it another name"
        return [_problem("missing-label", asked, "--label", message, hint)]
    if not find(kind).has_labels:
        if wrong := next((cell for cell in cells if _number(cell) is None), None):
            message = f"'{wrong}' is not a number, and --kind is regression"
            return [_problem("not-a-number", asked, "--label", message, "correct the rows, or leave --kind out")]
        if len(set(cells)) == 1:
            return [
                _problem("one-value", asked, "--label", f"all rows have the value {cells[0]}", "name another column")
            ]
        return []
    if len(counts) < 2:
        message = f"all {len(cells)} rows have the label '{next(iter(counts), '')}'"
        return [_problem("one-class", asked, "--label", message, "name another column, or label rows of another class")]
    if len(counts) > len(cells) / 2:
        message = f"{len(counts)} different labels in {len(cells)} rows"
        hint = "name the column of the labels; numbers are taken as they are with --kind regression"
        return [_problem("too-many-labels", asked, "--label", message, hint)]
    if wrong := find(kind).wrong_labels(tuple(counts)):
        return [_problem("labels-do-not-fit", asked, "--label", wrong, "rename them in the file")]
    if find(kind).ordered and (word := next((label for label in counts if _number(label) is None), None)):
        message = f"'{word}' is not a number, so the order of the labels is not known"
        hint = "write the labels as numbers from low to high, or list them in the YAML of a task"
        return [_problem("order-unknown", asked, "--label", message, hint)]
    rare = {label: count for label, count in counts.items() if count < LEAST_ROWS}
    if not rare:
        return []
    shown = ", ".join(f"'{label}' has {plural(count, 'row')}" for label, count in list(rare.items())[:5])
    more = f" and {len(rare) - 5} more labels" if len(rare) > 5 else ""
    message = f"{shown}{more}; every label needs {LEAST_ROWS}, one for each fold"
    return [_problem("rare-label", asked, "--label", message, "label more of them, or remove or rename their rows")]


def _too_alike(asked: Asked, examples: Sequence[Example], groups: int | None) -> list[Problem]:
    """Texts or groups that leave nothing to judge by: rows of one text, and of one group, stay together."""
    if len(different := {example.text for example in examples}) < LEAST_ROWS:
        message = f"{plural(len(different), 'different text')} in {len(examples)} rows"
        return [_problem("one-text", asked, "--text", f"{message}; {LEAST_ROWS} are the least", "name another column")]
    if groups is None or groups >= LEAST_ROWS:
        return []
    message = f"column '{asked.group}' has {plural(groups, 'group')}; {LEAST_ROWS} are the least, one for each fold"
    return [_problem("too-few-groups", asked, "--group", message, "name another column, or leave --group out")]


# ------------------------------------------------------------------------------------ kinds


def _kind(asked: Asked, cells: Sequence[str]) -> tuple[str, str | None, str]:
    """Kind, delimiter, and the line that says how they were told."""
    distinct = Counter(cells)
    delimiter = _delimiter(distinct)
    if asked.kind is not None:
        delimiter = (delimiter or ";") if asked.kind == "multi_label" else None
        return asked.kind, delimiter, f"--kind {asked.kind}"
    numbers = [_number(cell) for cell in distinct]
    if cells and None not in numbers:
        whole = all(float(value or 0).is_integer() for value in numbers)
        if len(distinct) > MOST_LEVELS or (not whole and len(distinct) > 2):
            return "regression", None, f"{len(distinct)} different numbers; --kind classification takes them as classes"
    elif delimiter is not None:
        line = f"cells join labels by '{delimiter}'; --kind classification takes each cell as one class"
        return "multi_label", delimiter, line
    others = "--kind multi_label reads several labels in a cell"
    if cells and None not in numbers:
        others = "--kind ordinal keeps the order of the numbers, --kind regression their distances"
    return "classification", None, f"{len(distinct)} classes; {others}"


def _delimiter(distinct: Mapping[str, int]) -> str | None:
    """What joins labels in cells: it stands in enough of them, and most of what it joins occurs elsewhere too."""
    total = sum(distinct.values())
    for mark in DELIMITERS:
        joined = {cell: count for cell, count in distinct.items() if mark in cell}
        if not joined or sum(joined.values()) < JOINED * total:
            continue
        cells = Counter(part for cell in distinct for part in _parts(cell, mark))
        parts = {part for cell in joined for part in _parts(cell, mark)}
        if sum(cells[part] > 1 for part in parts) >= MOSTLY * len(parts):
            return mark
    return None


def _parts(cell: str, delimiter: str | None) -> list[str]:
    """The labels of a cell."""
    if delimiter is None:
        return [cell]
    return list(dict.fromkeys(part.strip() for part in cell.split(delimiter) if part.strip()))


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _by_number(label: str) -> tuple[float, str]:
    """Numbers by their value, before words."""
    value = _number(label)
    return (math.inf if value is None else value, label)
