"""What a value may be, in plain words, read off a field's annotation."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from regft_core.names import listing
from regft_core.schema import NAME_LENGTH, NAME_PATTERN, NOT_NULL
from regft_core.schema.tasks import HUB_ID_PATTERN
from regft_core.settings.yaml.scalars import AmbiguousScalar, resolve

_LIMITS = {"ge": "at least {}", "gt": "above {}", "le": "at most {}", "lt": "below {}"}


def given(value: Any) -> str:
    """What the user wrote, with its kind: ``'300' (text)``."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return f"{str(value).lower()} (true/false)"
    if isinstance(value, int | float):
        return f"{value} ({'a whole number' if isinstance(value, int) else 'a number'})"
    if isinstance(value, str):
        shown = value if len(value) <= 60 else value[:60] + "..."
        return f"'{shown}' (text)"
    return f"a list of {len(value)}" if isinstance(value, list) else f"a mapping of {len(value)}"


def quoting_hint(value: Any, wanted: str) -> str:
    """Whether adding or removing quotes would help; empty when not."""
    if isinstance(value, bool | int | float) and "text" in wanted:
        return "put quotes around it to make it text"
    if value is None and wanted.startswith("a mapping"):
        return "write {} when there is nothing to say"
    if isinstance(value, str) and wanted.startswith("a mapping of names"):
        return f"write '{value}: {{}}'"
    if isinstance(value, str) and "text" not in wanted:
        try:
            plain = resolve(value)
        except AmbiguousScalar:
            return ""
        if isinstance(plain, bool | int | float):
            return "remove the quotes"
        if value.lower() in ("yes", "no", "on", "off") and "true or false" in wanted:
            return "YAML 1.2 knows only true and false"
    return ""


def unwrap(annotation: Any) -> tuple[Any, list[Any]]:
    """Split ``Annotated[T, ...]`` and a field into T and all its constraints."""
    if isinstance(annotation, FieldInfo):
        inner, more = unwrap(annotation.annotation)
        return inner, [*more, *annotation.metadata]
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        deeper, more = unwrap(inner)
        for item in metadata:
            more += item.metadata if isinstance(item, FieldInfo) else [item]
        return deeper, more
    return annotation, []


def members(annotation: Any) -> list[Any]:
    """The alternatives of a union, of unions in it too; a list of one for any other type."""
    inner, _ = unwrap(annotation)
    if get_origin(inner) not in (Union, types.UnionType):
        return [annotation]
    return [member for option in get_args(inner) for member in members(option)]


def allowed(annotation: Any) -> str:
    """What fits ``annotation``, in words."""
    inner, metadata = unwrap(annotation)
    options = members(inner)
    if NOT_NULL in metadata:
        options = [option for option in options if option is not types.NoneType]
    if len(options) > 1:
        return " or ".join(_alternatives(options))
    if options[0] is not inner:
        return allowed(options[0])
    return _one(inner, metadata)


def _alternatives(options: list[Any]) -> list[str]:
    words = [allowed(option) for option in options if option is not types.NoneType]
    return [*words, "null"] if types.NoneType in options else words


def _one(inner: Any, metadata: list[Any]) -> str:
    origin, arguments = get_origin(inner), get_args(inner)
    if origin is Literal:
        every = [f"'{value}'" if isinstance(value, str) else str(value) for value in arguments]
        return every[0] if len(every) == 1 else "one of " + listing(every)
    if inner is bool:
        return "true or false"
    if inner is int:
        return "a whole number" + _limits(metadata)
    if inner is float:
        return "a number" + _limits(metadata)
    if inner is str:
        return "text" + _text_limits(metadata)
    if inner in (tuple, list, set, frozenset) or origin in (tuple, list, set, frozenset):
        return _sequence(origin or inner, arguments, metadata)
    if inner is dict or origin is dict:
        return "a mapping of names to values" if not arguments else f"a mapping of names to {allowed(arguments[1])}"
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        return f"a mapping with the keys {listing(inner.model_fields)}"
    return "a value" if inner is Any else getattr(inner, "__name__", str(inner))


def _sequence(origin: Any, arguments: tuple[Any, ...], metadata: list[Any]) -> str:
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        kinds = [allowed(argument) for argument in arguments]
        same = kinds[0] if len(set(kinds)) == 1 else ", then ".join(kinds)
        return f"a list of exactly {len(kinds)}: {same}"
    least = max((item.min_length for item in metadata if getattr(item, "min_length", None)), default=0)
    text = f"a list of at least {least}" if least else "a list"
    return f"{text}, each {allowed(arguments[0])}" if arguments else text


def _limits(metadata: list[Any]) -> str:
    found = []
    for item in metadata:
        for name, words in _LIMITS.items():
            if (limit := getattr(item, name, None)) is not None:
                found.append(words.format(limit))
    return ", " + " and ".join(found) if found else ""


def _text_limits(metadata: list[Any]) -> str:
    for item in metadata:
        pattern = getattr(item, "pattern", None)
        if pattern == NAME_PATTERN:
            return f" of a-z, 0-9, _ and - that starts with a letter or digit, at most {NAME_LENGTH} characters"
        if pattern == HUB_ID_PATTERN:
            return " like 'owner/name', of letters, digits, _, - and single dots"
        if pattern is not None:
            return f" that matches {pattern}"
        if getattr(item, "min_length", None):
            return " that is not empty"
    return ""
