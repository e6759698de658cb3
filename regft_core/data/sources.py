"""Read one split of a task from files, from the Hugging Face hub or from the built-in generators."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import zlib
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from regft_core.config.hub import shadow_problem
from regft_core.config.paths import what_is
from regft_core.config.schema import BuiltinSource, FilesSource, HubSource
from regft_core.data import builtin
from regft_core.data.declare import Declaration, Row, Split, check_columns, to_examples
from regft_core.data.examples import Example
from regft_core.errors import DataError

Source = HubSource | FilesSource | BuiltinSource
FORMATS = (".csv", ".tsv", ".jsonl", ".parquet")


def read_split(root: Path, task_name: str, source: Source, split: str, declaration: Declaration) -> list[Example]:
    """The examples of one split, in source order.

    ``split`` is a file path below ``data/`` for files, else a split name. Raises DataError.
    """
    return read_split_counted(root, task_name, source, split, declaration).examples


def read_split_counted(root: Path, task_name: str, source: Source, split: str, declaration: Declaration) -> Split:
    """``read_split``, with the numbers of rows that the declaration drops."""
    if isinstance(source, BuiltinSource):
        return Split(builtin.generate(source.generator, split, source.options))
    if isinstance(source, FilesSource):
        where = f"task '{task_name}', {split}"
        names, rows = _read_file(_locate(root, split, where), where)
    else:
        where = f"task '{task_name}', {source.id}{'/' + source.config if source.config else ''} split '{split}'"
        names, rows = _read_hub(source, split, where)
    check_columns(names, declaration, where)
    return to_examples(rows, declaration, where)


# ------------------------------------------------------------------------------------- files


def locate(root: Path, split: str) -> Path:
    """The file that a ``files`` split means: ``split`` below the project's ``data/``.

    A leading ``data/`` may be written or left out. Raises DataError for a path that leaves
    ``data/``, does not exist, or whose format is unknown.
    """
    return _locate(root, split, split)


def _locate(root: Path, split: str, where: str) -> Path:
    folder = root / "data"
    relative = Path(split)
    if relative.parts[:1] == ("data",):
        relative = Path(*relative.parts[1:])
    if relative.is_absolute() or ".." in relative.parts:
        raise DataError(
            f"{where}: the path leaves data/\n    -> copy or link the file into data/ and name it from there"
        )
    suffix = _suffix(relative)
    if suffix not in FORMATS:
        raise DataError(f"{where}: unknown format\n    -> the name ends in one of {', '.join(FORMATS)}, or that + .gz")
    path = folder / relative
    kind = what_is(path)
    if kind not in (None, "a file"):
        raise DataError(f"{where}: data/{relative} is {kind}, not a file\n    -> give the path of a data file")
    if kind is None:
        files = (p for p in folder.rglob("*") if _suffix(p) in FORMATS and what_is(p) == "a file")
        present = sorted(str(p.relative_to(folder)) for p in files)
        near = get_close_matches(str(relative), present, n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'?" if near else f"put it at data/{relative}"
        raise DataError(f"{where}: no file data/{relative}\n    -> {hint}")
    return path


def _suffix(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def _read_file(path: Path, where: str) -> tuple[list[str], list[Row]]:
    try:
        content = path.read_bytes()
        if path.name.lower().endswith(".gz"):
            content = gzip.decompress(content)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{where}: the gzip file is damaged or cut off ({error})\n    -> copy it again") from error
    except OSError as error:
        raise DataError(f"{where}: cannot be read ({error.strerror})") from error
    suffix = _suffix(path)
    if suffix == ".parquet":
        return _parse_parquet(content, where)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(
            f"{where}: not UTF-8 text (line {line}, byte {content[error.start]:#04x})\n    -> save the file as UTF-8"
        ) from error
    if suffix == ".jsonl":
        return _parse_jsonl(text, where)
    return _parse_table(text, "\t" if suffix == ".tsv" else ",", where)


def _parse_table(text: str, delimiter: str, where: str) -> tuple[list[str], list[Row]]:
    """CSV and TSV with a header line; quoted fields may hold delimiters and line breaks."""
    # A .tsv whose quotes are plain characters (GLUE's files) would swallow rows if they were
    # taken as quoting, so in TSV a quote is a character like any other.
    quoting: Literal[0, 3] = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting, strict=True)
    try:
        header = next(reader, None)
        if not header:
            raise DataError(f"{where}: empty file\n    -> its first line names the columns")
        repeated = sorted({name for name in header if header.count(name) > 1})
        if repeated:
            raise DataError(f"{where}: line 1 names the column '{repeated[0]}' twice")
        rows: list[Row] = []
        line = reader.line_num + 1
        for values in reader:
            position = f"row {len(rows) + 1} (line {line})"
            if values:  # a blank line is no row
                if len(values) != len(header):
                    raise DataError(
                        f"{where}: {position} has {len(values)} fields, the header {len(header)}: {_excerpt(values)}"
                        "\n    -> quote fields that hold the delimiter or a line break (CSV), or use .jsonl"
                    )
                rows.append(Row(position, dict(zip(header, values, strict=True))))
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{where}: line {reader.line_num}: {error}\n    -> check the quotes on that line") from error
    return header, rows


def _parse_jsonl(text: str, where: str) -> tuple[list[str], list[Row]]:
    names: dict[str, None] = {}
    rows: list[Row] = []
    # Only "\n" ends a line; texts may hold other Unicode line breaks.
    for line, content in enumerate(text.split("\n"), start=1):
        if not content.strip():
            continue
        try:
            value = json.loads(content)
        except (ValueError, RecursionError) as error:  # also a number of thousands of digits
            raise DataError(f"{where}: line {line} is not JSON ({error}): {content[:60]!r}") from error
        if not isinstance(value, dict):
            raise DataError(f"{where}: line {line} is not an object {{column: value}}: {content[:60]!r}")
        names.update(dict.fromkeys(value))
        rows.append(Row(f"row {len(rows) + 1} (line {line})", value))
    if not rows:
        raise DataError(f"{where}: no rows\n    -> one JSON object per line")
    return list(names), rows


def _parse_parquet(content: bytes, where: str) -> tuple[list[str], list[Row]]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(io.BytesIO(content))
        values = table.to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        message = str(error).splitlines()[0]
        raise DataError(f"{where}: the Parquet file is damaged or cut off ({message})\n    -> copy it again") from error
    return table.column_names, [Row(f"row {number}", row) for number, row in enumerate(values, start=1)]


def _excerpt(values: list[str]) -> str:
    text = repr(values)
    return text if len(text) <= 100 else text[:100] + "..."


# --------------------------------------------------------------------------------------- hub


def _read_hub(source: HubSource, split: str, where: str) -> tuple[list[str], list[Row]]:
    local = (
        "or use local files: source: {kind: files}, splits: {train: <file>, dev: <file>} with the files under data/ "
        "(data/README.md)"
    )
    try:
        table = _load_hub(source, split)
    except DataError as error:
        raise DataError(f"{where}: {error}") from error
    except Exception as error:
        if _is_unreachable(error):
            raise DataError(
                f"{where}: the Hugging Face hub cannot be reached ({_first_line(error)})"
                f"\n    -> run where it can (and HF_HUB_OFFLINE is not set), {local}"
            ) from error
        if isinstance(error, RuntimeError) and "script" in str(error).lower():
            raise DataError(
                f"{where}: this dataset runs code of its own, which regft refuses"
                f"\n    -> name a revision with data files only (often refs/convert/parquet), {local}"
            ) from error
        raise DataError(
            f"{where}: cannot be loaded at revision '{source.revision}' ({type(error).__name__}: {_first_line(error)})"
            f"\n    -> check id, config, revision and split, {local}"
        ) from error
    return list(table.column_names), [Row(f"row {number}", row) for number, row in enumerate(table, start=1)]


def _load_hub(source: HubSource, split: str) -> Any:
    """The one call that may use the network; tests replace it.

    Raises DataError where ``datasets`` would read something of this directory in place of the hub.
    """
    if shadow := shadow_problem(source.id, Path(os.curdir)):
        raise DataError(f"{shadow[0]}\n    -> {shadow[1]}")
    import datasets

    return datasets.load_dataset(source.id, source.config, revision=source.revision, split=split)


def _is_unreachable(error: BaseException) -> bool:
    """Whether ``error``, or what caused it, says that there was no way to the hub."""
    names = {"OfflineModeIsEnabled", "LocalEntryNotFoundError", "ConnectError", "ConnectTimeout", "ReadTimeout"}
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, ConnectionError | TimeoutError) or type(current).__name__ in names:
            return True
        text = str(current).lower()
        if any(part in text for part in ("couldn't reach", "offline mode", "connection error", "name resolution")):
            return True
        current = current.__cause__ or current.__context__
    return False


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0][:200] if lines else type(error).__name__
