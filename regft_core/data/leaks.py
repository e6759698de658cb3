"""Evaluated rows that training rows nearly hold: near-duplicates, and pairs that share one of their texts.

Near-duplicates are found with MinHash and banding (Broder, SEQUENCES 1997; Leskovec, Rajaraman and Ullman, Mining of
Massive Datasets, section 3.4) over the runs of ``SHINGLE`` characters of normalised texts, then checked by the Jaccard
similarity of these. Time grows with the characters that are read, not with the pairs of rows.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from regft_core.data.examples import Example, text_key
from regft_core.data.rows import Split
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
#: Characters of a text that a warning shows.
WIDTH = 70
_CHUNK = 1_000_000


def leaks_between(train: Split, dev: Split) -> dict[str, Any]:
    """Count rows of ``dev`` that resemble a row of ``train`` without repeating it.

    Returns ``{"rows": rows of dev, "near": {...}, "text": {...}, "text_pair": {...}, "groups": {...}}``: for pairs
    the texts, where both sets have groups these. Each has ``rows`` (how many) and ``examples`` (up to ``SHOWN`` pairs
    of texts: evaluated, training).
    """
    evaluated = [False] * len(train.examples) + [True] * len(dev.examples)
    found = _find([*train.examples, *dev.examples], [str(one) for one in evaluated], evaluated)
    if train.groups is not None and dev.groups is not None:
        known = set(train.groups)
        found["groups"] = {"rows": sum(group in known for group in dev.groups), "examples": []}
    return found


def leaks_of_folds(rows: Split) -> dict[str, Any]:
    """As ``leaks_between``, for folds: each row meets the rows of other groups (else: of other texts)."""
    return _find(rows.examples, rows.groups or [text_key(row) for row in rows.examples], None)


def _find(rows: Sequence[Example], units: Sequence[str], evaluated: Sequence[bool] | None) -> dict[str, Any]:
    """``units``: rows of one unit never meet; ``evaluated``: whether each row is of dev; None: all train, too."""
    found: dict[str, Any] = {"rows": len(rows) if evaluated is None else sum(evaluated)}
    found["near"] = _listed(rows, _near(rows, units, evaluated), "near")
    if rows[0].text_pair is not None:
        for side in ("text", "text_pair"):
            found[side] = _listed(rows, _one_sided(rows, units, evaluated, side), side)
    return found


def _listed(rows: Sequence[Example], met: Mapping[int, int], side: str) -> dict[str, Any]:
    def shown(row: Example) -> str:
        sides = {"text": row.text, "text_pair": row.text_pair or ""}
        text = sides.get(side) or " | ".join(part for part in sides.values() if part)
        return text if len(text) <= WIDTH else text[:WIDTH] + "..."

    examples = [[shown(rows[one]), shown(rows[other])] for one, other in sorted(met.items())[:SHOWN]]
    return {"rows": len(met), "examples": examples}


def normalised(text: str) -> str:
    """Letters and digits in lower case, other characters as single blanks; the text itself where nothing is left."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(c if c.isalnum() else " " for c in folded).split()) or text


def _one_sided(
    rows: Sequence[Example], units: Sequence[str], evaluated: Sequence[bool] | None, side: str
) -> dict[int, int]:
    """Return evaluated row -> a training row of another unit that has this text on either side."""
    where: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        if evaluated is None or not evaluated[index]:
            for text in {normalised(row.text), normalised(row.text_pair or "")}:
                # Rows of two units are enough: one of them is of another unit than any row that asks.
                if len(where[text]) < 2 and all(units[other] != units[index] for other in where[text]):
                    where[text].append(index)
    met = {}
    for index, row in enumerate(rows):
        if evaluated is None or evaluated[index]:
            text = normalised((row.text_pair if side == "text_pair" else row.text) or "")
            other = next((one for one in where.get(text, ()) if units[one] != units[index]), None)
            if other is not None:
                met[index] = other
    return met


