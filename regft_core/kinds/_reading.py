"""From raw values in files to labels; and the groups of a stratified draw."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from regft_core.kinds._base import Declared, WrongLabel

#: A stratified draw of values keeps the shares of this many equally filled bins.
BINS = 10
#: Characters of a wrong value that are shown.
_WIDTH = 60
#: Python refuses to read integers of more than 4,300 digits; an index has far fewer.
_MAX_DIGITS = 18
_INTEGER = re.compile(r"[+-]?\d+")


def is_nan(value: Any) -> bool:
    """Whether a raw value is a float that is no number."""
    return isinstance(value, float) and math.isnan(value)


def as_text(value: Any) -> str | None:
    """A raw label as it is written in ``label_values``; None for a missing one."""
    if value is None or is_nan(value):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def given(value: Any) -> str:
    """A raw value as messages show it, cut after ``_WIDTH`` characters."""
    text = repr(value)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}... ({len(text)} characters)"


def read_index(value: Any, declared: Declared) -> int:
    """Index into ``labels``: through ``label_values`` where given, else a name, else an integer index."""
    labels = declared.labels or ()
    text = as_text(value)
    if text is None or text == "":
        raise WrongLabel(f"column '{declared.label_column}' has no label ({given(value)})")
    if declared.label_values is not None:
        name = declared.label_values.get(text)
        if name is None:
            raise WrongLabel(f"label {given(value)} is none of label_values {_shown(list(declared.label_values))}")
        return labels.index(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if text in labels and not (is_number and labels.index(text) != _index(text, len(labels))):
        return labels.index(text)
    if isinstance(value, bool) or not _INTEGER.fullmatch(text):
        near = get_close_matches(text, labels, n=1, cutoff=0.6)
        hint = f", did you mean '{near[0]}'?" if near else ""
        raise WrongLabel(f"label {given(value)} is none of labels {_shown(list(labels))}{hint}")
    index = _index(text, len(labels))
    if is_number and text in labels:
        raise WrongLabel(
            f"label {given(value)} is both a name and a position in labels {_shown(list(labels))}; use label_values"
        )
    if index is None:
        raise WrongLabel(
            f"label {given(value)} is outside 0 to {len(labels) - 1}, the positions in labels {_shown(list(labels))}"
        )
    return index


def _index(text: str, count: int) -> int | None:
    """The position in a list of ``count`` that a whole number in digits names; None when it names none."""
    if not _INTEGER.fullmatch(text):
        return None
    digits = text.lstrip("+-").lstrip("0") or "0"
    if len(digits) > _MAX_DIGITS:
        return None
    value = -int(digits) if text.startswith("-") else int(digits)
    return value if 0 <= value < count else None


def read_number(value: Any, declared: Declared) -> float:
    """A finite number within ``range``."""
    if value is None or (isinstance(value, str) and not value.strip()):
        raise WrongLabel(f"column '{declared.label_column}' has no target")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise WrongLabel(f"target {given(value)} is not a number")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise WrongLabel(f"target {given(value)} is not a number") from None
    if not math.isfinite(number):
        raise WrongLabel(f"target {given(value)} is not a finite number")
    if declared.range is not None and not declared.range[0] <= number <= declared.range[1]:
        raise WrongLabel(f"target {given(value)} is outside range {list(declared.range)}")
    return number


def _shown(names: list[str]) -> str:
    return str(names) if len(names) <= 10 else f"{names[:10]} and {len(names) - 10} more"


def bins(values: Sequence[int | float]) -> list[int]:
    """The bin of each value, of ``BINS`` with equally many; equal values in the order of the rows."""
    ranked = sorted(range(len(values)), key=lambda row: (values[row], row))
    found = [0] * len(values)
    for rank, row in enumerate(ranked):
        found[row] = rank * BINS // len(values)
    return found
