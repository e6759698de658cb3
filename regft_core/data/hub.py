"""Rows of the Hugging Face hub, brought onto this disk once (``fetched.py`` says where)."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

from regft_core.data.fetched import is_fetched, store
from regft_core.errors import DataError, RegftError, StoreError
from regft_core.schema.tasks import HubSource

#: Refusals of the hub by the client's error: code, message, hint.
_REFUSALS = {
    "GatedRepoError": ("hub-access", "access is gated", "accept its terms on the hub and log in (hf auth login)"),
    "RepositoryNotFoundError": ("unknown-hub-id", "the hub has no such repository, or it is private", "check the id"),
    "DatasetNotFoundError": ("unknown-hub-id", "the hub has no such data set, or it is private", "check the id"),
    "RevisionNotFoundError": ("unknown-revision", "the hub has no such revision", "take one from its list of commits"),
}


def fetch_split(root: Path, source: HubSource, split: str, where: str) -> bool:
    """Bring a split onto this disk; whether anything was downloaded.

    Raises:
        DataError: the hub cannot be reached, or has no such set, revision or split.
        StoreError: the disk is full or cannot be written; what was fetched before stays.
    """
    if is_fetched(root, source, split):
        return False
    if shadow := shadow_problem(source.id, Path()):
        raise DataError("dataset-shadowed", f"{where}: {shadow[0]}\n    -> {shadow[1]}")
    try:
        table, commit = download(source, split)
    except Exception as error:
        files = "source: {kind: files}, splits: {train: <file>, dev: <file>} with the files under data/"
        instead = f"use local files: {files} (data/README.md)"
        raise hub_error(error, DataError, f"{where}, revision '{source.revision}'", instead) from error
    store(root, source, split, table, commit=commit)
    return True


def download(source: HubSource, split: str) -> tuple[Any, str]:
    """The table of a split and its commit, from the hub: the one call that may use the network.

    Raises what the libraries raise.
    """
    import datasets
    from huggingface_hub import HfApi

    # Asked first: without an answer ``datasets`` would take what it has cached, of whatever revision.
    commit = HfApi().dataset_info(source.id, revision=source.revision).sha or source.revision
    return datasets.load_dataset(source.id, source.config, revision=commit, split=split), commit


def shadow_problem(hub_id: str, folder: Path) -> tuple[str, str] | None:
    """Return (message, hint) when the library that reads the hub would not look there for ``hub_id``.

    ``datasets`` prefers a file or folder of that name where it runs, and takes a word without an
    owner (csv, text) for one of its own readers, which collects files from there.
    """
    if "/" not in hub_id:
        return f"'{hub_id}' names no owner", "give the whole id, owner/name, for instance nyu-mll/glue"
    if os.path.lexists(folder / hub_id):
        hint = f"rename or move '{hub_id}' ({(folder / hub_id).absolute()}), or read it with source: {{kind: files}}"
        return f"the project has a folder or file '{hub_id}', which would be read in place of the hub", hint
    return None


def hub_error(error: Exception, kind: type[RegftError], where: str, instead: str) -> RegftError:
    """Return what a client of the hub raised as an error of ``kind``; a full disk is a StoreError.

    Args:
        where: heads the message.
        instead: what to do without the hub, as the end of a hint.
    """
    lines = str(error).splitlines()
    reason = f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
    for name in (base.__name__ for base in type(error).__mro__):
        if name in _REFUSALS:
            code, message, hint = _REFUSALS[name]
            return kind(code, f"{where}: {message}\n    -> {hint}, or {instead}")
    chain = _causes(error)
    full = (cause for cause in chain if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT))
    if (cause := next(full, None)) is not None:
        place = f" ({cause.filename})" if cause.filename else ""
        hint = "free some space and run it again: what is complete stays"
        return StoreError("disk-full", f"{where}: the disk is full{place}\n    -> {hint}")
    if any(map(_is_unreachable, chain)):
        hint = f"run where it can (and HF_HUB_OFFLINE is not set), or {instead}"
        return kind("hub-unreachable", f"{where}: the Hugging Face hub cannot be reached ({reason})\n    -> {hint}")
    hint = f"check id, revision and split, run it again (what is complete stays), or {instead}"
    return kind("download-failed", f"{where}: cannot be downloaded ({reason})\n    -> {hint}")


def _causes(error: BaseException) -> list[BaseException]:
    """Return ``error`` and what caused it, the last first."""
    chain, current = list[BaseException](), error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or current.__context__  # type: ignore[assignment]
    return chain


def _is_unreachable(error: BaseException) -> bool:
    """Return whether an error says that there was no way to the hub."""
    names = {"OfflineModeIsEnabled", "LocalEntryNotFoundError", "ConnectError", "ConnectTimeout", "ReadTimeout"}
    words = r"(?i)couldn't reach|offline mode|connection error|name resolution"
    unreachable = isinstance(error, ConnectionError | TimeoutError) or type(error).__name__ in names
    return unreachable or re.search(words, str(error)) is not None