def _near(rows: Sequence[Example], units: Sequence[str], evaluated: Sequence[bool] | None) -> dict[int, int]:
    """Return evaluated row -> a training row of another unit that is nearly the same, though not exactly."""
    texts = [
        f"{normalised(row.text)} | {normalised(row.text_pair)}" if row.text_pair else normalised(row.text)
        for row in rows
    ]
    hashes, starts = _shingles(texts)
    keys = np.ascontiguousarray(_signatures(hashes, starts)).view(np.dtype((np.void, 4 * HASHES)))

    def shingles(index: int) -> set[int]:
        return set(hashes[starts[index] : starts[index + 1]].tolist())

    def alike(one: int, other: int) -> bool:
        # Between train and dev, rows of one text are counted as duplicates.
        if evaluated is not None and text_key(rows[one]) == text_key(rows[other]):
            return False
        return len(shingles(one) & shingles(other)) >= NEAR * len(shingles(one) | shingles(other))

    met: dict[int, int] = {}
    for band in range(BANDS):
        # hashes -> unit -> training rows
        buckets: dict[bytes, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        column = keys[:, band].tolist()
        for index, unit in enumerate(units):
            if evaluated is None or not evaluated[index]:
                buckets[column[index]][unit].append(index)
        for index, unit in enumerate(units):
            if index in met or column[index] not in buckets or (evaluated is not None and not evaluated[index]):
                continue
            others = (row for name, rows in buckets[column[index]].items() if name != unit for row in rows)
            beside = next((row for row in islice(others, UNLIKE) if alike(index, row)), None)
            if beside is not None:
                met[index] = beside
    return met


def _shingles(texts: Sequence[str]) -> tuple[Array, Array]:
    """Hashes [total] of the shingles of all texts, and where those of each begin [n + 1]."""
    found = []
    powers = np.array([pow(0x9E3779B97F4A7C15, k + 1, 2**64) for k in range(SHINGLE)], dtype=np.uint64)
    for text in texts:
        codes = np.frombuffer(text[:READ].ljust(SHINGLE).encode("utf-32-le"), dtype=np.uint32).astype(np.uint64)
        found.append(np.lib.stride_tricks.sliding_window_view(codes, SHINGLE) @ powers)
    starts = np.concatenate([[0], np.cumsum([len(one) for one in found])])
    return np.concatenate(found), starts


def _signatures(hashes: Array, starts: Array) -> Array:
    """[n, BANDS * HASHES] smallest value, over the shingles of a text, of random functions of their hashes."""
    random = np.random.default_rng(derive(0, "leaks"))
    count = BANDS * HASHES
    factors = random.integers(1, 2**63, size=count, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    offsets = random.integers(0, 2**63, size=count, dtype=np.uint64)
    signatures = np.empty((len(starts) - 1, count), dtype=np.uint32)
    first = 0
    while first < len(starts) - 1:
        last = max(first + 1, int(np.searchsorted(starts, starts[first] + _CHUNK, side="right")) - 1)
        part, own = hashes[starts[first] : starts[last]], starts[first:last] - starts[first]
        for k in range(count):
            mixed = ((part ^ (part >> np.uint64(29))) * factors[k] + offsets[k]) >> np.uint64(32)
            signatures[first:last, k] = np.minimum.reduceat(mixed, own)
        first = last
    return signatures


def leak_warning(task: str, described: Mapping[str, Any]) -> str | None:
    """Return a warning of the leaks in ``task.json``, with examples and the remedy; None where nothing leaks."""
    leaks, drawn = described.get("leaks") or {}, described.get("drawn") or {}
    other = "a row of another fold" if "folds" in drawn else "a training row"
    words = {
        "near": f"nearly repeat {other}",
        "text": f"share their text with {other}",
        "text_pair": f"share their text_pair with {other}",
        "groups": f"share their group with {other}",
    }
    counts = {kind: leaks[kind]["rows"] for kind in words if kind in leaks and leaks[kind]["rows"]}
    if not counts:
        return None
    what = ", ".join(f"{count:,} {words[kind]}" for kind, count in counts.items())
    pairs = [pair for kind in counts for pair in leaks[kind]["examples"]][:SHOWN]
    shown = "; ".join(f"'{one}'" if one == two else f"'{one}' and '{two}'" for one, two in pairs)
    if not drawn:
        remedy = "Remove them from dev, or let regft split off dev by groups: dev: {folds: 5} and columns: {group: ...}"
    elif drawn.get("group"):
        remedy = "Remove the duplicates, or group the rows by what they share (columns.group)"
    else:
        remedy = "Name the column that such rows share (columns.group), or remove the duplicates"
    return (
        f"{task}: of the {plural(leaks['rows'], 'row')} that are evaluated on, {what}. Scores on dev may be too high. "
        f"{f'Examples: {shown}. ' if shown else ''}{remedy}."
    )
