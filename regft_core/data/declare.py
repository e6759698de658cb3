"""From a source's raw values to examples, checked against what the task's YAML declares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from regft_core.data.examples import Example
from regft_core.data.file_format import separator_hint
from regft_core.errors import DataError
from regft_core.kinds import WrongLabel, find
from regft_core.kinds._reading import as_text, given, is_nan
from regft_core.schema.tasks import ColumnsConfig

#: Problems of one file that are spelled out; the rest are counted.
SHOWN = 5


@dataclass(frozen=True)
class Declaration:
    """What one set's YAML says of its rows."""

    kind: str
    columns: ColumnsConfig
    labels: tuple[str, ...] | None = None
    label_values: Mapping[str, str] | None = None
    drop_labels: tuple[str, ...] = ()
    drop_empty: bool = False
    range: tuple[float, float] | None = None
    #: False for a set whose labels are hidden: none is read (all are 0), and no row is dropped.
    labelled: bool = True

    @property
    def label_column(self) -> str:
        """Column of the label."""
        return self.columns.label

    @property
    def label_delimiter(self) -> str:
        """What separates several labels in one cell."""
        return self.columns.label_delimiter or ";"


@dataclass
class Split:
    """The rows of one split, and how many were dropped for which declared reason."""

    examples: list[Example]
    dropped: dict[str, int] = field(default_factory=dict)
    #: The group of each example; None where the set names no column of groups.
    groups: list[str] | None = None
    #: Rows whose label is a number in other digits than 0 to 9.
    foreign_digits: int = 0

    @property
    def group_of(self) -> dict[str, str]:
        """Identifier of each example -> its group; empty without groups."""
        return {example.idx: group for example, group in zip(self.examples, self.groups or ())}

    def take(self, rows: Sequence[int]) -> Split:
        """Some of the rows, by number; what was dropped stays with the whole."""
        groups = None if self.groups is None else [self.groups[row] for row in rows]
        return Split([self.examples[row] for row in rows], {}, groups)


@dataclass(frozen=True)
class Row:
    """One raw row: ``position`` is where a user finds it ("row 3 (line 4)"), ``values`` by column name."""

    position: str
    values: Mapping[str, Any]


class _Bad(Exception):
    """One value that does not fit; the caller adds the place."""


def check_columns(names: Sequence[str], declaration: Declaration, where: str) -> None:
    """Raise DataError when a declared column is not among ``names``."""
    columns = declaration.columns
    wanted = [("text", columns.text), ("text_pair", columns.text_pair), ("id", columns.id), ("group", columns.group)]
    if declaration.labelled:
        key = "label" if columns.labels is None else "labels"
        wanted[2:2] = [(key, name) for name in columns.of_labels]
    missing = [(key, name) for key, name in wanted if name is not None and name not in names]
    if not missing:
        return
    lines = []
    for key, name in missing:
        near = get_close_matches(name, names, n=1, cutoff=0.5)
        lines.append(f"columns.{key}: no column '{name}'" + (f", did you mean '{near[0]}'?" if near else ""))
    if hint := separator_hint(names, [name for _, name in missing]):
        raise DataError("column-missing", f"{where}: no column '{missing[0][1]}'\n    -> {hint}")
    for key, name in missing:
        if (outer := name.partition(".")[0]) in names and "." in name:
            message = f"columns.{key}: no column '{name}', and fields within '{outer}' are not read"
            raise DataError("column-missing", f"{where}: {message}\n    -> write every field on one level")
    shown = ", ".join(repr(name) for name in names[:20]) or "none"
    raise DataError("column-missing", f"{where}: " + "; ".join(lines) + f"\n    -> its columns are {shown}")


