"""Turn pydantic's errors into problems with a line, plain words and the nearest valid name."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from regft_core.errors import Problem
from regft_core.names import listing, nearest, suggestion
from regft_core.schema import NAME_LENGTH, NAME_PATTERN, Inconsistent
from regft_core.schema.tasks import HUB_ID_PATTERN
from regft_core.settings.document import AmbiguousScalar, Document, KeyPath, resolve

Model = TypeVar("Model", bound=BaseModel)
#: Mistakes of one part of a file that are told one by one; the others are counted.
SHOWN = 50
_ABOUT_THE_KEY = ("extra_forbidden", "missing", "union_tag_not_found", "union_tag_invalid")


def validate(model: type[Model], document: Document, path: KeyPath = ()) -> tuple[Model | None, list[Problem]]:
    """Validate the part of ``document`` at ``path``; return the model or None, and all problems."""
    data = document.value(path)
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        errors = error.errors(include_url=False)
    by_place: dict[KeyPath, list[Any]] = {}
    for item in errors:
        by_place.setdefault(_place(data, item), []).append(item)
    # A container of a wrong kind for one alternative is right for another, which says what is wrong inside of it; a
    # list that is too short is one because its wrong items do not count.
    inside = {place[:end] for place in by_place for end in range(len(place))}
    problems: list[Problem] = []
    for place, items in by_place.items():
        told = [item for item in items if item["type"] in (*_ABOUT_THE_KEY, "value_error")]
        if not told and place in inside:
            continue
        if len(problems) >= SHOWN:
            more = f"{len(by_place) - SHOWN} more mistakes like these"
            problems.append(document.problem("more-mistakes", (*path, *place), more, "mend those above first"))
            break
        for item in told:
            problems += _explain(model, data, document, path, place, item)
        if not told:
            problems.append(_wrong_value(document, (*path, *place), items))
    return None, list(dict.fromkeys(problems))


def _place(data: Any, item: Any) -> KeyPath:
    """Return the keys of pydantic's location, which names members of unions between them."""
    place: list[str | int] = []
    location = item["loc"]
    for index, part in enumerate(location):
        last = index == len(location) - 1
        there = part in data if isinstance(data, dict) else isinstance(data, list) and isinstance(part, int)
        if there and (not isinstance(data, list) or part < len(data)):
            place.append(part)
            data = data[part]
        elif last and item["type"] == "missing" and isinstance(part, int):
            item["type"] = "too_short_items"  # the list is what is wrong
            item["ctx"] = {"min_length": part + 1}
        elif last and item["type"] == "missing":
            place.append(part)
    return tuple(place)


def _explain(
    model: type[BaseModel], data: Any, document: Document, path: KeyPath, place: KeyPath, item: Any
) -> Iterator[Problem]:
    kind, at, key = item["type"], (*path, *place), str(place[-1]) if place else ""
    fields = _fields_at(model, item["loc"][:-1])
    if kind == "extra_forbidden":
        hint = suggestion(key, fields, "allowed here") if fields else "no keys are allowed here"
        yield document.problem("unknown-key", at, f"unknown key '{key}'", hint)
    elif kind == "missing":
        beside = document.value(at[:-1])
        strange = [name for name in beside if name not in fields] if isinstance(beside, dict) else []
        near = nearest(key, [name for name in strange if isinstance(name, str)])
        description = getattr(fields.get(key), "description", None)
        hint = f"'{near}' may be a misspelling of it; " if near else ""
        hint += f"give {_allowed(fields.get(key))}" + (f" ({description})" if description else "")
        yield document.problem("key-missing", at, f"'{key}' is missing", hint)
    elif kind in ("union_tag_not_found", "union_tag_invalid"):
        tag = item["ctx"]["discriminator"].strip("'")
        choices = sorted(_tags(_fields_at(model, item["loc"], every=True).get(tag)))
        if kind == "union_tag_not_found":
            hint = f"allowed: {listing(choices)}"
            yield document.problem("key-missing", (*at, tag), f"'{tag}' is missing", hint)
        else:
            message = f"unknown {tag} '{item['ctx']['tag']}'"
            yield document.problem("unknown-choice", (*at, tag), message, suggestion(item["ctx"]["tag"], choices))
    elif isinstance(error := item["ctx"].get("error"), Inconsistent):
        for keys, message in error.found:
            yield document.problem("inconsistent", (*at, *keys), message)
    else:
        for line in str(error).split("\n"):
            yield document.problem("invalid-value", at, line)


def _wrong_value(document: Document, at: KeyPath, items: list[Any]) -> Problem:
    value = document.value(at)
    if any(item["loc"][-1:] == ("[key]",) or item["type"] == "invalid_key" for item in items):
        name = str(at[-1])[:NAME_LENGTH] if at else ""
        allowed = " or ".join(dict.fromkeys(_said(item) for item in items))
        hint = f"put quotes around it: '{name}'" if not isinstance(at[-1], str) else f"a name is {allowed}"
        return document.problem("bad-name", at, f"the key {name} cannot be one", hint)
    allowed = " or ".join(dict.fromkeys(_said(item) for item in items))
    return document.problem("invalid-value", at, f"is {given(value)}; allowed: {allowed}", _repair(value, items))


