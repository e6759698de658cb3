"""Labels of a file: the kind of task, the names, and errors in them.

Numbers are a regression where there are many different ones, cells that list several labels are ``multi_label``, all
else are classes. ``--kind`` says otherwise; ``ordinal`` is never guessed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from regft_core.data.examples import means_none
from regft_core.kinds import find
from regft_core.kinds._reading import as_text, listed_labels, looks_like_number, to_number
from regft_core.names import plural

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
        decimal: the decimal mark of numbers.
    """

    raw: Mapping[str, Any]
    asked: str | None = None
    decimal: str | None = None

    @cached_property
    def lists(self) -> dict[str, list[str]]:
        """The labels of each value that lists some."""
        listed = {position: listed_labels(value) for position, value in self.raw.items()}
        return {at: [as_text(label) or "" for label in parts] for at, parts in listed.items() if parts is not None}

    @cached_property
    def texts(self) -> dict[str, str]:
        """The values that are one text each, the empty ones left out."""
        return {
            position: text
            for position, value in self.raw.items()
            if position not in self.lists and (text := as_text(value))
        }

    @cached_property
    def kind(self) -> str:
        """The kind of task: a file of ``regft_core/kinds``."""
        if self.asked is not None:
            return self.asked
        if any(len(parts) > 1 for parts in self.lists.values()):
            return "multi_label"
        if self._are_numbers and not self.lists:
            whole = all((self.number(text) or 0.0).is_integer() for text in self._distinct)
            several = len(self._distinct) > 2 and not whole
            return "regression" if len(self._distinct) > MOST_LEVELS or several else "classification"
        return "multi_label" if self._joined is not None and not self.lists else "classification"

    @property
    def why(self) -> str:
        """How the kind was told, and what changes it."""
        count = len(self._distinct)
        if self.asked is not None:
            return f"--kind {self.asked}"
        others = "--kind multi_label reads several labels in a cell"
        if self._are_numbers:
            others = "--kind ordinal keeps the order of the numbers, --kind regression their distances"
        classes = {label for labels in self.of_rows.values() for label in labels}
        joined = "cells list several labels" if self.lists else f"cells join labels by '{self._joined}'"
        return {
            "regression": f"{count} different numbers; --kind classification takes them as classes",
            "multi_label": f"{joined}; --kind classification takes each cell as one class",
            "classification": f"{len(classes)} classes; {others}",
        }[self.kind]

    @property
    def delimiter(self) -> str | None:
        """Delimiter of the labels of a cell; None where a row has one, or lists them."""
        if self.kind != "multi_label" or not self.texts:
            return None
        return self._joined or ";"

    @cached_property
    def of_rows(self) -> dict[str, list[str]]:
        """The labels of each row that has one; of several labels also rows that list none."""
        mark, several = self.delimiter, self._several
        texts = {at: [text] if mark is None else _parts(text, mark) for at, text in self.texts.items()}
        lists = {at: parts for at, parts in self.lists.items() if parts or several}
        none = {
            at: list[str]()
            for at, value in self.raw.items()
            if several and isinstance(value, str) and not value.strip()
        }
        return {**none, **texts, **lists}

    def number(self, text: str) -> float | None:
        """Return the number that a text is, with the file's decimal mark."""
        return to_number(text, self.decimal)

    def order(self, label: str) -> tuple[float, str]:
        """Return what sorts labels: numbers by their value, before words."""
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
    def _are_numbers(self) -> bool:
        return bool(self._distinct) and all(self.number(text) is not None for text in self._distinct)

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

    # ------------------------------------------------------------------------------------ mistakes

    def mistakes(self) -> Iterator[Wrong]:
        """Yield what is wrong with single cells: lists where one label is wanted, numbers that cannot be read."""
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
        flags = {str(one) for parts in self.lists.values() for one in parts} <= {"0", "1", "true", "false"}
        lengths = {len(parts) for parts in self.lists.values()}
        position, parts = next(
            (item for item in self.lists.items() if len(item[1]) > 1), next(iter(self.lists.items()))
        )
        if flags and len(lengths) == 1 and max(lengths) > 1:
            message = f"{position} has {parts}: 0 and 1 for each of {len(parts)} labels without names"
            hint = "write the names of a row's labels (fast;cheap), or a column for each label (docs/own_data.md)"
            yield "labels-without-names", message, hint
        elif not self._several and len(parts) > 1:
            message = f"{position} lists {len(parts)} labels, and --kind {self.asked} takes one"
            yield "several-labels", message, "leave --kind out, or write one label in each row"
        elif any(not one for parts in self.lists.values() for one in parts):
            position = next(position for position, parts in self.lists.items() if not all(parts))
            yield "missing-label", f"{position} lists a label without a name", "correct the row"

    def _wrong_numbers(self) -> Iterator[Wrong]:
        """Cells that are no numbers among others that are, or that are numbers only by another decimal mark."""
        others = {position: text for position, text in self.texts.items() if self.number(text) is None}
        alike = {position: text for position, text in others.items() if looks_like_number(text)}
        numbers = len(self.texts) - len(others) + len(alike)
        named = self.asked == "regression"
        if not others or (not named and numbers < NUMBERS * len(self.texts)):
            return
        position, text = next(iter((alike or others).items()))
        several = len({self.number(text) for text in self.texts.values()}) > MOST_LEVELS or any(
            means_none(one) or one.lower().lstrip("+-") in ("inf", "infinity") for one in others.values()
        )
        if not alike and not named and not several:
            return  # a few levels and words are classes
        if len(alike) == len(others) and not named and self._joined is not None and not _decimals(alike.values()):
            return
        shown = f"{position}: '{text[:60]}' is not a number" + (" as it stands" if alike else "")
        more = f" ({len(others)} such rows of {len(self.texts)})" if len(others) > 1 else ""
        if "%" in text:
            hint = "remove the % signs"
        elif alike and self.decimal is None:
            hint = "add --decimal , if the comma is the decimal mark, or --decimal . if it stands between thousands"
        else:
            hint = "correct the cell, or empty it to leave the row out"
        if not named:
            hint += "; --kind classification takes each cell as a class"
            hint += ", --kind multi_label as several labels" if self._joined else ""
        yield "not-a-number", shown + more, hint


