"""Labels of a file: the kind of task, the names, and errors in them.

Numbers are a regression where there are many different ones, cells that list several labels are ``multi_label``, all
else are classes. ``--kind`` says otherwise; ``ordinal`` is never guessed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Number
from typing import Any

from regft_core.data.examples import means_none
from regft_core.kinds import Kind, find
from regft_core.kinds._reading import as_text, given, listed_labels, looks_like_number, to_number
from regft_core.names import listing, plural

#: More different numbers than this are values, not classes.
MOST_LEVELS = 10
#: Rows that a label needs: one for each of the fewest folds.
LEAST_ROWS = 3
#: Cells, in lower case, that stand for no label; other such words are refused among numbers only.
MISSING = ("nan", "<na>", "#n/a")
#: What may stand between the labels of one cell.
DELIMITERS = (";", "|", ",")
#: Cells of the column that must join labels for it to count as ``multi_label``; of what they join, the share that must
#: occur in other cells, too; the share of numbers that makes other cells mistakes.
JOINED, MOSTLY, NUMBERS = 0.05, 0.9, 0.8
#: (code, message, what to do)
Wrong = tuple[str, str, str]


@dataclass(frozen=True)
class Labels:
    """The label column of a file.

    Attributes:
        raw: its values, by the position of their row.
        asked: the kind that the user names.
        joined_by: the delimiter of the labels of a cell, where another file tells it.
        blank_is_missing: whether a blank cell is no empty list of labels, as where cells without a value are dropped.
    """

    raw: Mapping[str, Any]
    asked: str | None = None
    decimal: str | None = None
    joined_by: str | None = None
    blank_is_missing: bool = False

    @cached_property
    def lists(self) -> dict[str, list[str]]:
        """The labels of each value that lists some; a blank one is empty."""
        listed = {position: listed_labels(value) for position, value in self.raw.items()}
        return {at: [as_text(label) or "" for label in parts] for at, parts in listed.items() if parts is not None}

    @cached_property
    def texts(self) -> dict[str, str]:
        """The values that are one text each, the empty ones left out."""
        single = {position: as_text(value) for position, value in self.raw.items() if position not in self.lists}
        return {position: text for position, text in single.items() if text}

    @cached_property
    def kind(self) -> str:
        if self.asked is not None:
            return self.asked
        if any(len(parts) > 1 for parts in self.lists.values()):
            return "multi_label"
        numbers = [] if self.lists else [self.number(text) for text in self._distinct]
        if not numbers or None in numbers:
            return "multi_label" if self._joined is not None and not self.lists else "classification"
        fractions = len(numbers) > 2 and any(number % 1 for number in numbers if number is not None)
        return "regression" if len(numbers) > MOST_LEVELS or fractions else "classification"

    @property
    def why(self) -> str:
        """How the kind was told, and what changes it."""
        if self.asked is not None:
            return f"--kind {self.asked}"
        classes = {label for labels in self.of_rows.values() for label in labels}
        joined = "cells list several labels" if self.lists else f"cells join labels by '{self._joined}'"
        return {
            "regression": f"{len(classes)} different numbers; --kind classification takes them as classes",
            "multi_label": f"{joined}; --kind classification takes each cell as one class",
            "classification": f"{len(classes)} classes; --kind multi_label, ordinal or regression reads them otherwise",
        }[self.kind]

    @property
    def delimiter(self) -> str | None:
        """Delimiter of the labels of a cell; None where a row has one, or lists them."""
        if self.kind != "multi_label" or not self.texts:
            return None
        return self.joined_by or self._joined or ";"

    @cached_property
    def of_rows(self) -> dict[str, list[str]]:
        """The labels of each row that has one; of several labels also rows that list none."""
        mark, several = self.delimiter, self._several
        texts = {at: [text] if mark is None else _parts(text, mark) for at, text in self.texts.items()}
        lists = {at: parts for at, parts in self.lists.items() if any(parts) or several}
        blank = several and not self.blank_is_missing and None not in map(as_text, self.raw.values())
        empty = [at for at, value in self.raw.items() if blank and isinstance(value, str) and not value.strip()]
        return {**{at: [] for at in empty}, **texts, **lists}

    @cached_property
    def _stored_numbers(self) -> dict[str | None, Any]:
        """Text of each label that the file holds as a number -> the number: the decimal mark is that of text alone."""
        return {as_text(value): value for value in self.raw.values() if isinstance(value, Number)}

    def number(self, text: str) -> float | None:
        return to_number(self._stored_numbers.get(text, text), self.decimal)

    def order(self, label: str) -> tuple[float, str]:
        value = self.number(label)
        return (math.inf if value is None else value, label)

    @property
    def _several(self) -> bool:
        kind = find(self.kind)
        return kind.has_labels and not kind.one_label

    @cached_property
    def _distinct(self) -> Counter[str]:
        return Counter(self.texts.values())

    @cached_property
    def _joined(self) -> str | None:
        """Delimiter of labels in cells: many cells have it, and most labels that it joins occur in other cells too."""
        total = sum(self._distinct.values())
        for mark in DELIMITERS:
            joined = {cell: count for cell, count in self._distinct.items() if mark in cell}
            if not joined or sum(joined.values()) < JOINED * total:
                continue
            cells = Counter(part for cell in self._distinct for part in _parts(cell, mark))
            parts = {part for cell in joined for part in _parts(cell, mark)}
            if sum(cells[part] > 1 for part in parts) >= MOSTLY * len(parts):
                return mark
        return None

    def mistakes(self) -> Iterator[Wrong]:
        """Yield what is wrong with single cells: lists where one label is wanted, numbers that cannot be read."""
        if wrong := next((at for at, value in self.raw.items() if _has_object(value)), None):
            message = f"{wrong}: {given(self.raw[wrong])} has an object, not names of labels"
            yield "label-is-object", message, "write a row's labels as a list, or a column of 0 and 1 for each label"
            return
        if self.lists:
            yield from self._wrong_lists()
            return
        if missing := [text for text in self._distinct if text.lower() in MISSING]:
            count = plural(self._distinct[missing[0]], "row")
            message = f"{count} with the label '{missing[0]}', which is how programs write a missing one"
            yield "missing-label", message, "empty these cells to leave the rows out; if it is a class, rename it"
        elif self.asked in (None, "regression", "ordinal"):
            yield from self._wrong_numbers()

    def _wrong_lists(self) -> Iterator[Wrong]:
        position, parts = max(self.lists.items(), key=lambda item: len(item[1]))
        flags = {label for parts in self.lists.values() for label in parts} <= {"0", "1", "true", "false"}
        if len(parts) > 1 and flags and len({len(parts) for parts in self.lists.values()}) == 1:
            message = f"{position} has {parts}: 0 and 1 for each of {len(parts)} labels without names"
            hint = "write the names of a row's labels (fast;cheap), or a column for each label (docs/own_data.md)"
            yield "labels-without-names", message, hint
        elif len(parts) > 1 and not self._several:
            message = f"{position} lists {len(parts)} labels, and --kind {self.asked} takes one"
            yield "several-labels", message, "leave --kind out, or write one label in each row"
        elif wrong := [at for at, parts in self.lists.items() if self._several and len({*parts} - {""}) < len(parts)]:
            message = f"{wrong[0]}: {given(self.raw[wrong[0]])} lists a label twice, or a blank one"
            yield "label-twice", message, "list each of a row's labels once"

    def _wrong_numbers(self) -> Iterator[Wrong]:
        """Cells that are no numbers among others that are, or that are numbers only by another decimal mark."""
        others = {position: text for position, text in self.texts.items() if self.number(text) is None}
        alike = {position: text for position, text in others.items() if looks_like_number(text)}
        if others and self.asked != "regression":
            numbers = len(self.texts) - len(others) + len(alike)
            levels = len({self.number(text) for text in self.texts.values()})
            lost = any(means_none(text) or "inf" in text.lower() for text in others.values())
            lists = self._joined is not None and any(text.count(",") > 1 for text in alike.values())
            if (
                numbers < NUMBERS * len(self.texts)
                or (not alike and not lost and levels <= MOST_LEVELS)  # a few levels and words are classes
                or (lists and len(alike) == len(others))
            ):
                return
        for position, text in list((alike or others).items())[:1]:
            message = f"{position}: '{text[:60]}' is not a number ({len(others)} such rows of {len(self.texts)})"
            hint = "correct the cells, or empty them to leave the rows out; --decimal names the decimal mark"
            several = ", --kind multi_label as labels that a mark joins" if self._joined is not None else ""
            yield "not-a-number", message, f"{hint}; --kind classification takes each cell as a class{several}"


def _has_object(value: Any) -> bool:
    """Whether a cell is an object, also as text of JSON or Python, or a list of such or of lists."""
    if (listed := listed_labels(value)) is not None:
        return any(isinstance(part, Mapping | list | tuple) for part in listed)
    return isinstance(value, Mapping) or re.match(r"\s*\{\s*['\"].*:.*\}\s*$", str(value), re.DOTALL) is not None


def _parts(cell: str, delimiter: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in cell.split(delimiter) if part.strip()))


def left_out(kind: Kind, counts: Mapping[str, int]) -> list[str]:
    """Return the labels whose rows are left out: those with too few for every fold, where all of them are a few rows.

    In a long tail, and where a row may have several labels, they stay: scores count what is missed.
    """
    rare = [label for label, count in counts.items() if kind.one_label and count < LEAST_ROWS]
    few = sum(counts[label] for label in rare) < LEAST_ROWS
    return rare if kind.ordered or few else []


def too_little(labels: Labels, cells: Sequence[Sequence[str]], counts: Mapping[str, int]) -> Wrong | None:
    """Return what makes labels useless: one class, as many labels as rows, names that do not fit, rare ones."""
    kind = find(labels.kind)
    if not kind.has_labels:
        same = len({cell[0] for cell in cells}) == 1
        return ("one-value", f"all rows have the value {cells[0][0]}", "name another column") if same else None
    few = left_out(kind, counts)
    if len(counts) < 2:
        message = f"all {len(cells)} rows have the label '{next(iter(counts), '')}'"
        return "one-class", message, "name another column, or label rows of another class"
    if len(counts) > len(cells) / 2:
        message = f"{len(counts)} different labels in {len(cells)} rows"
        return "too-many-labels", message, "name the column of the labels; --kind regression takes numbers as they are"
    if wrong := kind.wrong_labels(tuple(counts)):
        return "labels-do-not-fit", wrong, "rename them in the file, or give another --kind"
    if kind.ordered and (word := next((label for label in counts if labels.number(label) is None), None)):
        message = f"'{word}' is not a number, so the order of the labels is not known"
        return "order-unknown", message, "write numbers from low to high, or list the labels in the YAML of a task"
    if kind.wrong_labels([label for label in counts if label not in few]):
        rare = listing(f"'{label}' has {plural(counts[label], 'row')}" for label in few)
        return "rare-label", f"{rare}; too few labels have {LEAST_ROWS} rows, one for each fold", "label more of them"
    return None
