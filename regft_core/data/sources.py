"""Read one split of a task from files, from the Hugging Face hub or from the built-in generators."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from regft_core.data import builtin
from regft_core.data.file_format import NAMED, Table, is_known, suffix_of
from regft_core.data.hub import read_hub
from regft_core.data.rows import Declaration, Split, check_columns, to_examples
from regft_core.data.table import open_table
from regft_core.errors import DataError
from regft_core.io.paths import what_is
from regft_core.schema.tasks import BuiltinSource, FilesSource, HubSource

Source = HubSource | FilesSource | BuiltinSource


def read_split(root: Path, task_name: str, source: Source, split: str, declaration: Declaration) -> Split:
    """The examples of one split, in source order, with the numbers of rows that the declaration drops.

    ``split`` is a file path below ``data/`` for files, else a split name. Raises DataError.
    """
    if isinstance(source, BuiltinSource):
        return Split(builtin.generate(source.generator, split, source.options))
    if isinstance(source, FilesSource):
        where = f"task '{task_name}', {split}"
        path = _locate(root, source, split, where)
        with open_table(path, source.written, where, "key") as table:
            if suffix_of(path) != ".jsonl":  # whose rows need not all have every key
                check_columns(table, declaration, where)
            rows = list(table.rows)
        if suffix_of(path) == ".jsonl":
            names = list(dict.fromkeys(name for row in rows for name in row.values))
            check_columns(replace(table, names=names), declaration, where)
    else:
        where = f"task '{task_name}', {source.id}{'/' + source.config if source.config else ''} split '{split}'"
        names, rows = read_hub(root, source, split, where)
        check_columns(Table(names, iter(()), header="the set"), declaration, where)
    return to_examples(rows, declaration, where)


# ------------------------------------------------------------------------------------- files


def _locate(root: Path, source: FilesSource, split: str, where: str) -> Path:
    folder = root / "data"
    relative = Path(split)
    if relative.parts[:1] == ("data",):
        relative = Path(*relative.parts[1:])
    if relative.is_absolute() or ".." in relative.parts:
        raise DataError(
            "outside-data",
            f"{where}: the path leaves data/\n    -> copy or link the file into data/ and name it from there",
        )
    if not is_known(relative):
        raise DataError("unknown-format", f"{where}: unknown format\n    -> {NAMED}")
    path = folder / relative
    kind = what_is(path)
    if kind not in (None, "a file"):
        raise DataError(
            "not-a-file", f"{where}: data/{relative} is {kind}, not a file\n    -> give the path of a data file"
        )
    if kind is None:
        files = (p for p in folder.rglob("*") if is_known(p) and what_is(p) == "a file")
        present = sorted(str(p.relative_to(folder)) for p in files)
        near = get_close_matches(str(relative), present, n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'?" if near and source.get is None else f"put it at data/{relative}"
        hint += f": {source.get}" if source.get is not None else ""
        raise DataError("file-missing", f"{where}: no file data/{relative}\n    -> {hint}")
    return path
