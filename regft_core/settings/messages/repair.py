"""What a value of the wrong kind probably meant, for the hint below a message; nothing is ever substituted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from regft_core.names import nearest
from regft_core.settings.messages.describe import members, unwrap
from regft_core.settings.yaml.scalars import AmbiguousScalar, resolve

_RANGE = re.compile(r"(\d{1,9})\s*(?:-|\.{2,3}|to)\s*(\d{1,9})")
_WORDS_FOR_NULL = frozenset({"none", "nil", "off", "no", "never", "nan"})
#: Ranges of more numbers are not written out in a hint.
_WRITTEN_OUT = 12


def repaired(value: Any, annotation: Any) -> str:
    """How to write ``value`` so that it fits ``annotation``; empty where nothing close to it does.

    What is proposed has been checked against the annotation, limits included.
    """
    if any(_is_list(option) for option in members(annotation)):
        return _as_list(value, annotation)
    if isinstance(value, str):
        if value.lower() in _WORDS_FOR_NULL and fits(None, annotation):
            return "write null"
        if near := nearest(value, _words(annotation)):
            return f"did you mean '{near}'?"
    for candidate in _candidates(value):
        if fits(candidate, annotation):
            return f"write {candidate}"
    parts = re.split(r"[\s,;]+", value.strip()) if isinstance(value, str) else []
    if len(parts) > 1 and all(fits(_scalar(part), annotation) for part in parts):
        return f"separate the values by commas: {', '.join(parts)}"
    return ""


def fits(value: Any, annotation: Any) -> bool:
    """Whether ``value`` is allowed by a field or a type."""
    if isinstance(annotation, FieldInfo):
        if annotation.annotation is None:
            return False
        annotation = Annotated[(annotation.annotation, *(annotation.metadata or ("",)))]
    try:
        TypeAdapter(annotation).validate_python(value, strict=not isinstance(value, list))
    except ValidationError:
        return False
    return True


def _is_list(annotation: Any) -> bool:
    inner, _ = unwrap(annotation)
    return get_origin(inner) in (tuple, list) and bool(get_args(inner))


def _words(annotation: Any) -> list[str]:
    """The fixed words among what is allowed."""
    options = (unwrap(option)[0] for option in members(annotation))
    return [word for option in options if get_origin(option) is Literal for word in get_args(option)]


def _as_list(value: Any, annotation: Any) -> str:
    """The hint for a scalar instead of a list."""
    if isinstance(value, bool | list | dict) or value is None:
        return ""
    if not isinstance(value, str):
        return f"in brackets, even a single value: [{value}]" if fits([value], annotation) else ""
    if (found := _RANGE.fullmatch(value.strip())) and fits([0], annotation):
        first, last = int(found[1]), int(found[2])
        if first <= last < first + _WRITTEN_OUT:
            return f"a range is written out: {list(range(first, last + 1))}"
    words = [word for word in re.split(r"[\s,;]+", value.strip(" []()")) if word]
    if words and fits([_scalar(word) for word in words], annotation):
        return f"write a list, in brackets: [{', '.join(words)}]"
    return "write a list, every value by itself: [0, 1, 2]" if fits([0, 1, 2], annotation) else ""


def _scalar(word: str) -> Any:
    try:
        return resolve(word)
    except AmbiguousScalar:
        return word


def _candidates(value: Any) -> Iterator[Any]:
    """Values that ``value`` may stand for, likely ones first."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, float) and value.is_integer():
        yield int(value)
    if isinstance(value, int | float) and 1 < value <= 100:
        yield value / 100  # a percentage
    if not isinstance(value, str):
        return
    text = value.strip()
    if re.fullmatch(r"\d+,\d+", text):
        yield float(text.replace(",", "."))
    if found := re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text):
        yield float(found[1]) / 100
    if found := re.fullmatch(r"(\d+(?:\.\d+)?)\s*[A-Za-z]{1,5}", text):
        yield _scalar(found[1])  # a number with its unit
    plain = re.sub(r"\s+", "_", text.lower())
    if plain != value:
        yield plain
