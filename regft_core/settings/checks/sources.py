"""Checks on where rows come from: files that exist, their columns, ids that mean the hub."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from regft_core.data.builtin import SPLITS
from regft_core.data.file_format import NAMED, Table, WrongFile, column_problems, is_known, suffix_of
from regft_core.data.hub import shadow_problem
from regft_core.data.table import opened
from regft_core.errors import Problem
from regft_core.io.paths import what_is
from regft_core.names import listing, nearest, suggestion
from regft_core.schema.tasks import BuiltinSource, ColumnsConfig, FilesSource, HubSource
from regft_core.settings.checks.builtin_tasks import check_columns, check_kind, check_options
from regft_core.settings.checks.params import moves, revision_problem
from regft_core.settings.document import Document, KeyPath

Source = HubSource | FilesSource | BuiltinSource


@dataclass(frozen=True)
class Use:
    """A split that is read: ``document`` names it at ``path``."""

    document: Document
    path: KeyPath
    split: str


@dataclass(frozen=True)
class Columns:
    """The columns that are read, named at ``path`` of ``document``; ``sparse`` when rows may lack some."""

    document: Document
    path: KeyPath
    config: ColumnsConfig
    sparse: bool = False

    def wanted(self) -> Iterator[tuple[str, str]]:
        """Yield (key, column)."""
        of_labels = self.config.labels or ()
        for key in ("text", "text_pair", *(() if of_labels else ("label",)), "id", "group"):
            if (name := getattr(self.config, key)) is not None:
                yield key, name
        for name in of_labels:
            yield "labels", name


@dataclass
class Sources:
    """Checks sources together with the splits that are read from them; ``warnings`` is added to."""

    root: Path
    warnings: list[str]

    def check(
        self,
        kind: str,
        source: Source,
        document: Document,
        path: KeyPath,
        uses: Iterable[Use],
        columns: Columns,
    ) -> list[Problem]:
        """Problems of the ``source`` at ``path`` of ``document``."""
        if isinstance(source, FilesSource):
            return self._check_files(source, document, path, list(uses), columns)
        if isinstance(source, HubSource):
            return self._check_hub(source, document, path)
        problems = check_kind(kind, source, document, path)
        problems += check_columns(source.generator, columns.config, columns.document, columns.path)
        problems += check_options(source, document, path)
        for use in uses:
            if use.split not in SPLITS:
                hint = suggestion(use.split, SPLITS, "built-in tasks have")
                problems.append(use.document.problem("unknown-split", use.path, f"unknown split '{use.split}'", hint))
        return problems

    def _check_files(
        self, source: FilesSource, document: Document, at: KeyPath, uses: list[Use], columns: Columns
    ) -> list[Problem]:
        problems = list(_unused(source, document, at, [use.split for use in uses]))
        headers: dict[str, Table] = {}
        for use in uses:
            wrong = _file_problem(self.root, source, use)
            if not wrong:
                path = file_of(self.root, use.split)
                try:
                    with opened(path, source.written) as table:
                        header = replace(table, rows=iter(()))
                except WrongFile as error:
                    wrong = [use.document.problem(error.code, use.path, f"{file_name(use.split)} {error}", error.hint)]
                else:
                    # A row that may be dropped need not have every column: the first line tells little.
                    sparse = columns.sparse and ".jsonl" in path.name.lower()
                    if not sparse:
                        headers.setdefault(_below_data(use.split).as_posix(), header)
            problems += wrong
        return problems + (_unknown_columns(headers, columns))

    def _check_hub(self, source: HubSource, document: Document, path: KeyPath) -> list[Problem]:
        problems = []
        if hint := shadow_problem(source.id, self.root):
            problems.append(document.problem("dataset-shadowed", (*path, "id"), *hint))
        at = (*path, "revision")
        if problem := revision_problem(source.revision):
            problems.append(
                document.problem("bad-revision", at, problem, "give the commit (40 hex digits) of the dataset")
            )
        elif moves(source.revision):
            warning = f"{document.place(at)}: revision '{source.revision}' of {source.id} can move; pin the commit"
            if warning not in self.warnings:
                self.warnings.append(warning)
        return problems


def same_rows(root: Path, one: Source, split: str, other: Source, other_split: str) -> bool:
    """Whether two splits hold the same rows: one file under two names, or one split of one set.

    Revisions and generator options do not count: they vary a set, and its training rows stay its own.
    """
    if isinstance(one, FilesSource) and isinstance(other, FilesSource):
        first, second = file_of(root, split), file_of(root, other_split)
        try:
            return first == second or first.samefile(second)
        except (OSError, ValueError):
            return False
    if split.strip() != other_split.strip():
        return False
    if isinstance(one, HubSource) and isinstance(other, HubSource):
        return (one.id.lower(), one.config) == (other.id.lower(), other.config)
    return isinstance(one, BuiltinSource) and isinstance(other, BuiltinSource) and one.generator == other.generator


def file_of(root: Path, split: str) -> Path:
    """The file that a ``files`` split names: below ``data/``, which may be written in front or not."""
    return root / "data" / _below_data(split)


def file_name(split: str) -> str:
    """The file of a ``files`` split, for messages."""
    return f"data/{_below_data(split).as_posix()}"


def is_there(root: Path, split: str) -> bool:
    """Whether a ``files`` split has something under its name, right or wrong."""
    inside = not Path(split).is_absolute() and ".." not in Path(split).parts and "\0" not in split
    return not inside or what_is(file_of(root, split)) is not None


def _below_data(split: str) -> Path:
    parts = Path(split).parts
    return Path(*parts[1:]) if parts[:1] == ("data",) else Path(*parts)


def _file_problem(root: Path, source: FilesSource, use: Use) -> list[Problem]:
    """The problem of a split that is no data file below ``data/``."""

    def wrong(code: str, message: str, hint: str) -> list[Problem]:
        return [use.document.problem(code, use.path, message, hint)]

    split = use.split
    folder = root / "data"
    inside = "copy the file below data/ and give its path from there"
    if Path(split).is_absolute() or split.startswith("~"):
        return wrong("outside-data", f"'{split}' is not a path below data/", inside)
    if ".." in Path(split).parts or "\\" in split or "\0" in split:
        return wrong("outside-data", f"'{split}' leaves data/", inside)
    relative = _below_data(split)
    if not is_known(relative):
        return wrong("unknown-format", f"'{split}' has an unknown format", NAMED)
    path = folder / relative
    kind = what_is(path)
    if kind is None:
        present = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if is_known(p))
        present = [name for name in present if what_is(folder / name) == "a file"]
        near = nearest(relative.as_posix(), present)
        get = source.get
        hint = f"did you mean '{near}'?" if near and get is None else "put the file there"
        hint += f": {get}" if get is not None else ""
        return wrong("file-missing", f"there is no file data/{relative.as_posix()}", hint)
    if kind != "a file":
        return wrong("not-a-file", f"data/{relative.as_posix()} is {kind}, not a file", "give the path of a data file")
    # DVC may link tracked files into its cache; a link to anywhere else would escape its watch.
    homes = (folder.resolve(), (root / ".dvc" / "cache").resolve())
    if not any(path.resolve().is_relative_to(home) for home in homes):
        return wrong("outside-data", f"'{split}' is a link that leaves data/ (to {path.resolve()})", inside)
    return []


#: Keys of a source of files, and the formats that they are for.
_FOR = {"delimiter": (".csv", ".tsv"), "encoding": (".csv", ".tsv", ".jsonl"), "sheet": (".xlsx",)}


def _unused(source: FilesSource, document: Document, at: KeyPath, splits: list[str]) -> Iterator[Problem]:
    """Keys that say how files are written, where no file is written so."""
    suffixes = {suffix_of(Path(split)) for split in splits}
    for key, own in _FOR.items():
        if suffixes and getattr(source, key) is not None and suffixes.isdisjoint(own):
            message = f"'{key}' is for {listing(own)}, and no file of this source is one"
            yield document.problem("key-without-effect", (*at, key), message, "remove it")


def _unknown_columns(headers: dict[str, Table], columns: Columns) -> list[Problem]:
    lacking: dict[tuple[str, str], tuple[str, list[str]]] = {}
    for file, table in headers.items():
        for key, message, hint in column_problems(table, list(columns.wanted()), "key"):
            lacking.setdefault((key, message), (hint, []))[1].append(f"data/{file}")
    return [
        columns.document.problem("column-missing", (*columns.path, key), f"{message} in {listing(files)}", hint)
        for (key, message), (hint, files) in lacking.items()
    ]
