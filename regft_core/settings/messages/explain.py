"""Turn pydantic's errors into problems with a line, plain words and the nearest valid name."""

from __future__ import annotations

from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from regft_core.errors import Problem
from regft_core.names import listing, nearest, suggestion
from regft_core.schema import NAME_LENGTH, ConsistentModel
from regft_core.settings.messages.describe import allowed, given, members, quoting_hint, unwrap
from regft_core.settings.messages.repair import repaired
from regft_core.settings.yaml.document import Document, KeyPath
from regft_core.settings.yaml.valid_parts import chosen, literals, parts

Model = TypeVar("Model", bound=BaseModel)


def validate(model: type[Model], document: Document, path: KeyPath = ()) -> tuple[Model | None, list[Problem]]:
    """Validate the part of ``document`` at ``path``; returns the model or None, and all problems.

    Several errors of one value (one per member of a union) become one problem. What is wrong
    between fields is said also when other fields are wrong by themselves.
    """
    data: Any = document.data
    for part in path:
        data = data[part]
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        raw = error.errors(include_url=False)
    problems: dict[tuple[KeyPath, str], Problem] = {}
    for item in raw:
        location = item["loc"]
        if item["type"] == "value_error" and not location and issubclass(model, ConsistentModel):
            continue  # said below, with the place of each
        if item["type"] == "missing" and isinstance(location[-1], int):
            location = location[:-1]  # a list that is too short: the list is what is wrong
            item["type"] = "missing_items"
        if item["type"] == "too_short" and any(
            other["loc"][: len(location)] == location for other in raw if other != item
        ):
            continue  # only because its wrong items do not count; they have problems of their own
        located = _locate(model, data, location)
        if located is None:
            continue
        place, annotation, owner = located
        for problem in _explain(document, path, place, annotation, owner, data, item):
            # A wrong value gets one problem however many alternatives it fails.
            about = problem.message if item["type"] == "value_error" else problem.key
            problems.setdefault(((*path, *place), about), problem)
    if issubclass(model, ConsistentModel):
        for keys, message in parts(model, data).inconsistencies():
            problems[(*path, *keys), message] = document.problem("inconsistent", (*path, *keys), message)
    return None, list(problems.values())


def _locate(
    model: Any, data: Any, location: tuple[int | str, ...]
) -> tuple[KeyPath, Any, type[BaseModel] | None] | None:
    """Follow pydantic's location: (path in the data, annotation there, model that owns its last key).

    Pydantic mixes names of union members into locations; they are no keys and are left out. None
    for the complaint of a member that the data are clearly not meant to be.
    """
    place: list[str | int] = []
    annotation: Any = model
    owner: type[BaseModel] | None = None
    for part in location:
        if part == "[key]":
            continue
        options = [option for option in members(annotation) if option is not type(None)]
        if len(options) > 1:
            member = chosen(options, data)
            if member is None:
                continue  # alternatives of a scalar: the rest of the location names one of them
            annotation = member
            if isinstance(part, str) and part in _tags(member):
                continue
            if isinstance(data, dict) and part not in data and part not in getattr(member, "model_fields", (part,)):
                return None
        elif options:
            annotation = options[0] if len(members(annotation)) > 1 else annotation
        inner, _ = unwrap(annotation)
        annotation, owner = _child(inner, part)
        if isinstance(data, str):
            continue  # one name instead of a list of names
        place.append(part)
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            data = None
    return tuple(place), annotation, owner


def _tags(model: Any) -> set[str]:
    inner, _ = unwrap(model)
    if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
        return set()
    return {inner.__name__} | {value for name in inner.model_fields for value in literals(inner, name)}


def _child(inner: Any, part: str | int) -> tuple[Any, type[BaseModel] | None]:
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        return inner.model_fields.get(str(part), Any), inner
    arguments = get_args(inner)
    if get_origin(inner) is dict and len(arguments) == 2:
        return arguments[1], None
    if arguments and isinstance(part, int):
        return arguments[part] if len(arguments) > part and arguments[-1] is not Ellipsis else arguments[0], None
    return Any, None


