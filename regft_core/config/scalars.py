"""What an unquoted YAML word means, read the way DVC reads it (YAML 1.2).

PyYAML follows YAML 1.1, where ``no`` is false and ``2e-5`` is text. DVC hashes the values that
its YAML 1.2 parser sees; if ours saw others, a stage could run with values that DVC does not
track. A test compares the two over random documents.
"""

from __future__ import annotations

import re
from collections.abc import Callable

NULL = frozenset({"", "~", "null", "Null", "NULL"})
TRUE = frozenset({"true", "True", "TRUE"})
FALSE = frozenset({"false", "False", "FALSE"})

_BASES = {"0b": 2, "0o": 8, "0x": 16}
_INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0o[0-7_]+|0x[0-9A-Fa-f_]+|[0-9_]+)")
# An exponent after a number that begins with a point needs its sign: ".5e3" is text for DVC too.
_FLOAT = re.compile(r"[-+]?(?:\d[\d_]*(?:\.[\d_]*(?:[eE][-+]?\d+)?|[eE][-+]?\d+)|\.[\d_]+(?:[eE][-+]\d+)?)", re.ASCII)
_INFINITY = re.compile(r"[-+]?\.(?:inf|Inf|INF)")
_NAN = frozenset({".nan", ".NaN", ".NAN"})
_DATE = re.compile(
    r"\d{4}-\d\d-\d\d"
    r"|\d{4}-\d\d?-\d\d?(?:[Tt]|[ \t]+)\d\d?:\d\d:\d\d(?:\.\d*)?(?:[ \t]*(?:Z|[-+]\d\d?(?::\d\d)?))?",
    re.ASCII,
)

#: Python refuses to write out integers of more than 4,300 digits; no value here needs a tenth of that.
MAX_DIGITS = 400

Scalar = str | int | float | bool | None


class AmbiguousScalar(ValueError):
    """An unquoted word that DVC reads as something no value here can be."""


def resolve(word: str) -> Scalar:
    """Return the value of an unquoted ``word``; raises :class:`AmbiguousScalar` with the reason."""
    if word in NULL:
        return None
    if word in TRUE:
        return True
    if word in FALSE:
        return False
    if _FLOAT.fullmatch(word) or _INFINITY.fullmatch(word) or word in _NAN:
        return _number(word, _float)
    if word[0] in "-+0123456789" and _INTEGER.fullmatch(word):
        return _number(word, _integer)
    if _DATE.fullmatch(word):
        raise AmbiguousScalar(f"{word} reads as a date")
    if word in ("<<", "="):
        raise AmbiguousScalar(f"{word} has a special meaning in YAML")
    return word


def _number(word: str, convert: Callable[[str], int | float]) -> int | float:
    try:
        return convert(word.replace("_", ""))
    except ValueError:
        shown = word if len(word) <= 40 else word[:40] + "..."
        raise AmbiguousScalar(f"{shown} looks like a number and is none that can be read") from None


def _float(plain: str) -> float:
    return float(plain.lower().replace(".inf", "inf").replace(".nan", "nan"))


def _integer(plain: str) -> int:
    sign = -1 if plain[:1] == "-" else 1
    digits = plain.lstrip("+-")
    base = _BASES.get(digits[:2])
    if len(digits) > MAX_DIGITS:
        raise ValueError("too long")
    return sign * (int(digits, 10) if base is None else int(digits[2:], base))
