"""The reader ``rated_sentences``: four sets of sentences, each rated by 20 people from -4 to 4.

Hutto and Gilbert, VADER (ICWSM 2014); the source distribution of vaderSentiment 3.3.2 (MIT) carries them. Splits:
``train`` and ``dev`` are film reviews, ``products``, ``editorials`` and ``tweets`` are sets of other texts. A text is
kept once, in the first set that has it. A hash of the text chooses the rows that evaluate, so they never move.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Mapping
from typing import Any

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
