"""Read one split of a task from files, from the Hugging Face hub or from the built-in generators."""

from __future__ import annotations

import gzip
import io
import zlib
from difflib import get_close_matches
from pathlib import Path

from regft_core.config.paths import what_is
from regft_core.config.schema.tasks import BuiltinSource, FilesSource, HubSource
from regft_core.data import builtin
from regft_core.data.declare import Declaration, Row, Split, check_columns, to_examples
from regft_core.data.hub import read_hub
from regft_core.data.rows import FORMATS, json_lines, parquet, suffix_of, table
from regft_core.errors import DataError

Source = HubSource | FilesSource | BuiltinSource


def read_split(root: Path, task_name: str, source: Source, split: str, declaration: Declaration) -> Split:
    """The examples of one split, in source order, with the numbers of rows that the declaration drops.

    ``split`` is a file path below ``data/`` for files, else a split name. Raises DataError.
    """
    if isinstance(source, BuiltinSource):
        return Split(builtin.generate(source.generator, split, source.options))
    if isinstance(source, FilesSource):
        where = f"task '{task_name}', {split}"
        names, rows = _read_file(_locate(root, source, split, where), where, source.quoted)
    else:
        where = f"task '{task_name}', {source.id}{'/' + source.config if source.config else ''} split '{split}'"
        names, rows = read_hub(root, source, split, where)
    check_columns(names, declaration, where)
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
    suffix = suffix_of(relative)
    if suffix not in FORMATS:
        raise DataError(
            "unknown-format",
            f"{where}: unknown format\n    -> the name ends in one of {', '.join(FORMATS)}, or that + .gz",
        )
    path = folder / relative
    kind = what_is(path)
    if kind not in (None, "a file"):
        raise DataError(
            "not-a-file", f"{where}: data/{relative} is {kind}, not a file\n    -> give the path of a data file"
        )
    if kind is None:
        files = (p for p in folder.rglob("*") if suffix_of(p) in FORMATS and what_is(p) == "a file")
        present = sorted(str(p.relative_to(folder)) for p in files)
        near = get_close_matches(str(relative), present, n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'?" if near and source.get is None else f"put it at data/{relative}"
        hint += f": {source.get}" if source.get is not None else ""
        raise DataError("file-missing", f"{where}: no file data/{relative}\n    -> {hint}")
    return path


def _read_file(path: Path, where: str, quoted: bool) -> tuple[list[str], list[Row]]:
    try:
        content = path.read_bytes()
        if path.name.lower().endswith(".gz"):
            content = gzip.decompress(content)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            "damaged-file", f"{where}: the gzip file is damaged or cut off ({error})\n    -> copy it again"
        ) from error
    except OSError as error:
        raise DataError("cannot-read", f"{where}: cannot be read ({error.strerror})") from error
    suffix = suffix_of(path)
    if suffix == ".parquet":
        names, _, found = parquet(io.BytesIO(content), where)
        return names, list(found)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(
            "not-utf8",
            f"{where}: not UTF-8 text (line {line}, byte {content[error.start]:#04x})\n    -> save the file as UTF-8",
        ) from error
    if suffix == ".jsonl":
        return _parse_jsonl(text, where)
    names, found = table(io.StringIO(text, newline=""), "\t" if suffix == ".tsv" else ",", where, quoted=quoted)
    return names, list(found)


def _parse_jsonl(text: str, where: str) -> tuple[list[str], list[Row]]:
    found = list(json_lines(text.split("\n"), where))
    if not found:
        raise DataError("no-rows", f"{where}: no rows\n    -> one JSON object per line")
    names = dict.fromkeys(name for row in found for name in row.values)
    return list(names), found
