"""Numbers as the report prints them. Scores are shown times 100 ("points") unless a metric's file says otherwise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from regft_core import metrics

NOT_AVAILABLE = "n/a"
MINUS = "\N{MINUS SIGN}"


def factor(metric: str) -> float:
    return metrics.find(metric).factor


def sign(metric: str) -> float:
    """1 where higher values of a metric are better, else -1."""
    return 1.0 if metrics.higher_is_better(metric) else -1.0


def number(value: float | None, digits: int = 1, signed: bool = False) -> str:
    """``value`` with a true minus sign and without a negative zero, or ``n/a``."""
    if value is None or math.isnan(value):
        return NOT_AVAILABLE
    if math.isinf(value):
        return "∞" if value > 0 else MINUS + "∞"
    text = f"{abs(value):.{digits}f}"
    zero = float(text) == 0
    return (MINUS if value < 0 and not zero else "+" if signed and not zero else "") + text


def score(value: float | None, metric: str, signed: bool = False) -> str:
    return number(None if value is None else value * factor(metric), metrics.find(metric).digits, signed)


def as_shown(value: float, metric: str) -> float:
    """A score in the unit of the page, with one digit more than the page shows, for DVC and MLflow."""
    return round(value * factor(metric), metrics.find(metric).digits + 1)


def same_score(value: float, shown: float, metric: str) -> bool:
    """Whether a mean score is the one that MLflow has: a mean of ``as_shown`` scores, of six significant digits."""
    return math.isclose(as_shown(value, metric), shown, rel_tol=1e-5, abs_tol=0.2 / 10 ** metrics.find(metric).digits)


def interval(bounds: tuple[float, float] | None, metric: str, signed: bool = False) -> str:
    if bounds is None or any(map(math.isnan, bounds)):
        return NOT_AVAILABLE
    return f"[{score(bounds[0], metric, signed)}, {score(bounds[1], metric, signed)}]"


def points(value: float | None, metric: str, signed: bool = False) -> str:
    return f"{score(value, metric, signed)} {metrics.find(metric).unit}"


def point_of(metric: str, scores: Iterable[float]) -> float:
    """One shown point in the metric's unit; of one that is shown as it is, 1% of the median score, of those not NaN."""
    if (times := factor(metric)) != 1:
        return 1 / times
    return 0.01 * (abs(median([score for score in scores if not math.isnan(score)] or [1.0])) or 1.0)


def ratio(value: float | None) -> str:
    return NOT_AVAILABLE if value is None or math.isnan(value) else f"{value:.2f}×"


def seconds(value: float | None) -> str:
    if value is None or math.isnan(value):
        return NOT_AVAILABLE
    if value == 0:
        return "none"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 120:
        return f"{value:.1f} s"
    return f"{value / 60:.1f} min" if value < 7200 else f"{value / 3600:.1f} h"


def memory(value: int | None) -> str:
    return NOT_AVAILABLE if value is None else f"{value / 2**30:.2f} GiB"


def quantity(value: float | None, signed: bool = False) -> str:
    """A number of any size, whose unit nobody declared; a difference with its sign."""
    if signed and value is not None and value > 0:
        return f"+{quantity(value)}"
    if value is None or math.isnan(value) or math.isinf(value):
        return number(value)
    if float(value).is_integer() or abs(value) >= 1000:
        return number(value, 0) if abs(value) < 10_000 else f"{MINUS if value < 0 else ''}{abs(value):,.0f}"
    if abs(value) < 0.001:
        return f"{value:.2e}".replace("-", MINUS)
    return number(value, 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3 if abs(value) >= 0.1 else 4)


def setting(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def listed(words: Sequence[str], most: int = 6) -> str:
    """``a``, ``a and b``, ``a, b and c``; cut after ``most`` words and counted."""
    shown, last = (words[:-1], words[-1:]) if len(words) <= most else (words[:most], [f"{len(words) - most} more"])
    return " and ".join(filter(None, [", ".join(shown), *last]))
