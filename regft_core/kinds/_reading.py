"""From raw values in files to labels; and the groups of a stratified draw."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from regft_core.kinds._base import Declared, WrongLabel
from regft_core.lazy import np
from regft_core.names import nearest

#: A stratified draw of values keeps the shares of this many equally filled bins.
BINS = 10
_WIDTH = 60
_INTEGER = re.compile(r"[+-]?\d+")
#: A quoted label within a list that was written as text.
_QUOTED = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
#: Decimal mark -> numbers with it, perhaps with marks (or spaces) between thousands.
_NUMBERS = {
    ",": re.compile(r"[+-]?(?:\d{1,3}(?:[. \u00a0\u202f']\d{3})+|\d+)(?:,\d+)?(?:[eE][+-]?\d+)?"),
    ".": re.compile(r"[+-]?(?:\d{1,3}(?:[, \u00a0\u202f']\d{3})+|\d+)?(?:\.\d*)?(?:[eE][+-]?\d+)?"),
}


def is_nan(value: Any) -> bool:
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


def listed_labels(value: Any) -> list[Any] | None:
    """Return the labels that one raw value lists, None for a single label.

    Lists are those of JSON and Parquet, ``{"choices": [...]}`` (Label Studio), and all of these as text:
    ``["a", "b"]``, ``['a', 'b']`` (pandas, also for tuples, sets and numbers), ``[a, b]``.
    """
    if isinstance(value, Mapping) and set(value) == {"choices"}:
        value = value["choices"]
    if isinstance(value, list | tuple):
        return list(value)
    text = value.strip() if isinstance(value, str) else ""
    if python := re.fullmatch(r"\(\)|(?:frozen)?set\((.*)\)", text, re.DOTALL):
        text = python[1] or "[]"
    if text[:1] not in ("[", "(", "{") or text[-1:] not in ("]", ")", "}"):
        return None
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        inner = text[1:-1].strip().rstrip(",")
        quoted = re.findall(rf"{_QUOTED}(?=\s*,|\s*$|\s+['\"])", inner)
        if quoted and re.fullmatch(rf"{_QUOTED}(?:\s*[,\s]\s*{_QUOTED})*", inner):
            return [part[1:-1].replace("\\'", "'").replace('\\"', '"') for part in quoted]
        numbers = [to_number(part) for part in re.split(r"\s*,\s*|\s+", inner)]
        closed = text[0] + text[-1]  # "(0, 5]" is an interval of pandas, a label of its own
        if None not in numbers and (closed in ("[]", "{}") or (closed == "()" and "," in text)):
            return numbers
        return [part.strip() for part in inner.split(",")] if text[0] == "[" and "," in inner else None
    return listed_labels(parsed) if isinstance(parsed, list | dict) else None


def to_number(value: Any, decimal: str | None = None) -> float | None:
    """Return a finite number, None for anything else.

    Args:
        decimal: the decimal mark of text, a comma or a point; the other one may stand between thousands then. None: a
            point, and nothing between thousands.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    if isinstance(value, str) and decimal is not None:
        if not _NUMBERS[decimal].fullmatch(value.strip()):
            return None
        value = re.sub(r"[^0-9,.eE+-]", "", value).replace("." if decimal == "," else ",", "").replace(",", ".")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and "_" not in str(value) else None


def looks_like_number(text: str) -> bool:
    """Return whether a text is a number as people write it: decimal comma, marks between thousands, a per cent sign."""
    plain = text.strip().rstrip("%").rstrip()
    return any(to_number(plain, mark) is not None for mark in (None, *_NUMBERS))


def given(value: Any) -> str:
    """A raw value as messages show it, cut after ``_WIDTH`` characters."""
    text = repr(value)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}... ({len(text)} characters)"


def read_index(value: Any, declared: Declared) -> int:
    """Index into ``labels``: through ``label_values`` where given, else a name, else an integer index."""
    labels = declared.labels or ()
    if (listed := listed_labels(value)) is not None and as_text(value) not in (declared.label_values or labels):
        if len(listed) != 1 or isinstance(listed[0], list | tuple | Mapping):
            hint = "kind: multi_label reads several labels of a row"
            raise WrongLabel(f"label {given(value)} is a list of {len(listed)}; {hint}")
        (value,) = listed
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
        near = nearest(text, labels)
        hint = f", did you mean '{near}'?" if near else ""
        raise WrongLabel(f"label {given(value)} is none of labels {_shown(list(labels))}{hint}")
    index = _index(text, len(labels))
    if is_number and text in labels:
        meant = [text] if index is None else [text, labels[index]]
        ways = " or ".join(f'{{"{text}": "{name}", ...}}' for name in meant)
        raise WrongLabel(f"label {given(value)} is both a name and a position in labels; write label_values: {ways}")
    if index is None:
        raise WrongLabel(
            f"label {given(value)} is outside 0 to {len(labels) - 1}, the positions in labels {_shown(list(labels))}"
        )
    return index


def _index(text: str, count: int) -> int | None:
    """The position in a list of ``count`` that a whole number in digits names; None when it names none."""
    digits = re.fullmatch(r"([+-]?)0*(\d{1,18})", text)  # Python refuses to read integers of more than 4,300
    value = int(digits[1] + digits[2]) if digits else -1
    return value if 0 <= value < count else None


def read_number(value: Any, declared: Declared) -> float:
    if value is None or (isinstance(value, str) and not value.strip()):
        raise WrongLabel(f"column '{declared.label_column}' has no target")
    number = to_number(value, declared.decimal)
    if number is None:
        hint = ""
        if isinstance(value, str) and declared.decimal is None and looks_like_number(value):
            hint = '; \'decimal\' under source says which mark is the decimal one ("," or "."), and a % has to go'
        raise WrongLabel(f"target {given(value)} is not a finite number{hint}")
    if declared.range is not None and not declared.range[0] <= number <= declared.range[1]:
        raise WrongLabel(f"target {given(value)} is outside range {list(declared.range)}")
    return number


def _shown(names: list[str]) -> str:
    return str(names) if len(names) <= 10 else f"{names[:10]} and {len(names) - 10} more"


def bins(values: Sequence[int | float]) -> list[int]:
    """The bin of each value, of ``BINS`` with equally many; equal values in the order of the rows."""
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return (ranks * BINS // len(values)).tolist()
