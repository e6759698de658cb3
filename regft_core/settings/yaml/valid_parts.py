"""What is right in a file that is wrong somewhere, so that one mistake hides no other.

A check between fields needs a model; a model exists only when every field is right. ``parts``
builds the model from the right fields and leaves the wrong ones out: checks ask
``StrictModel.known`` before they look at a field.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError, create_model
from pydantic.fields import FieldInfo

from regft_core.schema import StrictModel
from regft_core.settings.messages.describe import members, unwrap

Model = TypeVar("Model", bound=BaseModel)
_WRONG = object()


def parts(model: type[Model], data: Any) -> Model:
    """``model`` with the fields of ``data`` that are right; wrong and missing ones are no attributes.

    Nested models and mappings of names to models are taken apart in the same way. Unknown keys
    are left out. Lists are right or wrong as a whole.
    """
    given = data if isinstance(data, dict) else {}
    values = {name: _part(field, given[name]) for name, field in model.model_fields.items() if name in given}
    right = {name: value for name, value in values.items() if value is not _WRONG}
    built = model.model_construct(**right)
    for name in values.keys() - right.keys():
        built.__dict__.pop(name, None)  # the default would stand for what the user wrote
    return built


def literals(model: type[BaseModel], name: str) -> tuple[Any, ...]:
    """The values that field ``name`` may have, when it is one of fixed words."""
    inner, _ = unwrap(model.model_fields[name])
    return get_args(inner) if get_origin(inner) is Literal else ()


def chosen(options: list[Any], data: Any) -> Any:
    """The member of a union that ``data`` is meant to be: told by its ``kind``-like key, or the only mapping."""
    models = [option for option in options if _is_model(option)]
    if isinstance(data, dict) and len(models) == 1 and not any(get_origin(unwrap(o)[0]) is dict for o in options):
        return unwrap(models[0])[0]
    for option in options:
        inner, _ = unwrap(option)
        if _is_model(inner) and isinstance(data, dict):
            for name in inner.model_fields:
                if name in data and isinstance(data[name], str) and data[name] in literals(inner, name):
                    return inner
        elif (get_origin(inner) or inner) is type(data) and isinstance(data, list | dict):
            return option
    return None


def _is_model(annotation: Any) -> bool:
    inner, _ = unwrap(annotation)
    return isinstance(inner, type) and issubclass(inner, BaseModel)


def _part(annotation: Any, data: Any) -> Any:
    right = _validated(annotation, data)
    if right is not _WRONG or not isinstance(data, dict):
        return right
    options = [option for option in members(annotation) if option is not type(None)]
    inner, _ = unwrap(options[0] if len(options) == 1 else chosen(options, data))
    if _is_model(inner):
        found = parts(inner, data)
        complete = all(name in found.__dict__ for name in inner.model_fields)
        return found if complete or len(options) == 1 else _WRONG
    if get_origin(inner) is dict:
        key, value = get_args(inner)
        return _entries(key, value, data)
    return _WRONG


def _entries(key: Any, value: Any, data: dict[Any, Any]) -> dict[Any, Any]:
    """The entries with a right name; a model that is no mapping at all is one of which nothing is known."""
    inner, _ = unwrap(value)
    nothing: Any = inner.model_construct() if _is_model(inner) else _WRONG
    if nothing is not _WRONG:
        nothing.__dict__.clear()
    names = {name: _part(value, entry) for name, entry in data.items() if _validated(key, name) is not _WRONG}
    found = {name: nothing if entry is _WRONG else entry for name, entry in names.items()}
    return {name: entry for name, entry in found.items() if entry is not _WRONG}


def _validated(annotation: Any, data: Any) -> Any:
    if isinstance(annotation, FieldInfo):
        annotation = annotation.rebuild_annotation()
    model = create_model("Part", __base__=StrictModel, value=(annotation, ...))
    try:
        return dict(model.model_validate({"value": data}))["value"]
    except ValidationError:
        return _WRONG
