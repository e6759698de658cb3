"""What a run needs, by content: published once by the process that starts jobs, made into a folder where one runs.

``objects/<first two digits>/<SHA-256>`` of a place (``places.py``) is a file's content; ``bundles/<SHA-256>.json``
lists names, sizes and hashes of the files that belong together, is itself named by its content, and is written after
all of them. Publishing again writes what is missing or has another size. Nothing is deleted there, by pruning
neither, so a job that starts late finds its files. A host keeps what it fetched in ``<cache>/objects`` and, linked
from there, ``<cache>/bundles/<SHA-256>/``; a process hashes all of a bundle before it uses it the first time.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from regft_core.errors import DataError, StoreError
from regft_core.grid.shared_files import Place
from regft_core.io.canonical import canonical_json, sha256_file
from regft_core.io.directories import replace_directory
from regft_core.io.write_errors import explained
from regft_core.runs.store.locks import locked_file
from regft_core.runs.store.manifest import FORMAT, is_relative_name, problems

log = logging.getLogger(__name__)

OBJECTS, BUNDLES = "objects", "bundles"
_AGAIN = "run `dvc repro` again, which publishes it anew"
#: Name -> {"bytes", "sha256"}.
Files = Mapping[str, Mapping[str, Any]]
#: Folders whose files this process has hashed.
_intact: set[Path] = set()


def _object(sha256: str) -> str:
    return f"{OBJECTS}/{sha256[:2]}/{sha256}"


def _manifest(sha256: str) -> str:
    return f"{BUNDLES}/{sha256}.json"


def publish(place: Place, files: Mapping[str, Path], hashed: Callable[[Path], str] = sha256_file) -> str:
    """Publish files under relative names; returns the bundle's SHA-256, the same for the same names and contents.

    Args:
        hashed: the SHA-256 of a file; one that remembers saves reading large ones again.

    Raises:
        DataError: a file is edited, or goes, meanwhile.
        StoreError: the place does not answer or cannot be written.
    """
    try:
        entries: dict[str, dict[str, Any]] = {
            name: {"bytes": files[name].stat().st_size, "sha256": hashed(files[name])} for name in sorted(files)
        }
        there = place.sizes(OBJECTS)
        for name, entry in entries.items():
            sha256 = str(entry["sha256"])
            if there.get(sha256) == entry["bytes"]:
                continue
            place.put(files[name], _object(sha256))
            if sha256_file(files[name]) != sha256:
                place.delete(_object(sha256))
                raise DataError(
                    "edited-while-read", f"{files[name]} was edited while it was published for workers; run again"
                )
            there[sha256] = int(entry["bytes"])
    except FileNotFoundError as error:
        raise DataError(
            "edited-while-read", f"{error.filename} is gone while it was published for workers; run again"
        ) from error
    content = canonical_json({"format": FORMAT, "files": entries}).encode()
    found = hashlib.sha256(content).hexdigest()
    if place.sizes(BUNDLES).get(f"{found}.json") != len(content):
        place.delete(_manifest(found))
        place.put_bytes(content, _manifest(found))
    return found


def files_of(place: Place, bundle: str, cache: Path) -> Files:
    """The files of a published bundle; raises StoreError when the place does not have it, or has another content."""
    path = cache / _manifest(bundle)
    if not path.is_file() or sha256_file(path) != bundle:
        _fetch(place, _manifest(bundle), bundle, path)
    manifest = json.loads(path.read_bytes())
    files: Files = manifest["files"] if manifest.get("format") == FORMAT else {}
    if not files or not all(is_relative_name(name) for name in files):
        raise StoreError(
            "bundle-version",
            f"{place.where(_manifest(bundle))}: this version of regft cannot use it; install the version that starts "
            "the jobs on all hosts",
        )
    return files


def materialise(place: Place, bundle: str, cache: Path) -> Path:
    """The folder of a bundle on this host, with the bytes that were published; made if it is not there.

    Of several processes one fetches and the others wait for it.

    Raises:
        StoreError: a file is missing or, fetched twice, has another hash; the place does not answer; no space here.
    """
    target = cache / BUNDLES / bundle
    if target in _intact and target.is_dir():
        return target
    with ExitStack() as held:
        with explained(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked_file(target.with_suffix(".lock")))
        files = files_of(place, bundle, cache)
        found = problems(target, files, lambda _: True) if target.is_dir() else ["missing"]
        if found:
            if target.is_dir():
                log.warning("%s is not what was published (%s): it is made again", target, "; ".join(found[:3]))
            _build(place, files, cache, target)
    _intact.add(target)
    return target


def _build(place: Place, files: Files, cache: Path, target: Path) -> None:
    temporary = target.with_name(f"{target.name}.{secrets.token_hex(4)}")
    linked: set[Path] = set()
    try:
        for name, entry in files.items():
            content = cache / _object(str(entry["sha256"]))
            if problems(content.parent, {content.name: entry}, lambda _: True):
                _fetch(place, _object(content.name), content.name, content)
            path = temporary / name
            with explained(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                if content in linked or not _link(content, path):  # two names of one file would be one file
                    shutil.copyfile(content, path)
            linked.add(content)
        replace_directory(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _link(content: Path, path: Path) -> bool:
    try:
        os.link(content, path)
    except OSError:  # a file system without links, or another user's file
        return False
    return True


def _fetch(place: Place, name: str, sha256: str, target: Path) -> None:
    """Copy one file from the place, hash it, and put it at ``target``; damaged ones are fetched once more."""
    found = ""
    with explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.{secrets.token_hex(4)}")
    try:
        for _ in range(2):
            try:
                place.get(name, temporary)
            except FileNotFoundError as error:
                raise StoreError(
                    "bundle-missing", f"{place.where(name)} is missing, and this job needs it; {_AGAIN}"
                ) from error
            found = sha256_file(temporary)
            if found == sha256:
                with explained(target):
                    temporary.chmod(0o444)  # folders of several bundles have it by links
                    os.replace(temporary, target)
                return
            log.warning("%s has SHA-256 %s, expected %s", place.where(name), found, sha256)
    finally:
        temporary.unlink(missing_ok=True)
    raise StoreError(
        "wrong-checksum",
        f"{place.where(name)} is damaged: it has SHA-256 {found}, expected {sha256}, also when it was fetched once "
        f"more; delete it there and {_AGAIN}",
    )
