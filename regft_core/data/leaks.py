"""Evaluated rows that training rows nearly hold: near-duplicates, and pairs that share one of their texts.

Near-duplicates are found with MinHash and banding (Broder, SEQUENCES 1997; Leskovec, Rajaraman and Ullman, Mining of
Massive Datasets, section 3.4) over the runs of ``SHINGLE`` characters of normalised texts, then checked by the Jaccard
similarity of these. Time grows with the characters that are read, not with the pairs of rows.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from regft_core.data.examples import Example, excerpt, text_key
from regft_core.data.read_split import Split
from regft_core.lazy import np
from regft_core.names import plural
from regft_core.rng import derive

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

#: Jaccard similarity from which two texts are near-duplicates.
NEAR = 0.8
#: Characters of a shingle; a shorter text is one shingle.
SHINGLE = 5
#: Characters of a text that are read, about what encoders read.
READ = 1_000
#: Bands of a signature and hashes of a band: a pair at ``NEAR`` is found with probability 1 - (1 - 0.8**4)**16 > 0.999.
BANDS, HASHES = 16, 4
#: Rows of a bucket that a row is compared with, and examples that are shown.
UNLIKE, SHOWN = 20, 3
#: Texts whose shingles are in memory at a time.
_CHUNK = 2_000


@dataclass(frozen=True)
class _Rows:
    """Rows that train and rows that are evaluated, by number; rows of one unit are never compared."""

    rows: Sequence[Example]
    units: Sequence[str]
    training: range
    evaluated: range


def leaks_between(train: Split, dev: Split) -> dict[str, Any]:
    """Count rows of ``dev`` that resemble a row of ``train`` without repeating it.

    Returns ``{"rows": rows of dev, "near": {...}, "text": {...}, "text_pair": {...}, "groups": {...}}``: for pairs
    the texts, where both sets have groups these. Each has ``rows`` (how many) and ``examples`` (up to ``SHOWN`` pairs
    of texts: evaluated, training).
    """
    rows, count = [*train.examples, *dev.examples], len(train.examples)
    units = ["train"] * count + ["dev"] * len(dev.examples)
    found = _leaks(_Rows(rows, units, range(count), range(count, len(rows))))
    if train.groups is not None and dev.groups is not None:
        known = set(train.groups)
        found["groups"] = {"rows": sum(group in known for group in dev.groups), "examples": []}
    return found


def leaks_of_folds(rows: Split) -> dict[str, Any]:
    """As ``leaks_between``, for folds: each row meets the rows of other groups (else: of other texts)."""
    units, every = rows.groups or [text_key(row) for row in rows.examples], range(len(rows.examples))
    return _leaks(_Rows(rows.examples, units, every, every))


def _leaks(of: _Rows) -> dict[str, Any]:
    met = {"near": _near(of)}
    if of.rows[0].text_pair is not None:
        met |= {side: _one_sided(of, side) for side in ("text", "text_pair")}

    def shown(number: int, side: str) -> str:
        row = of.rows[number]
        both = " | ".join(part for part in (row.text, row.text_pair) if part)
        return excerpt(both if side == "near" else getattr(row, side) or both)

    def described(pairs: Mapping[int, int], side: str) -> dict[str, Any]:
        examples = [[shown(number, side) for number in pair] for pair in sorted(pairs.items())[:SHOWN]]
        return {"rows": len(pairs), "examples": examples}

    return {"rows": len(of.evaluated), **{side: described(pairs, side) for side, pairs in met.items()}}


def normalised(text: str) -> str:
    """Letters and digits in lower case, other characters as single blanks; the text itself where nothing is left."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(c if c.isalnum() else " " for c in folded).split()) or text


def _one_sided(of: _Rows, side: str) -> dict[int, int]:
    """Return evaluated row -> a training row of another unit that has this text on either side."""
    units, where = of.units, defaultdict[str, list[int]](list)
    for number in of.training:
        for text in {normalised(of.rows[number].text), normalised(of.rows[number].text_pair or "")}:
            # Rows of two units are enough: one of them is of another unit than any row that asks.
            if len(where[text]) < 2 and all(units[other] != units[number] for other in where[text]):
                where[text].append(number)
    met = {}
    for number in of.evaluated:
        others = where.get(normalised(getattr(of.rows[number], side) or ""), ())
        if (other := next((one for one in others if units[one] != units[number]), None)) is not None:
            met[number] = other
    return met


