"""One labelled text and its JSONL form, which every later stage reads; how rows are divided into parts."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from regft_core.disk.files import write_text
from regft_core.errors import DataError
from regft_core.kinds._reading import given, is_nan
from regft_core.rng import shuffled

#: What programs write for a missing text, in lower case.
WORDS_FOR_NONE = ("nan", "none", "null", "n/a", "#n/a", "<na>", "nat")

#: In a prepared task: its texts without labels.
UNLABELLED = "unlabelled.jsonl"

#: Characters of a text that a warning shows.
WIDTH = 70


@dataclass(frozen=True)
class Example:
    """One row: ``label`` is the index into its set's ``labels``, or the target of a regression task."""

    idx: str
    text: str
    text_pair: str | None
    label: int | float

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    def to_json(self) -> str:
        """One line of JSON with sorted keys, without the line break."""
        return json.dumps(vars(self), ensure_ascii=False, sort_keys=True, allow_nan=False)


_EXAMPLE = TypeAdapter(Example)


class WrongText(ValueError):
    """A cell that is no text; the caller adds the row."""


def text_of(value: Any, column: str) -> str | None:
    """Return the text of a raw cell, None for an empty one; lists of texts (keywords) are joined by spaces.

    Raises:
        WrongText: for a value of another type, and for half of a surrogate pair, which no file can hold.
    """
    if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        value = " ".join(value)
    if value is None or is_nan(value) or (isinstance(value, str) and not value.strip()):
        return None
    if not isinstance(value, str):
        raise WrongText(f"column '{column}' is {given(value)}, not text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise WrongText(f"column '{column}' holds half of a surrogate pair: {given(value)}") from None
    return value


def means_none(text: str) -> bool:
    """Return whether a text is a word that programs write for a missing one."""
    return text.strip() == "NA" or text.strip().casefold() in WORDS_FOR_NONE


def text_key(example: Example) -> str:
    """Return what two rows of the same text have in common: NFC, white space collapsed; labels do not count."""
    parts = (example.text,) if example.text_pair is None else (example.text, example.text_pair)
    return "\x1f".join(" ".join(unicodedata.normalize("NFC", part).split()) for part in parts)


def excerpt(text: str) -> str:
    """Return a text as a warning shows it, cut after ``WIDTH`` characters."""
    return text if len(text) <= WIDTH else text[:WIDTH] + "..."


def to_jsonl(examples: Iterable[Example]) -> str:
    """The content of a JSONL file, one line per example."""
    return "".join(example.to_json() + "\n" for example in examples)


def write_jsonl(path: Path, examples: Iterable[Example]) -> None:
    """Write ``examples`` to ``path`` atomically: readers see the old file or the whole new one."""
    write_text(path, to_jsonl(examples))


def read_jsonl(path: Path) -> list[Example]:
    """Read what ``write_jsonl`` wrote; raises DataError when the file is missing or a line is no example.

    Lines end at "\\n" only: texts may hold other Unicode line breaks (U+2028, U+0085), at
    which ``str.splitlines`` would cut a row in two.
    """
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = f"cannot be read ({getattr(error, 'strerror', None) or error})"
        raise DataError("cannot-read", f"{path}: {reason}; run the stage that writes it") from error
    examples = []
    for number, line in enumerate(lines, start=1):
        try:
            examples += [_EXAMPLE.validate_json(line)] if line else []
        except ValidationError as error:
            what = error.errors()[0]["msg"]
            hint = "run the stage that writes it again"
            raise DataError("damaged-rows", f"{path}:{number}: not a row ({what}); {hint}") from error
    return examples


# Units of rows (one group, one text) stay together.


def hold_out(units: Sequence[str], count: int, random: Random) -> list[int]:
    """Return numbers of held-out rows: whole units in random order, at most ``count`` rows, but one unit at least.

    That unit is the smallest where none has so few rows. With a single unit it is all rows.
    """
    sizes, taken, rows = Counter(units), set(), 0
    order = shuffled(list(sizes), random)
    for unit in order:
        if rows + sizes[unit] <= count:
            taken.add(unit)
            rows += sizes[unit]
    taken = taken or {min(order, key=lambda unit: sizes[unit])}
    return [row for row, unit in enumerate(units) if unit in taken]


def divide(strata: Sequence[int], units: Sequence[str], shares: Sequence[float], random: Random) -> list[int]:
    """Return the part of each row, an index into ``shares`` (positive, of sum 1); a pure function of its arguments.

    Units are placed one by one, the largest first and equal ones in random order. Each goes where it adds least to
    the chi-squared distance between the rows of each stratum and their shares. Where every unit is one row this is
    Sainte-Lague's apportionment: with equal shares no part has two rows of a stratum more than another.

    Args:
        strata: [n] the stratum of each row (a label, a bin of values).
        units: [n] rows of one unit get one part.
    """
    members: dict[str, list[int]] = {}
    for row, unit in enumerate(units):
        members.setdefault(unit, []).append(row)
    order = sorted(shuffled(list(members), random), key=lambda unit: -len(members[unit]))
    totals = Counter(strata)
    held: list[Counter[int]] = [Counter() for _ in shares]
    sizes = [0] * len(shares)
    parts = [0] * len(strata)
    for unit in order:
        rows_of = Counter(strata[row] for row in members[unit])

        def added(part: int, rows_of: Counter[int] = rows_of) -> tuple[float, float, int]:
            """Return what the unit adds to the distance of the strata, then of all rows, were it placed there."""
            share = shares[part]
            by_stratum = sum(
                n * (2 * held[part][stratum] + n) / (share * totals[stratum]) - 2 * n for stratum, n in rows_of.items()
            )
            rows = sum(rows_of.values())
            return by_stratum, rows * (2 * sizes[part] + rows) / (share * len(strata)), part

        chosen = min(range(len(shares)), key=added)
        held[chosen].update(rows_of)
        sizes[chosen] += len(members[unit])
        for row in members[unit]:
            parts[row] = chosen
    return parts
