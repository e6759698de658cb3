"""Read raw rows as examples, as the YAML of their task declares them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from regft_core.data.examples import Example, WrongText, text_of
from regft_core.data.file_format import Row, Table, column_problems
from regft_core.errors import DataError
from regft_core.kinds import WrongLabel, find
from regft_core.kinds._reading import as_text, given
from regft_core.schema.tasks import ColumnsConfig

#: Problems of one file that are spelled out; the rest are counted.
SHOWN = 5


@dataclass(frozen=True)
class Declaration:
    """The declaration of one set's rows in its YAML."""

    kind: str
    columns: ColumnsConfig
    labels: tuple[str, ...] | None = None
    label_values: Mapping[str, str] | None = None
    drop_labels: tuple[str, ...] = ()
    drop_empty: bool = False
    range: tuple[float, float] | None = None
    decimal: str | None = None
    #: False for a set whose labels are hidden: none is read (all are 0), and no row is dropped.
    labelled: bool = True

    @property
    def label_column(self) -> str:
        """Column of the label."""
        return self.columns.label

    @property
    def label_delimiter(self) -> str:
        """Separator of several labels in one cell."""
        return self.columns.label_delimiter or ";"


@dataclass
class Split:
    """The rows of one split, and how many were dropped for which declared reason."""

    examples: list[Example]
    dropped: dict[str, int] = field(default_factory=dict)
    #: The group of each example; None where the set names no column of groups.
    groups: list[str] | None = None

    @property
    def group_of(self) -> dict[str, str]:
        """Identifier of each example -> its group; empty without groups."""
        return {example.idx: group for example, group in zip(self.examples, self.groups or ())}

    def take(self, rows: Sequence[int]) -> Split:
        """Some of the rows, by number; what was dropped stays with the whole."""
        groups = None if self.groups is None else [self.groups[row] for row in rows]
        return Split([self.examples[row] for row in rows], {}, groups)


def check_columns(table: Table, declaration: Declaration, where: str) -> None:
    """Raise DataError when a declared column is not there."""
    columns = declaration.columns
    wanted = [("text", columns.text), ("text_pair", columns.text_pair), ("id", columns.id), ("group", columns.group)]
    if declaration.labelled:
        key = "label" if columns.labels is None else "labels"
        wanted[2:2] = [(key, name) for name in columns.of_labels]
    named = [(f"columns.{key}", name) for key, name in wanted if name is not None]
    if problems := column_problems(table, named, "key"):
        lines = "; ".join(f"{key}: {message}" for key, message, _ in problems)
        hints = "; ".join(dict.fromkeys(hint for _, _, hint in problems))
        raise DataError("column-missing", f"{where}: {lines}\n    -> {hints}")


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
    for number, row in enumerate(rows):
        try:
            example = _to_example(row, number, declaration, dropped)
            if example is None:
                continue
            if example.idx in seen:
                raise WrongText(f"identifier {given(example.idx)} was already used by {seen[example.idx]}")
            seen[example.idx] = row.position
            if declaration.columns.group is not None:
                groups.append(_named(row.values.get(declaration.columns.group), declaration.columns.group, "group"))
            examples.append(example)
        except (WrongText, WrongLabel) as bad:
            problems.append(f"{row.position}: {bad}")
    if problems:
        more = len(problems) - SHOWN
        tail = [f"... and {more} more"] if more > 0 else []
        count = f"{len(problems)} of {len(rows)} rows do not match the declaration"
        spelled = "\n".join(f"  {line}" for line in problems[:SHOWN] + tail)
        keys = f"{find(declaration.kind).label_keys}'drop_labels' (by label) and 'drop_empty' leave rows out"
        hint = f"correct the rows, or the task's YAML: {keys}"
        raise DataError("rows-do-not-match", f"{where}: {count}\n{spelled}\n    -> {hint}")
    if not examples:
        why = f" (all {len(rows)} were dropped: {dict(dropped)})" if rows else ""
        raise DataError("no-rows", f"{where}: no rows{why}\n    -> a set needs at least one labelled row")
    grouped = groups if declaration.columns.group is not None else None
    return Split(examples, dict(sorted(dropped.items())), grouped)


def _to_example(row: Row, number: int, declaration: Declaration, dropped: Counter[str]) -> Example | None:
    columns, values = declaration.columns, row.values

    def example(texts: Sequence[str | None], label: int | float) -> Example:
        idx = str(number) if columns.id is None else _named(values.get(columns.id), columns.id, "identifier")
        return Example(idx, texts[0] or "", (texts[1] or "") if len(texts) > 1 else None, label)

    if not declaration.labelled:
        # A missing text is an empty one, for every row needs its prediction.
        return example([text_of(values.get(name), name) for name in columns.texts], 0)
    names = columns.labels
    raw_label = values.get(columns.label) if names is None else {name: values.get(name) for name in names}
    label_text = as_text(raw_label) or ""
    if label_text in declaration.drop_labels:
        dropped[f"label {label_text}"] += 1
        return None
    texts = {name: text_of(values.get(name), name) for name in columns.texts}
    empty = next((name for name, text in texts.items() if text is None), None)
    if empty is not None:
        if declaration.drop_empty:
            dropped["without text"] += 1
            return None
        shown = "missing" if values.get(empty) is None else given(values.get(empty))
        raise WrongText(f"column '{empty}' has no text ({shown}); fill it in, or set drop_empty: true")
    label = find(declaration.kind).read_label(raw_label, declaration)
    if isinstance(label, bool) or not isinstance(label, int | float):
        raise WrongLabel(f"kind '{declaration.kind}' reads label {given(raw_label)} as {given(label)}, not as a number")
    return example(list(texts.values()), label)


def _named(value: Any, column: str, what: str) -> str:
    text = as_text(value)
    if not text:
        raise WrongText(f"column '{column}' has no {what}")
    return text_of(text, column) or text