def given(value: Any) -> str:
    """Return what the user wrote, with its kind: ``'300' (text)``."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return f"{str(value).lower()} (true/false)"
    if isinstance(value, int | float):
        return f"{value} ({'a whole number' if isinstance(value, int) else 'a number'})"
    if isinstance(value, str):
        return f"'{value if len(value) <= 60 else value[:60] + '...'}' (text)"
    return f"a list of {len(value)}" if isinstance(value, list) else f"a mapping of {len(value)}"


_KINDS = {
    **{"int": "a whole number", "float": "a number", "string": "text", "bool": "true or false", "list": "a list"},
    **{"tuple": "a list", "dict": "a mapping", "model": "a mapping", "none": "null", "finite": "a finite number"},
}
_LIMITS = {"greater_than_equal": "ge", "greater_than": "gt", "less_than_equal": "le", "less_than": "lt"}
_LIMIT_WORDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def _said(item: Any) -> str:
    """Return what an error of pydantic allows, in plain words."""
    kind, context = item["type"], item.get("ctx", {})
    if kind in _LIMITS:
        return f"{_LIMIT_WORDS[_LIMITS[kind]]} {context[_LIMITS[kind]]:g}"
    if kind == "literal_error":
        return str(context["expected"])
    if kind == "string_pattern_mismatch":
        if context["pattern"] == NAME_PATTERN:
            return f"of a-z, 0-9, _ and -, starts with a letter or digit, has at most {NAME_LENGTH} characters"
        if context["pattern"] == HUB_ID_PATTERN:
            return "text like 'owner/name', of letters, digits, _, - and single dots"
        return f"text that matches {context['pattern']}"
    if kind in ("too_short", "too_short_items"):
        return f"at least {context['min_length']} of them"
    if kind == "string_too_short":
        return "text that is not empty"
    if kind.partition("_")[0] in _KINDS and kind.endswith(("_type", "_parsing", "_from_float", "_required", "_number")):
        return _KINDS[kind.partition("_")[0]]
    return str(item["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")


def _repair(value: Any, items: list[Any]) -> str:
    """Return how to write a value so that it is of the kind that is wanted; empty where nothing close to it is."""
    kinds = {item["type"].partition("_")[0] for item in items}
    words = [word for item in items if item["type"] == "literal_error" for word in _literals(item)]
    if isinstance(value, str):
        if near := nearest(value, words):
            return f"did you mean '{near}'?"
        try:
            plain = resolve(value)
        except AmbiguousScalar:
            plain = value
        if {"int", "float", "bool"} & kinds and isinstance(plain, bool | int | float):
            return "remove the quotes"
        if value.lower() in ("yes", "no", "on", "off") and "bool" in kinds:
            return "YAML 1.2 knows only true and false"
    if isinstance(value, bool | int | float) and "string" in kinds:
        return "put quotes around it to make it text"
    if {"list", "tuple"} & kinds and not isinstance(value, list | dict) and value is not None:
        return f"in brackets, even a single value: [{value}]"
    if value is None and {"dict", "model"} & kinds:
        return "write {} when there is nothing to say"
    if isinstance(value, float) and value.is_integer() and "int" in kinds:
        return f"write {value:.0f}"
    return ""


def _literals(item: Any) -> list[str]:
    return str(item["ctx"]["expected"]).replace(" or ", ", ").replace("'", "").split(", ")


# ------------------------------------------------------------------------------------ annotations


def _members(annotation: Any) -> list[Any]:
    """Return the alternatives of a type, without what only constrains it."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [member for option in get_args(annotation) for member in _members(option)]
    return [annotation]


def _fields_at(model: type[BaseModel], location: Iterable[Any], *, every: bool = False) -> dict[str, Any]:
    """Return the fields of the model at pydantic's location; of ``every`` member where it is a union."""
    here: list[Any] = [model]
    for part in location:
        below: list[Any] = []
        for one in here:
            arguments = get_args(one)
            if isinstance(one, type) and issubclass(one, BaseModel):
                below += _members(one.model_fields[part].annotation) if part in one.model_fields else []
            elif get_origin(one) is dict:
                below += _members(arguments[1])
            elif get_origin(one) in (list, tuple) and isinstance(part, int):
                below += _members(arguments[0])
        # No key: the name or the tag of a member of a union.
        tagged = [one for one in here if part == getattr(one, "__name__", None) or part in _all_tags(one)]
        here = below or tagged or here
    models = [one for one in here if isinstance(one, type) and issubclass(one, BaseModel)]
    if not every:
        return dict(models[0].model_fields) if models else {}
    found: dict[str, Any] = {}
    for one in models:
        for name, field in one.model_fields.items():
            found.setdefault(name, []).append(field)
    return found


def _all_tags(model: Any) -> set[str]:
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return set()
    return {tag for field in model.model_fields.values() for tag in _tags([field])}


def _tags(fields: Any) -> set[str]:
    """Return the fixed words that fields may have."""
    annotations = [one for field in fields or () for one in _members(field.annotation)]
    return {word for one in annotations if get_origin(one) is Literal for word in get_args(one)}


def _allowed(field: Any) -> str:
    """Return what kind of value a field takes, in a few words."""
    words = []
    for one in _members(field.annotation) if field is not None else ():
        kind = get_origin(one) or one
        if kind is Literal:
            words.append("one of " + listing(f"'{word}'" for word in get_args(one)))
        elif isinstance(kind, type) and issubclass(kind, BaseModel):
            words.append(f"a mapping with the keys {listing(kind.model_fields)}")
        elif kind is not type(None):
            words.append(_KINDS.get({str: "string"}.get(kind, getattr(kind, "__name__", "")), "a value"))
    return " or ".join(dict.fromkeys(words)) or "a value"
