"""Oddities of rows that can be read: counted in ``task.json``, with one warning each.

Leaks are evaluated rows that training rows nearly hold: near-duplicates, and pairs that share one of their texts.
Near-duplicates are found with MinHash and banding (Broder, SEQUENCES 1997; Leskovec, Rajaraman and Ullman, Mining of
Massive Datasets, section 3.4) over runs of ``SHINGLE`` characters, then checked by their Jaccard similarity.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from regft_core.data.examples import Example, excerpt, means_none, text_key
from regft_core.data.read_split import Split
from regft_core.errors import DataError
from regft_core.kinds import find
from regft_core.kinds._reading import to_number
from regft_core.lazy import Array, np
from regft_core.names import listing, plural
from regft_core.rng import derive

#: Texts, or pairs of texts, that one warning shows.
SHOWN = 3
#: Warnings of texts by their key in ``task.json``.
_WARNINGS = {
    "contradictions": "{rows} have a text that has another label elsewhere, for instance {texts}. Correct the labels, "
    "or remove the rows.",
    "wordless": "{rows} have a text without a letter or digit, for instance {texts}. Remove such rows if they say "
    "nothing.",
    "none": "{rows} have a text that programs write for a missing one, for instance {texts}. Empty these cells and set "
    "drop_empty: true to leave the rows out.",
}


def oddities(
    kind: str, labels: Sequence[str] | None, splits: Mapping[str, Split], values: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Count what is odd about the training and validation sets; only what occurs.

    ``contradictions`` (rows whose text has another label elsewhere), ``wordless`` and ``none`` (the text is a word for
    a missing one) have ``rows`` and the first ``examples``. ``spellings``: [[label, rows], ...] of labels that are
    probably one, with ``values``, the task's ``label_values``, beside them; ``none_labels``: labels that are words for
    a missing one.
    """
    rows = [row for split in splits.values() for row in split.examples]
    labels_of = defaultdict(set)
    for row in rows:
        labels_of[text_key(row)].add(row.label)
    odd = {
        "contradictions": [row for row in rows if len(labels_of[text_key(row)]) > 1 and find(kind).has_labels],
        "wordless": [row for row in rows if any(not re.search(r"[^\W_]", text) for text in _texts(row))],
        "none": [row for row in rows if any(map(means_none, _texts(row)))],
    }
    counts = find(kind).label_counts([row.label for row in rows], labels or ()) or {}
    found: dict[str, Any] = {name: {"rows": len(of), "examples": _shown(of)} for name, of in odd.items() if of}
    found["spellings"] = _same_labels(counts)
    found["label_values"] = found["spellings"] and dict(values or {})
    found["none_labels"] = [[name, count] for name, count in counts.items() if means_none(name) and count]
    return {name: value for name, value in found.items() if value}


def _texts(row: Example) -> list[str]:
    return [text for text in (row.text, row.text_pair) if text is not None]


def _shown(rows: Sequence[Example]) -> list[str]:
    texts = dict.fromkeys(" | ".join(filter(None, _texts(row))) for row in rows)
    return [excerpt(text) for text in list(texts)[:SHOWN]]


def _same_labels(counts: Mapping[str, int]) -> list[list[list[Any]]]:
    """Return groups [[label, rows], ...] alike but for case, Unicode form, invisible characters, a number's form."""
    groups = defaultdict(list)
    for label, count in counts.items():
        folded = unicodedata.normalize("NFKC", label).casefold()
        visible = "".join(" " if c.isspace() else c for c in folded if unicodedata.category(c) not in ("Cf", "Cc"))
        number = to_number(visible)
        groups[" ".join(visible.split()) if number is None else repr(number)].append([label, count])
    return [sorted(group, key=lambda one: (-one[1], one[0])) for group in groups.values() if len(group) > 1]