def _near(of: _Rows) -> dict[int, int]:
    """Return evaluated row -> a training row of another unit that is nearly the same, though not exactly."""
    texts = [
        f"{normalised(row.text)} | {normalised(row.text_pair)}" if row.text_pair else normalised(row.text)
        for row in of.rows
    ]
    keys = _signatures(texts).view(np.dtype((np.void, 4 * HASHES)))

    def alike(one: int, other: int) -> bool:
        # Between train and dev, rows of one text are counted as duplicates.
        if of.training != of.evaluated and text_key(of.rows[one]) == text_key(of.rows[other]):
            return False
        first, second = (set(_shingles(texts[number]).tolist()) for number in (one, other))
        return len(first & second) >= NEAR * len(first | second)

    met: dict[int, int] = {}
    for band in range(BANDS):
        column = keys[:, band].tolist()
        # hashes -> unit -> training rows
        buckets: dict[bytes, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for number in of.training:
            buckets[column[number]][of.units[number]].append(number)
        for number in of.evaluated:
            if number in met or column[number] not in buckets:
                continue
            bucket = buckets[column[number]].items()
            others = (other for unit, members in bucket if unit != of.units[number] for other in members)
            if (beside := next((other for other in islice(others, UNLIKE) if alike(number, other)), None)) is not None:
                met[number] = beside
    return met


def _shingles(text: str) -> Array:
    """Hashes of the shingles of a text."""
    powers = np.array([pow(0x9E3779B97F4A7C15, k + 1, 2**64) for k in range(SHINGLE)], dtype=np.uint64)
    codes = np.frombuffer(text[:READ].ljust(SHINGLE).encode("utf-32-le"), dtype=np.uint32).astype(np.uint64)
    hashes: Array = np.lib.stride_tricks.sliding_window_view(codes, SHINGLE) @ powers
    return hashes


def _signatures(texts: Sequence[str]) -> Array:
    """[n, BANDS * HASHES] smallest value, over the shingles of a text, of random functions of their hashes."""
    random, count = np.random.default_rng(derive(0, "leaks")), BANDS * HASHES
    factors = random.integers(1, 2**63, size=count, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    offsets = random.integers(0, 2**63, size=count, dtype=np.uint64)
    signatures = np.empty((len(texts), count), dtype=np.uint32)
    for first in range(0, len(texts), _CHUNK):
        of_texts = [_shingles(text) for text in texts[first : first + _CHUNK]]
        hashes, starts = np.concatenate(of_texts), np.cumsum([0, *map(len, of_texts[:-1])])
        for k in range(count):
            mixed = ((hashes ^ (hashes >> np.uint64(29))) * factors[k] + offsets[k]) >> np.uint64(32)
            signatures[first : first + _CHUNK, k] = np.minimum.reduceat(mixed, starts)
    return signatures


def leak_warning(task: str, described: Mapping[str, Any]) -> str | None:
    """Return a warning of the leaks in ``task.json``, with examples and the remedy; None where nothing leaks."""
    leaks, drawn = described.get("leaks") or {}, described.get("drawn") or {}
    other = "a row of another fold" if "folds" in drawn else "a training row"
    words = {"near": "nearly repeat", "text": "share their text with", "text_pair": "share their text_pair with"}
    words |= {"groups": "share their group with"}
    counts = {kind: leaks[kind]["rows"] for kind in words if kind in leaks and leaks[kind]["rows"]}
    if not counts:
        return None
    what = ", ".join(f"{count:,} {words[kind]} {other}" for kind, count in counts.items())
    pairs = [pair for kind in counts for pair in leaks[kind]["examples"]][:SHOWN]
    shown = "; ".join(f"'{one}'" if one == two else f"'{one}' and '{two}'" for one, two in pairs)
    remedy = "Remove the duplicates, or name the column that such rows share (columns.group)"
    if not drawn:
        remedy = "Remove them from dev, or let regft split off dev by groups: dev: {folds: 5} and columns: {group: ...}"
    return (
        f"{task}: of the {plural(leaks['rows'], 'row')} that are evaluated on, {what}. Scores on dev may be too high. "
        f"{f'Examples: {shown}. ' if shown else ''}{remedy}."
    )
