"""Read one split of a task from files, from the Hugging Face hub or from the built-in generators."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from regft_core.data import builtin
from regft_core.data.file_format import Table, suffix_of
from regft_core.data.hub import read_hub
from regft_core.data.rows import Declaration, Split, check_columns, to_examples
from regft_core.data.table import open_table
from regft_core.errors import DataError
from regft_core.schema.tasks import BuiltinSource, FilesSource, HubSource

Source = HubSource | FilesSource | BuiltinSource


def read_split(root: Path, task_name: str, source: Source, split: str, declaration: Declaration) -> Split:
    """Return the examples of one split, in source order, with the numbers of rows that the declaration drops.

    ``split`` is a file path below ``data/`` for files, else a split name. Raises DataError.
    """
    if isinstance(source, BuiltinSource):
        return Split(builtin.generate(source.generator, split, source.options))
    if isinstance(source, HubSource):
        where = f"task '{task_name}', {source.id}{'/' + source.config if source.config else ''} split '{split}'"
        names, rows = read_hub(root, source, split, where)
        check_columns(Table(names, iter(()), header="the set"), declaration, where)
        return to_examples(rows, declaration, where)
    where, file = f"task '{task_name}', {split}", Path(split)
    if file.is_absolute() or ".." in file.parts:
        hint = "copy or link the file into data/ and name it from there"
        raise DataError("outside-data", f"{where}: the path leaves data/\n    -> {hint}")
    path = root / "data" / (file.relative_to("data") if file.parts[:1] == ("data",) else file)
    with open_table(path, source.written, where, "key") as table:
        if suffix_of(path) != ".jsonl":
            check_columns(table, declaration, where)
        rows = list(table.rows)
    if suffix_of(path) == ".jsonl":  # whose rows need not all have every key
        names = list(dict.fromkeys(name for row in rows for name in row.values))
        check_columns(replace(table, names=names), declaration, where)
    return to_examples(rows, declaration, where)