def _explain(
    document: Document,
    prefix: KeyPath,
    place: KeyPath,
    annotation: Any,
    owner: type[BaseModel] | None,
    data: Any,
    item: Any,
) -> list[Problem]:
    path = (*prefix, *place)
    kind = item["type"]
    key = str(place[-1]) if place else ""
    if kind == "extra_forbidden" and owner is not None:
        return [document.problem("unknown-key", path, f"unknown key '{key}'", _unknown_key_hint(key, owner))]
    if kind == "missing":
        what = allowed(annotation)
        near = nearest(key, _unknown_keys(data, place, owner))
        spelled = f"'{near}' may be a misspelling of it; " if near else ""
        return [
            document.problem("key-missing", path, f"'{key}' is missing", f"{spelled}give {what}{_purpose(annotation)}")
        ]
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        return [_tag_problem(document, path, annotation, item)]
    if kind == "value_error":
        lines = str(item["ctx"]["error"]).split("\n") if "error" in item.get("ctx", {}) else [item["msg"]]
        return [document.problem("invalid-value", _mentioned(document, path, line), line) for line in lines]
    if kind == "invalid_key" or item["loc"][-1:] == ("[key]",):
        name = place[-1] if place else item["input"]
        wrong = "not a valid name" if isinstance(name, str) else "not text"
        shown = name if not isinstance(name, str) or len(name) <= NAME_LENGTH else name[:NAME_LENGTH] + "..."
        return [document.problem("bad-name", path, f"the key {shown} is {wrong}", _key_hint(name))]
    wanted = allowed(annotation)
    value = _value(data, place, item["input"])
    if wanted == "a value":
        return [document.problem("invalid-value", path, f"is {given(value)}: {item['msg']}")]
    message = f"is {given(value)}; allowed: {wanted}"
    return [
        document.problem("invalid-value", path, message, quoting_hint(value, wanted) or repaired(value, annotation))
    ]


def _purpose(annotation: Any) -> str:
    """What a field is for, in brackets, where its schema says so."""
    description = getattr(annotation, "description", None)
    return f" ({description})" if description else ""


def _value(data: Any, place: KeyPath, fallback: Any) -> Any:
    for part in place:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return fallback
    return data


def _unknown_keys(data: Any, place: KeyPath, owner: type[BaseModel] | None) -> list[str]:
    """Keys beside a missing one that no field has: probably the missing one, misspelled."""
    beside = _value(data, place[:-1], None)
    if owner is None or not isinstance(beside, dict):
        return []
    return [key for key in beside if isinstance(key, str) and key not in owner.model_fields]


def _unknown_key_hint(key: str, owner: type[BaseModel]) -> str:
    if nearest(key, owner.model_fields) is None:
        for name, field in owner.model_fields.items():
            for option in members(field.annotation):
                if isinstance(option, type) and issubclass(option, BaseModel) and key in option.model_fields:
                    return f"it belongs under '{name}'; allowed here: {listing(owner.model_fields)}"
    if not owner.model_fields:
        return "no keys are allowed here"
    return suggestion(key, owner.model_fields, "allowed here")


def _tag_problem(document: Document, path: KeyPath, annotation: Any, item: Any) -> Problem:
    name = item["ctx"]["discriminator"].strip("'")
    models = [option for option in members(annotation) if option is not type(None)]
    options = sorted(value for option in models for value in literals(unwrap(option)[0], name))
    if item["type"] == "union_tag_not_found":
        return document.problem("key-missing", (*path, name), f"'{name}' is missing", f"allowed: {listing(options)}")
    tag = item["ctx"]["tag"]
    return document.problem("unknown-choice", (*path, name), f"unknown {name} '{tag}'", suggestion(tag, options))


def _mentioned(document: Document, path: KeyPath, message: str) -> KeyPath:
    """The key of ``document`` that a message of a whole-mapping check is about."""
    for word in message.replace("'", " ").replace(",", " ").split():
        if (*path, word) in document.lines:
            return (*path, word)
    return path


def _key_hint(name: Any) -> str:
    if not isinstance(name, str):
        return f"put quotes around it: '{name}'"
    return f"names are of a-z, 0-9, _ and -, start with a letter or digit, and have at most {NAME_LENGTH} characters"
