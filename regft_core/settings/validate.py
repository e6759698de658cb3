"""Turn pydantic's errors into problems with a line, what is allowed and the nearest valid name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from regft_core.errors import ConfigError, Problem
from regft_core.names import listing, nearest, suggestion
from regft_core.schema import NAME_LENGTH, NAME_PATTERN
from regft_core.schema.sources import Source
from regft_core.settings.document import Document, KeyPath

Model = TypeVar("Model", bound=BaseModel)
#: What a check yields: a problem, or a warning as text.
Found = Problem | str
#: Kinds of values that pydantic calls by Python's names.
_KINDS = dict.fromkeys(("tuple_type", "list_type"), "a list, as in [a, b]")
_KINDS |= dict.fromkeys(("dict_type", "model_type"), "keys, as in {key: value}")
#: Errors that are not about the kind of a value: they are told one by one.
_SINGLE = ("extra_forbidden", "missing", "union_tag_not_found", "union_tag_invalid", "value_error", "inconsistent")


def validate(model: type[Model], document: Document, path: KeyPath = ()) -> tuple[Model | None, list[Problem]]:
    """Validate the part of ``document`` at ``path``; return the model or None, and all problems."""
    data = document.value(path)
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        by_place: dict[KeyPath, list[Any]] = {}
        for item in error.errors(include_url=False):
            by_place.setdefault(_place(data, item["loc"], item["type"]), []).append(item)
    # A container of a wrong kind for one alternative is right for another, which says what is wrong inside of it; a
    # list that is too short is one because its wrong items do not count.
    containers = {place[:end] for place in by_place for end in range(len(place))}
    problems: list[Problem] = []
    for place, items in by_place.items():
        at, single = (*path, *place), [item for item in items if item["type"] in _SINGLE]
        for item in single:
            problems += _single(document, at, item)
        if not single and place not in containers:
            problems.append(_wrong_value(document, at, items))
    return None, list(dict.fromkeys(problems))


def validated(model: type[Model], document: Document) -> Model:
    """Return ``document`` as a model. Raises ConfigError with all problems."""
    valid, problems = validate(model, document)
    if valid is None:
        raise ConfigError(problems)
    return valid


def _place(data: Any, location: tuple[Any, ...], kind: str) -> KeyPath:
    """Return the keys of pydantic's location, which also names members of unions; a missing key is its last one."""
    place: list[str | int] = []
    for index, part in enumerate(location):
        in_list = isinstance(data, list) and isinstance(part, int) and part < len(data)
        if in_list or (isinstance(data, dict) and part in data):
            place.append(part)
            data = data[part]
        elif kind == "missing" and index == len(location) - 1 and isinstance(part, str):
            place.append(part)
    return tuple(place)


def _single(document: Document, at: KeyPath, item: Any) -> Iterator[Problem]:
    kind, key = item["type"], str(at[-1]) if at else ""
    fields = item.get("ctx", {}).get("fields", {})  # only a ``StrictModel`` tells them
    if kind == "extra_forbidden":
        hint = suggestion(key, fields, "allowed here") if fields else "remove it"
        yield document.problem("unknown-key", at, f"unknown key '{key}'", hint)
    elif kind == "missing" and isinstance(item["loc"][-1], int):
        yield document.problem("invalid-value", at, f"is too short; allowed: at least {item['loc'][-1] + 1} items")
    elif kind == "missing":
        near = nearest(key, [name for name in document.value(at[:-1]) if isinstance(name, str) and name not in fields])
        description = (fields[key].description if key in fields else None) or "the key has no default"
        yield document.problem(
            "key-missing", at, f"'{key}' is missing", f"'{near}' may be a misspelling of it" if near else description
        )
    elif kind == "union_tag_not_found":  # ``Source`` is the one union with a tag
        kinds = TypeAdapter(Source).json_schema()["discriminator"]["mapping"]
        yield document.problem("key-missing", (*at, "kind"), "'kind' is missing", f"allowed: {listing(sorted(kinds))}")
    elif kind == "union_tag_invalid":
        value, kinds = item["ctx"]["tag"], item["ctx"]["expected_tags"].split("'")[1::2]
        hint = suggestion(value, sorted(kinds))
        yield document.problem("unknown-choice", (*at, "kind"), f"unknown kind '{value}'", hint)
    elif kind == "inconsistent":
        yield document.problem(kind, (*at, *item["ctx"]["keys"]), item["msg"])
    else:
        for line in str(item["ctx"]["error"]).split("\n"):
            yield document.problem("invalid-value", at, line)


def _wrong_value(document: Document, at: KeyPath, items: list[Any]) -> Problem:
    """Return the problem of a value, or of a key, that none of the alternatives takes."""
    allowed = " or ".join(dict.fromkeys(map(_allowed, items)))
    # Texts that a literal allows are those between quotes.
    texts = [item["ctx"]["expected"].split("'")[1::2] for item in items if item["type"] == "literal_error"]
    words = [word for part in texts for word in part]
    if any(item["loc"][-1:] == ("[key]",) or item["type"] == "invalid_key" for item in items):
        name = str(at[-1])[:NAME_LENGTH]
        if words:
            return document.problem("unknown-key", at, f"unknown key '{name}'", suggestion(name, words, "allowed here"))
        hint = "" if isinstance(at[-1], str) else f"put it in quotes: '{name}'"
        return document.problem("bad-name", at, f"the key {name} cannot be one; allowed: {allowed}", hint)
    value = document.value(at)
    shown = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    near = nearest(value, words) if isinstance(value, str) else None
    shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
    return document.problem(
        "invalid-value", at, f"is {shown}; allowed: {allowed}", f"did you mean '{near}'?" if near else ""
    )


def _allowed(item: Any) -> str:
    if item["type"] == "string_pattern_mismatch" and item["ctx"]["pattern"] == NAME_PATTERN:
        return f"a name of a-z, 0-9, _ and -, with at most {NAME_LENGTH} characters, a letter or digit first"
    return _KINDS.get(item["type"]) or str(item["msg"]).removeprefix("Input should be ")
