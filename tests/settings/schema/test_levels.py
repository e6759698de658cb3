"""A misspelt key is refused with a suggestion at every level of every file."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel

from regft_core.schema import ConsistentModel, StrictModel
from regft_core.schema.methods import MethodConfig
from regft_core.schema.params import Params
from regft_core.schema.tasks import TaskConfig
from regft_core.schema.training import TrainingLayer
from regft_core.settings import schema
from regft_core.settings.messages.describe import allowed, unwrap
from regft_core.settings.messages.explain import validate
from regft_core.settings.yaml.document import load_yaml


def nested(annotation: Any) -> Iterator[tuple[tuple[str | int, ...], type[BaseModel]]]:
    """Models inside an annotation, each with the keys and items that lead to it."""
    inner, _ = unwrap(annotation)
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        yield (), inner
    elif get_origin(inner) in (Union, types.UnionType):
        for option in get_args(inner):
            yield from nested(option)
    elif get_origin(inner) is dict:
        yield from ((("name", *path), model) for path, model in nested(get_args(inner)[1]))
    elif get_origin(inner) is tuple:
        yield from (((0, *path), model) for path, model in nested(get_args(inner)[0]))


def levels(root: type[BaseModel]) -> Iterator[tuple[tuple[str | int, ...], type[BaseModel]]]:
    """Every place in ``root`` where a mapping with fixed keys stands."""
    yield (), root
    for name, field in root.model_fields.items():
        for path, model in nested(field):
            for deeper, found in levels(model):
                yield (name, *path, *deeper), found


def discriminator(model: type[BaseModel]) -> dict[str, Any]:
    field = model.model_fields.get("kind")
    values = get_args(field.annotation) if field is not None else ()
    return {"kind": values[0]} if len(values) == 1 else {}


PLACES = [(root, path, model) for root in (Params, TaskConfig, MethodConfig) for path, model in levels(root)]


def test_every_model_of_the_schema_is_reached() -> None:
    names = [schema.__name__, *(f"{schema.__name__}.{info.name}" for info in pkgutil.iter_modules(schema.__path__))]
    defined = {
        value
        for name in names
        for value in vars(importlib.import_module(name)).values()
        if inspect.isclass(value) and issubclass(value, BaseModel) and value.__module__ == name
    }
    assert {model for _, _, model in PLACES} == defined - {StrictModel, ConsistentModel, TrainingLayer}


def wrap(path: tuple[str | int, ...], value: Any) -> Any:
    for part in reversed(path):
        value = [value] if part == 0 else {part: value}
    return value


@pytest.mark.parametrize(
    ("root", "path", "model"), PLACES, ids=[f"{root.__name__}.{'.'.join(map(str, path))}" for root, path, _ in PLACES]
)
def test_a_misspelt_key_is_refused_with_a_suggestion(
    root: type[BaseModel], path: tuple[str | int, ...], model: type[BaseModel]
) -> None:
    for name in model.model_fields:
        typo = name + "x"
        # yaml.dump writes block style: the key's line says whether positions are followed down here.
        text = yaml.dump(wrap(path, {**discriminator(model), typo: 1}), sort_keys=False, default_flow_style=False)
        document = load_yaml(Path("/p/file.yaml"), Path("/p"), text)
        value, problems = validate(root, document)
        assert value is None
        found = [problem for problem in problems if problem.message == f"unknown key '{typo}'"]
        assert len(found) == 1, (typo, problems)
        assert found[0].hint.startswith(f"did you mean '{name}'? allowed here: ")
        assert found[0].line == text.split(typo)[0].count("\n") + 1
        assert found[0].key.endswith(typo)


def test_every_field_can_be_described_in_words() -> None:
    for model in {model for _, _, model in PLACES}:
        for name, field in model.model_fields.items():
            words = allowed(field)
            # Raw type names and pydantic's vocabulary would leak from an annotation without words.
            assert not any(bad in words for bad in ("typing", "Annotated", "tuple", "NoneType", "<class")), (
                name,
                words,
            )
