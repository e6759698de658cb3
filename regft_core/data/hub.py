"""Rows of the Hugging Face hub, brought onto this disk once: every split in a folder of its own, at one revision.

``.datasets/<owner>--<name>/<config>/<revision>/<split>`` holds ``rows.parquet`` and ``source.json`` (the commit that
answered, the number of rows, the SHA-256 of the rows). A folder appears complete or not at all, so a fetch that was
cut off goes on with the next split. Nothing else of ``datasets``' own caches is read: offline they ignore revisions.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from regft_core.data.file_format import Row
from regft_core.data.hub_shadow import shadow_problem
from regft_core.data.table import parquet
from regft_core.errors import DataError, RegftError, StoreError
from regft_core.io.canonical import sha256_file
from regft_core.io.files import atomic_directory, write_json
from regft_core.schema.tasks import HubSource

FOLDER = ".datasets"
_ROWS, _SOURCE = "rows.parquet", "source.json"


def split_folder(root: Path, source: HubSource, split: str) -> Path:
    """Where a split lies, or would lie."""
    parts = (source.id.replace("/", "--"), source.config or "default", source.revision, split)
    return root.joinpath(FOLDER, *(quote(part, safe="") for part in parts))


def is_fetched(root: Path, source: HubSource, split: str) -> bool:
    """Whether a split is on this disk."""
    return (split_folder(root, source, split) / _SOURCE).is_file()


def fetched_commit(root: Path, source: HubSource, split: str) -> str | None:
    """The commit that a split on this disk is from; None where it is not."""
    path = split_folder(root, source, split) / _SOURCE
    return json.loads(path.read_text(encoding="utf-8"))["commit"] if path.is_file() else None


def fetch_split(root: Path, source: HubSource, split: str, where: str) -> bool:
    """Bring a split onto this disk; whether anything was downloaded.

    Raises:
        DataError: the hub cannot be reached, or has no such set, revision or split.
        StoreError: the disk is full or cannot be written; what was fetched before stays.
    """
    if is_fetched(root, source, split):
        return False
    table, commit = _explained(source, split, where)
    with atomic_directory(split_folder(root, source, split)) as folder:
        table.to_parquet(folder / _ROWS)
        said = {**source.model_dump(mode="json"), "split": split, "commit": commit, "rows": len(table)}
        write_json(folder / _SOURCE, said | {"sha256": sha256_file(folder / _ROWS)})
    return True


def read_hub(root: Path, source: HubSource, split: str, where: str) -> tuple[list[str], list[Row]]:
    """Column names and rows of a split, which is fetched first where it is not on this disk.

    Raises as ``fetch_split``, and DataError when the rows are not those that were fetched.
    """
    fetch_split(root, source, split, where)
    folder = split_folder(root, source, split)
    said = json.loads((folder / _SOURCE).read_text(encoding="utf-8"))
    content = (folder / _ROWS).read_bytes() if (folder / _ROWS).is_file() else b""
    if hashlib.sha256(content).hexdigest() != said["sha256"]:
        raise DataError(
            "damaged-file",
            f"{where}: {folder / _ROWS} is not what was fetched\n    -> delete {folder} and fetch it again "
            "(regft fetch)",
        )
    table = parquet(io.BytesIO(content))
    return table.names, list(table.rows)


def download(source: HubSource, split: str) -> tuple[Any, str]:
    """The table of a split and its commit, from the hub: the one call that may use the network.

    Raises what the libraries raise.
    """
    import datasets
    from huggingface_hub import HfApi

    # Asked first: without an answer ``datasets`` would take what it has cached, of whatever revision.
    commit = HfApi().dataset_info(source.id, revision=source.revision).sha or source.revision
    return datasets.load_dataset(source.id, source.config, revision=commit, split=split), commit


def _explained(source: HubSource, split: str, where: str) -> tuple[Any, str]:
    local = (
        "or use local files: source: {kind: files}, splits: {train: <file>, dev: <file>} with the files under data/ "
        "(data/README.md)"
    )
    if shadow := shadow_problem(source.id, Path()):
        raise DataError("dataset-shadowed", f"{where}: {shadow[0]}\n    -> {shadow[1]}")
    try:
        return download(source, split)
    except RegftError:
        raise
    except Exception as error:
        if disk := disk_full(error):
            raise StoreError("disk-full", f"{where}: {disk}") from error
        if is_unreachable(error):
            raise DataError(
                "hub-unreachable",
                f"{where}: the Hugging Face hub cannot be reached ({first_line(error)})"
                f"\n    -> run where it can (and HF_HUB_OFFLINE is not set), {local}",
            ) from error
        if type(error).__name__ == "RevisionNotFoundError":
            raise DataError(
                "unknown-revision",
                f"{where}: the hub has no revision '{source.revision}' of {source.id}"
                f"\n    -> take a commit (40 hex digits) from the set's list of commits, {local}",
            ) from error
        if type(error).__name__ in ("RepositoryNotFoundError", "DatasetNotFoundError"):
            raise DataError(
                "unknown-hub-id",
                f"{where}: the hub has no data set '{source.id}', or it is private\n    -> check the id, {local}",
            ) from error
        if isinstance(error, RuntimeError) and "script" in str(error).lower():
            raise DataError(
                "dataset-runs-code",
                f"{where}: this dataset runs code of its own, which regft refuses"
                f"\n    -> name a revision with data files only (often refs/convert/parquet), {local}",
            ) from error
        raise DataError(
            "dataset-unloadable",
            f"{where}: cannot be loaded at revision '{source.revision}' ({type(error).__name__}: {first_line(error)})"
            f"\n    -> check id, config, revision and split, {local}",
        ) from error


def disk_full(error: BaseException) -> str | None:
    """What to say when ``error``, or what caused it, is a full disk; None when none of them is."""
    for cause in causes(error):
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            place = f" ({cause.filename})" if cause.filename else ""
            return f"the disk is full{place}\n    -> free some space and run it again: what is complete stays"
    return None


def is_unreachable(error: BaseException) -> bool:
    """Whether ``error``, or what caused it, says that there was no way to the hub."""
    names = {"OfflineModeIsEnabled", "LocalEntryNotFoundError", "ConnectError", "ConnectTimeout", "ReadTimeout"}
    parts = ("couldn't reach", "offline mode", "connection error", "name resolution")
    return any(
        isinstance(cause, ConnectionError | TimeoutError)
        or type(cause).__name__ in names
        or any(part in str(cause).lower() for part in parts)
        for cause in causes(error)
    )


def causes(error: BaseException) -> list[BaseException]:
    """``error`` and what caused it, the last first."""
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in found:
        found.append(current)
        current = current.__cause__ or current.__context__
    return found


def first_line(error: BaseException) -> str:
    """The first line of a message, or the error's type."""
    lines = str(error).splitlines()
    return lines[0][:200] if lines else type(error).__name__
