"""What an unquoted YAML word means: what DVC's parser reads (ruamel.yaml, YAML 1.2), where that is a plain value.

DVC hashes the values that its parser sees; if ours saw others, a stage could run with values that DVC does not track.
"""

from __future__ import annotations

from functools import lru_cache

from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode

_YAML = YAML(typ="safe", pure=True)
_RESOLVER, _CONSTRUCTOR = _YAML.resolver, _YAML.constructor

#: Python refuses to write out integers of more than 4,300 digits; no value here needs a tenth of that.
MAX_DIGITS = 400

Scalar = str | int | float | bool | None


class AmbiguousScalar(ValueError):
    """An unquoted word that DVC reads as something no value here can be."""


@lru_cache(maxsize=4096)
def resolve(word: str) -> Scalar:
    """Return the value of an unquoted ``word``; raises :class:`AmbiguousScalar` with the reason."""
    tag = _RESOLVER.resolve(ScalarNode, word, (True, False))
    kind = str(tag).rpartition(":")[2]
    if kind == "timestamp":
        raise AmbiguousScalar(f"{word} reads as a date")
    if kind in ("merge", "value"):
        raise AmbiguousScalar(f"{word} has a special meaning in YAML")
    try:
        value: Scalar = getattr(_CONSTRUCTOR, f"construct_yaml_{kind}")(ScalarNode(tag, word))
    except (ValueError, IndexError):
        value = None
    if (value is None and kind != "null") or (kind == "int" and abs(int(value or 0)) >= 10**MAX_DIGITS):
        shown = word if len(word) <= 40 else word[:40] + "..."
        raise AmbiguousScalar(f"{shown} looks like a number and is none that can be read")
    return value