def warnings_of(task: str, described: Mapping[str, Any]) -> Iterator[str]:
    """Yield a warning for each oddity that ``task.json`` counts, with examples and the remedy."""
    found, counts = described.get("oddities") or {}, described["counts"]
    for key, warning in _WARNINGS.items():
        if odd := found.get(key):
            texts = ", ".join(f"'{text}'" for text in odd["examples"])
            yield f"{task}: " + warning.format(rows=plural(odd["rows"], "row"), texts=texts)
    for name, rows in found.get("none_labels", ()):
        yield (
            f"{task}: {plural(rows, 'row')} have the label '{name}', which programs write for a missing one. It is a "
            f"class as it stands; drop_labels: [{json.dumps(name)}] leaves the rows out."
        )
    if groups := found.get("spellings"):
        yield _spelling_warning(task, found.get("label_values") or {name: name for name in described["labels"]}, groups)
    if scarce := (described.get("drawn") or {}).get("scarce"):
        have = "label has" if len(scarce) == 1 else "labels have"
        yield (
            f"{task}: {len(scarce)} {have} fewer rows than there are folds ({listing(scarce)}): some folds are scored "
            "without them. Label more such rows, or take fewer folds."
        )
    repeated = 0 if described.get("drawn") else described["duplicates"].get("dev", 0)
    if repeated:
        what = "all rows" if repeated == counts["dev"] else f"{repeated:,} of {counts['dev']:,} rows"
        yield (
            f"{task}: {what} of dev repeat the text of a training row, so scores on dev are too high. Remove them from "
            "one of the two files, or let regft split off dev: dev: {folds: 5}."
        )


def _spelling_warning(task: str, known: Mapping[str, str], groups: Sequence[Sequence[Sequence[Any]]]) -> str:
    """Return the labels that are probably one with their rows, and how the task's YAML joins them."""
    spelled = "; ".join(
        " and ".join(f"{json.dumps(name)} ({plural(rows, 'row')})" for name, rows in of) for of in groups
    )
    into = {label: group[0][0] for group in groups for label, _ in group}
    values = json.dumps({spelling: into.get(label, label) for spelling, label in known.items()})
    return (
        f"{task}: labels that are probably one are several classes (rows): {spelled}. To join them, write in "
        f"pipelines/tasks/{task}.yaml: label_values: {values}, and list under labels those that stay. "
        "Where the file has positions in labels, give these instead of names."
    )


def require_contrast(where: str, kind: str, names: Sequence[str], rows: Split) -> None:
    """Raise DataError where there is nothing to learn: one row, or one label or value in all of them."""
    labels = Counter(row.label for row in rows.examples)
    if len(labels) > 1:
        return
    shown = find(kind).shown(next(iter(labels)), names)
    message = f"all {plural(len(rows.examples), 'training row')} have {shown!r}, so there is nothing to learn"
    raise DataError("one-class", f"{where}: {message}\n    -> add rows of other labels")


# ---------------------------------------------------------------------------------------------------------------- leaks

#: Jaccard similarity from which two texts are near-duplicates.
NEAR = 0.8
#: Characters of a shingle; a shorter text is one shingle.
SHINGLE = 5
#: Characters of a text that are read, about what encoders read.
READ = 1_000
#: Bands of a signature and hashes of a band: a pair at ``NEAR`` is found with probability 1 - (1 - 0.8**4)**16 > 0.999.
BANDS, HASHES = 16, 4
#: Rows of a bucket that a row is compared with.
UNLIKE = 20
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
    """Count rows of ``dev`` that are ``near`` a row of ``train``, or have a ``text``, ``text_pair`` or group of one."""
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
    # text -> unit -> row, of two units: one of them is another unit than that of any row that asks
    where = defaultdict[str, dict[str, int]](dict)
    for number in of.training:
        for text in {normalised(of.rows[number].text), normalised(of.rows[number].text_pair or "")}:
            if len(where[text]) < 2:
                where[text].setdefault(of.units[number], number)
    met: dict[int, int] = {}
    for number in of.evaluated:
        rows = where.get(normalised(getattr(of.rows[number], side) or ""), {})
        if others := [other for unit, other in rows.items() if unit != of.units[number]]:
            met[number] = others[0]
    return met


def _near(of: _Rows) -> dict[int, int]:
    """Return evaluated row -> a training row of another unit that is nearly the same, though not exactly."""
    texts = [" | ".join(normalised(part) for part in (row.text, row.text_pair) if part) for row in of.rows]
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
    return np.lib.stride_tricks.sliding_window_view(codes, SHINGLE) @ powers


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
