"""Where a driver leaves files for workers of other hosts: a folder that all of them see, or object storage."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from regft_core.errors import StoreError
from regft_core.io.files import write_bytes
from regft_core.io.reading import unless_refused
from regft_core.io.write_errors import explained
from regft_core.runs.store.remote import Remote


class Place(Protocol):
    """Files under relative names; one that is there is whole, unless its size says otherwise or the storage lies."""

    def where(self, name: str) -> str:
        """The whole name, for messages."""
        ...

    def sizes(self, folder: str) -> dict[str, int]:
        """Last part of the name -> bytes, of every file below ``folder``."""
        ...

    def put(self, path: Path, name: str) -> None:
        """Copy a file there, instead of what may be there; raises StoreError."""
        ...

    def put_bytes(self, content: bytes, name: str) -> None:
        """Write a file there if there is none; raises StoreError."""
        ...

    def get(self, name: str, path: Path) -> None:
        """Copy a file from there; raises FileNotFoundError when it is not there, StoreError otherwise."""
        ...

    def delete(self, name: str) -> None:
        """Delete a file there; one that is gone is fine."""
        ...


class SharedFolder:
    """Files below ``path``, on storage that all hosts see."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def where(self, name: str) -> str:
        return str(self.path / name)

    def sizes(self, folder: str) -> dict[str, int]:
        return {
            name: os.stat(os.path.join(parent, name)).st_size
            for parent, _, names in os.walk(self.path / folder)
            for name in names
            if not name.startswith(".")
        }

    def put(self, path: Path, name: str) -> None:
        target = self.path / name
        with explained(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
            try:
                shutil.copyfile(path, temporary)
                os.replace(temporary, target)
            finally:
                temporary.unlink(missing_ok=True)

    def put_bytes(self, content: bytes, name: str) -> None:
        if not (self.path / name).is_file():
            write_bytes(self.path / name, content)

    def get(self, name: str, path: Path) -> None:
        if not self.path.is_dir():
            raise StoreError(
                "folder-not-shared",
                f"{socket.gethostname()} does not see the folder {self.path}\n    -> a store.path outside of the "
                "project must be a folder that all hosts share; or set store.remote (docs/scale.md)",
            )
        try:
            source = open(self.path / name, "rb")  # noqa: SIM115 - closed below; only its own refusals count here
        except OSError as error:
            unless_refused(error, self.path / name)
            raise FileNotFoundError(self.path / name) from error
        with source, explained(path), open(path, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)

    def delete(self, name: str) -> None:
        with explained(self.path / name):
            (self.path / name).unlink(missing_ok=True)


class ObjectStorage:
    """Files below ``folder`` of the storage that ``store.remote`` names."""

    def __init__(self, remote: Remote, folder: str) -> None:
        self.remote, self.folder = remote, folder

    def _at(self, name: str) -> str:
        return f"{self.remote.root}/{self.folder}/{name}"

    def where(self, name: str) -> str:
        return f"{self.remote.url.rstrip('/')}/{self.folder}/{name}"

    def sizes(self, folder: str) -> dict[str, int]:
        fs = self.remote.fs
        fs.invalidate_cache()  # another process may have published since
        found = self.remote.asked(fs.find, self._at(folder), detail=True)
        return {str(name).rpartition("/")[2]: int(entry["size"]) for name, entry in found.items()}

    def put(self, path: Path, name: str) -> None:
        self.remote.asked(self.remote.fs.put_file, str(path), self._at(name))

    def put_bytes(self, content: bytes, name: str) -> None:
        with suppress(FileExistsError):
            self.remote.asked(self.remote.fs.pipe_file, self._at(name), content, mode="create")

    def get(self, name: str, path: Path) -> None:
        self.remote.asked(self.remote.fs.get_file, self._at(name), str(path))

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self.remote.asked(self.remote.fs.rm, self._at(name))
