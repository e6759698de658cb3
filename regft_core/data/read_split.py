"""Read one split of a task as examples, as its YAML declares them: from files, the hub or a package."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from regft_core.data.examples import Example, WrongText, text_of
from regft_core.data.fetched import Fetched, fetch, stored
from regft_core.data.file_format import Row, Table, below_data, column_problems, suffix_of
from regft_core.data.table import open_table
from regft_core.errors import DataError
from regft_core.kinds import Declared, WrongLabel, find
from regft_core.kinds._reading import as_text, given, listed_labels
from regft_core.schema.sources import Source
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
    #: False for a set whose labels are hidden: none is read (all are 0), nor a group, and no row is dropped.
    labelled: bool = True

    @property
    def declared(self) -> Declared:
        """Labels and range, as the kind of task reads them."""
        columns = self.columns.label, self.columns.label_delimiter or ";"
        return Declared(self.labels, self.label_values, self.range, self.decimal, *columns)


@dataclass
class Split:
    """The rows of one split, and how many were dropped for which declared reason."""

    examples: list[Example]
    dropped: dict[str, int] = field(default_factory=dict)
    #: The group of each example; None where the set names no column of groups.
    groups: list[str] | None = None

    def take(self, rows: Sequence[int]) -> Split:
        """Some of the rows, by number; what was dropped stays with the whole."""
        groups = None if self.groups is None else [self.groups[row] for row in rows]
        return Split([self.examples[row] for row in rows], {}, groups)


def read_split(root: Path, task_name: str, source: Source, split: str, declaration: Declaration) -> Split:
    """Return the examples of one split, in source order, and what was dropped. Raises DataError."""
    if isinstance(source, Fetched):
        where = f"task '{task_name}', {source.title} split '{split}'"
        fetch(root, source, split, where)
        table = stored(root, source, split, where)
        check_columns(table, declaration, where)
        return to_examples(list(table.rows), declaration, where)
    where, path = f"task '{task_name}', {split}", root / "data" / below_data(split)
    with open_table(path, source, where) as table:
        sparse = suffix_of(path) == ".jsonl"  # whose rows need not all have every key
        if not sparse:
            check_columns(table, declaration, where)
        rows = list(table.rows)
    if sparse:
        names = list(dict.fromkeys(name for row in rows for name in row.values))
        check_columns(replace(table, names=names), declaration, where)
    return to_examples(rows, declaration, where)


def missing_columns(table: Table, declaration: Declaration) -> list[tuple[str, str, str]]:
    """Return (key below ``columns``, message, hint) for each declared column that a table lacks."""
    columns = declaration.columns
    wanted = [("text", columns.text), ("text_pair", columns.text_pair), ("id", columns.id)]
    if declaration.labelled:
        wanted[2:2] = [("label" if columns.labels is None else "labels", name) for name in columns.of_labels]
        wanted.append(("group", columns.group))
    return column_problems(table, [(key, name) for key, name in wanted if name])


def check_columns(table: Table, declaration: Declaration, where: str) -> None:
    """Raise DataError when a declared column is not there."""
    if problems := missing_columns(table, declaration):
        lines = "; ".join(f"columns.{key}: {message}" for key, message, _ in problems)
        hints = "; ".join(dict.fromkeys(hint for _, _, hint in problems))
        raise DataError("column-missing", f"{where}: {lines}\n    -> {hints}")


def to_examples(rows: Sequence[Row], declaration: Declaration, where: str) -> Split:
    """Turn raw rows into examples; ``where`` names the file. Raises DataError with the first ``SHOWN`` problems."""
    problems: list[str] = []
    dropped: Counter[str] = Counter()
    examples: list[Example] = []
    groups: list[str] = []
    seen: dict[str, str] = {}
    column, declared = declaration.columns.group if declaration.labelled else None, declaration.declared
    for number, row in enumerate(rows):
        try:
            example = _to_example(row, number, declaration, declared)
            if isinstance(example, str):
                dropped[example] += 1
                continue
            if example.idx in seen:
                raise WrongText(f"identifier {given(example.idx)} was already used by {seen[example.idx]}")
            seen[example.idx] = row.position
            if column is not None:
                groups.append(_named(row.values.get(column), column, "group"))
            examples.append(example)
        except (WrongText, WrongLabel) as bad:
            problems.append(f"{row.position}: {bad}")
    if problems:
        more = [f"... and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
        spelled = "\n".join(f"  {line}" for line in problems[:SHOWN] + more)
        count = f"{len(problems)} of {len(rows)} rows do not match the declaration"
        keys = f"{find(declaration.kind).label_keys}'drop_labels' (by label) and 'drop_empty' leave rows out"
        hint = f"correct the rows, or the task's YAML: {keys}"
        raise DataError("rows-do-not-match", f"{where}: {count}\n{spelled}\n    -> {hint}")
    if not examples:
        why = f" (all {len(rows)} were dropped: {dict(dropped)})" if rows else ""
        raise DataError("no-rows", f"{where}: no rows{why}\n    -> a set needs at least one labelled row")
    return Split(examples, dict(sorted(dropped.items())), None if column is None else groups)


def _to_example(row: Row, number: int, declaration: Declaration, declared: Declared) -> Example | str:
    """Return a row as an example, or why it is dropped. Raises WrongText or WrongLabel."""
    columns, values = declaration.columns, row.values

    def example(texts: Sequence[str | None], label: int | float) -> Example:
        idx = str(number) if columns.id is None else _named(values.get(columns.id), columns.id, "identifier")
        return Example(idx, texts[0] or "", (texts[1] or "") if len(texts) > 1 else None, label)

    if not declaration.labelled:
        # A missing text is an empty one, for every row needs its prediction.
        return example([text_of(values.get(name), name) for name in columns.texts], 0)
    names = columns.labels
    raw_label = values.get(columns.label) if names is None else {name: values.get(name) for name in names}
    listed = listed_labels(raw_label) if names is None else None
    alone = listed if listed and len(listed) == 1 and find(declaration.kind).one_label else [raw_label]
    for label_text in [as_text(raw_label) or "", *(as_text(label) or "" for label in alone)]:
        if label_text in declaration.drop_labels:
            return f"label {label_text}"
    texts = {name: text_of(values.get(name), name) for name in columns.texts}
    if (empty := next((name for name, text in texts.items() if text is None), None)) is not None:
        if declaration.drop_empty:
            return "without text"
        shown = "missing" if values.get(empty) is None else given(values.get(empty))
        raise WrongText(f"column '{empty}' has no text ({shown}); fill it in, or set drop_empty: true")
    if names is None and isinstance(raw_label, Mapping) and listed is None:
        raise WrongLabel(f"label {given(raw_label)} is an object, not a name")
    return example(list(texts.values()), find(declaration.kind).read_label(raw_label, declared))


def _named(value: Any, column: str, what: str) -> str:
    text = text_of(as_text(value), column)
    if text is None:
        raise WrongText(f"column '{column}' has no {what}")
    return text
