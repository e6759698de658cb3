"""The list of a directory's files with their sizes and hashes; written last, it makes it complete."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from regft_core.io.canonical import sha256_file
from regft_core.io.files import write_json
from regft_core.io.reading import read_json, unless_refused

MANIFEST = "manifest.json"
FORMAT = 1


def is_relative_name(name: str) -> bool:
    """Say whether ``name`` is a plain relative path: no ``..``, no root, no empty or odd parts."""
    path = PurePosixPath(name)
    return (
        bool(path.parts)
        and not path.is_absolute()
        and ".." not in path.parts
        and "\0" not in name
        and str(path) == name
    )


def manifest_of(directory: Path, **fields: Any) -> dict[str, Any]:
    """Hash every file in ``directory``; return what its manifest says."""
    files = {}
    for parent, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(parent, name)
            inside = os.path.relpath(path, directory)
            if inside != MANIFEST:
                files[inside] = {"bytes": os.path.getsize(path), "sha256": sha256_file(path)}
    return {"format": FORMAT, "files": dict(sorted(files.items())), **fields}


def write_manifest(directory: Path, **fields: Any) -> dict[str, Any]:
    """Hash every file in ``directory`` and write its manifest; return the manifest."""
    manifest = manifest_of(directory, **fields)
    write_json(directory / MANIFEST, manifest)
    return manifest


def read_manifest(directory: Path) -> dict[str, Any]:
    """Return a manifest of the right shape; raises ``StoreError`` or ``ValueError`` otherwise."""
    manifest = read_json(directory / MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else type(manifest).__name__
        raise ValueError(f"manifest format {found!r}, this version reads {FORMAT}")
    files = manifest.get("files")
    if not isinstance(files, dict):
        raise ValueError("the manifest lists no files")
    for name, entry in files.items():
        # The store may be shared: a name must not lead out of the run's own directory.
        if not is_relative_name(name):
            raise ValueError(f"the manifest names {json.dumps(name)}, which is not inside the run")
        if not (
            isinstance(entry, dict) and isinstance(entry.get("bytes"), int) and isinstance(entry.get("sha256"), str)
        ):
            raise ValueError(f"the manifest has no size and hash for {name}")
    return manifest


def problems(directory: Path, files: Mapping[str, Mapping[str, Any]], hashed: Callable[[str], bool]) -> list[str]:
    """Compare files with their manifest entries: sizes always, hashes where ``hashed(name)``.

    Raises ``Unreadable`` (a ``StoreError``) when the system refuses to read one, which is no damage.
    """
    found = []
    for name, entry in files.items():
        path = directory / name
        try:
            size = path.stat().st_size
            if size != entry["bytes"]:
                found.append(f"{name}: {size} bytes, expected {entry['bytes']}")
            elif hashed(name) and sha256_file(path) != entry["sha256"]:
                found.append(f"{name}: its content has changed since it was written")
        except FileNotFoundError:
            found.append(f"{name}: missing")
        except OSError as error:
            unless_refused(error, path)
            found.append(f"{name}: cannot be read: {error.strerror}")
    return found