def _decimals(texts: Any) -> bool:
    """Whether all texts have one comma at most: decimals rather than lists."""
    return all(text.count(",") <= 1 for text in texts)


def _parts(cell: str, delimiter: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in cell.split(delimiter) if part.strip()))


def too_little(labels: Labels, cells: Sequence[Sequence[str]], counts: Mapping[str, int]) -> Iterator[Wrong]:
    """Yield what makes labels useless: one class, as many labels as rows, names that do not fit, rare ones.

    Args:
        cells: the labels of each row that has a text, too.
        counts: rows of each label.
    """
    kind = find(labels.kind)
    if not kind.has_labels:
        if len({cell[0] for cell in cells}) == 1:
            yield "one-value", f"all rows have the value {cells[0][0]}", "name another column"
    elif len(counts) < 2:
        message = f"all {len(cells)} rows have the label '{next(iter(counts), '')}'"
        yield "one-class", message, "name another column, or label rows of another class"
    elif len(counts) > len(cells) / 2:
        message = f"{len(counts)} different labels in {len(cells)} rows"
        yield "too-many-labels", message, "name the column of the labels; --kind regression takes numbers as they are"
    elif wrong := kind.wrong_labels(tuple(counts)):
        yield "labels-do-not-fit", wrong, "rename them in the file"
    elif kind.ordered and (word := next((label for label in counts if labels.number(label) is None), None)):
        message = f"'{word}' is not a number, so the order of the labels is not known"
        hint = "write the labels as numbers from low to high, or list them in the YAML of a task"
        yield "order-unknown", message, hint
    elif rare := {label: count for label, count in counts.items() if count < LEAST_ROWS}:
        shown = ", ".join(f"'{label}' has {plural(count, 'row')}" for label, count in list(rare.items())[:5])
        more = f" and {len(rare) - 5} more labels" if len(rare) > 5 else ""
        message = f"{shown}{more}; every label needs {LEAST_ROWS}, one for each fold"
        yield "rare-label", message, "label more of them, or remove or rename their rows"
