"""Divide rows into parts of given shares, or hold some out: units of rows (one group, one text) stay together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from regft_core.rng import shuffled


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
