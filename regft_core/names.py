"""Words for messages: the nearest valid name, the list of what is allowed, numbers of things."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

#: Longer lists of allowed names are cut and counted.
SHOWN = 20


def nearest(given: str, allowed: Iterable[str]) -> str | None:
    """The allowed name that ``given`` probably means, or None; ``-`` ``_`` and case do not count."""
    plain = {name.lower().replace("-", "_"): name for name in sorted(allowed, reverse=True)}
    found = get_close_matches(given.lower().replace("-", "_"), plain, n=1, cutoff=0.6)
    return plain[found[0]] if found else None


def listing(names: Iterable[str]) -> str:
    """``a, b, c`` in the order given, cut after ``SHOWN`` names."""
    every = list(names)
    if not every:
        return "none"
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return ", ".join(every[:SHOWN]) + more


def plural(count: int, word: str) -> str:
    """``1 seed``, ``2 seeds``."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def aligned(lines: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Return lines of cells in columns: the first ``left`` of them flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*lines)]
    cells = [[f"{cell:{'<' if at < left else '>'}{widths[at]}}" for at, cell in enumerate(line)] for line in lines]
    return ["  ".join(row).rstrip() for row in cells]


def suggestion(given: str, allowed: Iterable[str], what: str = "allowed") -> str:
    """Hint for an unknown name: the nearest one, then all of them."""
    every = list(allowed)
    near = nearest(given, every)
    return (f"did you mean '{near}'? " if near else "") + f"{what}: {listing(every)}"


def gigabytes(count: int) -> str:
    """A number of bytes for people."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 or not count else f"{max(count, 1e6) / 1e6:.0f} MB"


def duration(seconds: float) -> str:
    """``95 s``, ``14 min``, ``2.5 h``, ``12 days``, ``2.3 years``."""
    hours = seconds / 3600
    if seconds < 100:
        return f"{max(1.0, seconds):.0f} s"
    if hours < 48:
        return f"{seconds / 60:.0f} min" if hours < 1.5 else f"{hours:.1f} h"
    return f"{hours / 24:,.0f} days" if hours < 2 * 8766 else f"{hours / 8766:,.1f} years"
