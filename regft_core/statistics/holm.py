"""Holm's step-down correction for several comparisons."""

from __future__ import annotations

from collections.abc import Mapping


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return adjusted p-values under the same names: reject those below the level, and the family's error holds.

    Raises:
        ValueError: a p-value is outside [0, 1] or NaN.
    """
    wrong = {name: p for name, p in p_values.items() if not 0 <= p <= 1}
    if wrong:
        raise ValueError(f"p-values outside [0, 1]: {wrong}")
    adjusted: dict[str, float] = {}
    running = 0.0
    for position, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        running = max(running, min(1.0, p * (len(p_values) - position)))
        adjusted[name] = running
    return {name: adjusted[name] for name in p_values}