def to_examples(rows: Sequence[Row], declaration: Declaration, where: str) -> Split:
    """Turn raw rows into examples.

    ``where`` names the file or split in messages. Raises DataError that spells out the first
    ``SHOWN`` problems with their rows and values, and counts the others.
    """
    problems: list[str] = []
    dropped: Counter[str] = Counter()
    examples: list[Example] = []
    groups: list[str] = []
    seen: dict[str, str] = {}
    foreign = 0
    for number, row in enumerate(rows):
        try:
            example = _to_example(row, number, declaration, dropped)
            if example is None:
                continue
            if example.idx in seen:
                raise _Bad(f"identifier {given(example.idx)} was already used by {seen[example.idx]}")
            seen[example.idx] = row.position
            if declaration.columns.group is not None:
                groups.append(_named(row.values.get(declaration.columns.group), declaration.columns.group, "group"))
            examples.append(example)
            foreign += declaration.labelled and _has_foreign_digits(row, declaration)
        except (_Bad, WrongLabel) as bad:
            problems.append(f"{row.position}: {bad}")
    if problems:
        more = len(problems) - SHOWN
        tail = [f"... and {more} more"] if more > 0 else []
        count = f"{len(problems)} of {len(rows)} rows do not match the declaration"
        spelled = "\n".join(f"  {line}" for line in problems[:SHOWN] + tail)
        raise DataError("rows-do-not-match", f"{where}: {count}\n{spelled}\n    -> {_remedy(declaration)}")
    if not examples:
        why = f" (all {len(rows)} were dropped: {dict(dropped)})" if rows else ""
        raise DataError("no-rows", f"{where}: no rows{why}\n    -> a set needs at least one labelled row")
    grouped = groups if declaration.columns.group is not None else None
    return Split(examples, dict(sorted(dropped.items())), grouped, foreign)


def _remedy(declaration: Declaration) -> str:
    """What to do about rows that do not match: the keys of the task's YAML that settle such rows."""
    keys = f"{find(declaration.kind).label_keys}'drop_labels' (by label) and 'drop_empty' leave rows out"
    return f"correct the rows, or the task's YAML: {keys}"


def _to_example(row: Row, number: int, declaration: Declaration, dropped: Counter[str]) -> Example | None:
    columns, values = declaration.columns, row.values
    if not declaration.labelled:
        return _unlabelled(row, number, columns)
    raw_label = _raw_label(row, columns)
    label_text = as_text(raw_label)
    if label_text is not None and label_text in declaration.drop_labels:
        dropped[f"label {label_text}"] += 1
        return None
    names = [columns.text] + ([columns.text_pair] if columns.text_pair is not None else [])
    if declaration.drop_empty and any(_is_empty(values.get(name)) for name in names):
        dropped["without text"] += 1
        return None
    texts = [_text(values.get(name), name) for name in names]
    label = find(declaration.kind).read_label(raw_label, declaration)
    idx = str(number) if columns.id is None else _named(values.get(columns.id), columns.id, "identifier")
    return Example(idx, texts[0], texts[1] if len(texts) > 1 else None, label)


def _raw_label(row: Row, columns: ColumnsConfig) -> Any:
    """What the file has for the label; of several columns all of them."""
    if columns.labels is not None:
        return {name: row.values.get(name) for name in columns.labels}
    return row.values.get(columns.label)


def _has_foreign_digits(row: Row, declaration: Declaration) -> bool:
    """Whether the label is written in digits of another script, which count as numbers, and is no declared name."""
    text = as_text(_raw_label(row, declaration.columns)) or ""
    named = {*(declaration.labels or ()), *(declaration.label_values or ())}
    return text not in named and any(c.isdecimal() and not c.isascii() for c in text)


def _unlabelled(row: Row, number: int, columns: ColumnsConfig) -> Example:
    """A row whose label is hidden; a missing text is an empty one, for every row needs its prediction."""
    names = [columns.text] + ([columns.text_pair] if columns.text_pair is not None else [])
    raw = [row.values.get(name) for name in names]
    texts = ["" if _is_empty(value) else _text(value, name) for name, value in zip(names, raw)]
    idx = str(number) if columns.id is None else _named(row.values.get(columns.id), columns.id, "identifier")
    return Example(idx, texts[0], texts[1] if len(texts) > 1 else None, 0)


def _is_empty(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_empty(part) for part in value)
    return value is None or is_nan(value) or (isinstance(value, str) and not value.strip())


def _text(value: Any, column: str) -> str:
    if _is_empty(value):
        shown = "missing" if value is None else given(value)
        raise _Bad(f"column '{column}' has no text ({shown}); fill it in, or set drop_empty: true")
    if isinstance(value, list | tuple) and value and all(isinstance(part, str) for part in value):
        value = " ".join(value)  # keyword lists (CSL)
    if not isinstance(value, str):
        raise _Bad(f"column '{column}' is {given(value)}, not text")
    try:
        value.encode("utf-8")  # a lone surrogate from a JSON escape cannot be written to any file
    except UnicodeEncodeError:
        raise _Bad(f"column '{column}' holds half of a surrogate pair: {given(value)}") from None
    return value


def _named(value: Any, column: str, what: str) -> str:
    text = as_text(value)
    if not text:
        raise _Bad(f"column '{column}' has no {what}")
    return text
