"""Checks on where rows come from: files that exist, their columns, ids that mean the hub."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from regft_core.data.builtin import SPLITS, BuiltinOptions
from regft_core.data.file_format import NAMED, WrongFile, below_data, is_known
from regft_core.data.prepare import EvaluationSet
from regft_core.data.read_split import Declaration, missing_columns
from regft_core.data.table import opened
from regft_core.disk.paths import what_is
from regft_core.errors import Problem
from regft_core.names import nearest, suggestion
from regft_core.schema.sources import BuiltinSource, FilesSource, HubSource, PackageSource, Source
from regft_core.settings.document import Document, KeyPath
from regft_core.settings.validate import Found, validate

_COMMIT = re.compile(r"[0-9a-f]{40}")
_REVISION = re.compile(r"[A-Za-z0-9][\w./-]*", re.ASCII)


class Use(NamedTuple):
    """A split that is read: ``document`` names it at ``path``."""

    document: Document
    path: KeyPath
    split: str


def check_source(
    root: Path, judged: EvaluationSet, document: Document, at: KeyPath, columns: KeyPath, use: Use
) -> Iterator[Found]:
    """Yield what is wrong with a set: its ``source`` at ``at`` of ``document``, its columns there, and its split.

    A revision that is a branch or tag is a warning.
    """
    source = judged.source
    if isinstance(source, FilesSource):
        yield from _check_file(root, source, judged.declaration, document, columns, use)
    elif isinstance(source, HubSource):
        if problem := revision_problem(source.revision):
            yield document.problem("bad-revision", (*at, "revision"), problem, "give the commit (40 hex digits)")
        if moves(source.revision):
            where = document.place((*at, "revision"))
            yield f"{where}: revision '{source.revision}' of {source.id} can move; pin the commit"
    elif isinstance(source, BuiltinSource):
        yield from validate(BuiltinOptions, document, (*at, "options"))[1] if source.options else ()
        if use.split not in SPLITS:
            hint = suggestion(use.split, SPLITS, "built-in tasks have")
            yield use.document.problem("unknown-split", use.path, f"unknown split '{use.split}'", hint)


def _check_file(
    root: Path, source: FilesSource, declared: Declaration, document: Document, columns: KeyPath, use: Use
) -> Iterator[Problem]:
    try:
        file = locate(root, source, use.split)
    except WrongFile as error:
        yield use.document.problem(error.code, use.path, str(error), error.hint)
        return
    try:
        with opened(file, source) as table:
            # Rows of JSON lines that may be dropped need not have every column: the first one tells little.
            sparse = declared.drop_empty and ".jsonl" in file.name.lower()
            for key, message, hint in [] if sparse else missing_columns(table, declared):
                text = f"{message} in {file_name(use.split)}"
                yield document.problem("column-missing", (*columns, key), text, hint)
    except WrongFile as error:
        yield use.document.problem(error.code, use.path, f"{file_name(use.split)} {error}", error.hint)


def revision_problem(revision: str) -> str:
    """Why ``revision`` cannot be a revision on the hub; empty when it can."""
    return "" if _REVISION.fullmatch(revision) else f"'{revision}' is not a commit, tag or branch"


def moves(revision: str) -> bool:
    """Whether ``revision`` is a branch or tag, which may point elsewhere tomorrow."""
    return not _COMMIT.fullmatch(revision)


def same_rows(root: Path, one: Source, split: str, other: Source, other_split: str) -> bool:
    """Whether two splits hold the same rows: one file under two names, or one split of one set.

    Revisions and generator options do not count: they vary a set, and its training rows stay its own.
    """
    if isinstance(one, FilesSource) and isinstance(other, FilesSource):
        first, second = root / "data" / below_data(split), root / "data" / below_data(other_split)
        try:
            return first == second or first.samefile(second)
        except (OSError, ValueError):
            return False
    if split.strip() != other_split.strip():
        return False
    if isinstance(one, HubSource) and isinstance(other, HubSource):
        return (one.id.lower(), one.config) == (other.id.lower(), other.config)
    if isinstance(one, PackageSource) and isinstance(other, PackageSource):
        return (one.name.lower(), one.reader) == (other.name.lower(), other.reader)
    return isinstance(one, BuiltinSource) and isinstance(other, BuiltinSource) and one.generator == other.generator


def locate(root: Path, source: FilesSource, split: str) -> Path:
    """The file of a split. Raises WrongFile where there is none below ``data/``; it names the file."""
    folder, relative = root / "data", below_data(split)
    inside = "copy the file below data/ and give its path from there"
    if relative.is_absolute() or split.startswith("~") or ".." in relative.parts or {"\\", "\0"} & set(split):
        raise WrongFile("outside-data", f"'{split}' is not a path below data/", inside)
    if not is_known(relative):
        raise WrongFile("unknown-format", f"'{split}' has an unknown format", NAMED)
    path, name = folder / relative, f"data/{relative.as_posix()}"
    kind = what_is(path)
    if kind is None:
        files = (other for other in folder.rglob("*") if is_known(other) and what_is(other) == "a file")
        near = nearest(relative.as_posix(), (other.relative_to(folder).as_posix() for other in files))
        hint = f"did you mean '{near}'?" if near and source.get is None else f"put it at {name}"
        raise WrongFile("file-missing", f"there is no file {name}", hint + (f": {source.get}" if source.get else ""))
    if kind != "a file":
        raise WrongFile("not-a-file", f"{name} is {kind}, not a file", "give the path of a data file")
    # DVC may link tracked files into its cache; a link to anywhere else would escape its watch.
    homes = (folder.resolve(), (root / ".dvc" / "cache").resolve())
    if not any(path.resolve().is_relative_to(home) for home in homes):
        raise WrongFile("outside-data", f"'{split}' is a link that leaves data/ (to {path.resolve()})", inside)
    return path


def file_name(split: str) -> str:
    """The file of a ``files`` split, for messages."""
    return f"data/{below_data(split).as_posix()}"


def is_there(root: Path, split: str) -> bool:
    """Whether a ``files`` split has something under its name, right or wrong."""
    inside = not Path(split).is_absolute() and ".." not in Path(split).parts and "\0" not in split
    return not inside or what_is(root / "data" / below_data(split)) is not None
