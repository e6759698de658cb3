"""A misspelt key is refused with a suggestion at every level of every file."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from regft_core.config import schema
from regft_core.config.describe import allowed, unwrap
from regft_core.config.explain import validate
from regft_core.config.schema import (
    NOT_NULL,
    ConsistentModel,
    MethodConfig,
    Params,
    StrictModel,
    TaskConfig,
    TrainingConfig,
    TrainingLayer,
    TrainingOverrides,
)
from regft_core.config.yamlio import load_yaml


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
    defined = {
        value
        for value in vars(schema).values()
        if inspect.isclass(value) and issubclass(value, BaseModel) and value.__module__ == schema.__name__
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


def test_every_override_is_a_training_value_with_the_same_bounds() -> None:
    for name, field in TrainingOverrides.model_fields.items():
        if name == "steps_factor":
            continue
        words = allowed(field).replace("at least 0", "at least 1") if name == "epochs" else allowed(field)  # 0: nothing
        # The words hold the type and every bound; null is offered where the shared value may be null.
        assert words == allowed(TrainingConfig.model_fields[name]), name
        assert (NOT_NULL in field.metadata) == ("null" not in allowed(field)), name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("betas", [0.9, 1.5]),
        ("betas", [0.9, 1.0]),
        ("betas", [-0.1, 0.9]),
        ("epochs", 10_001),
        ("max_steps", 100_000_001),
        ("batch_size", 65_537),
        ("accumulation", 65_537),
        ("learning_rate", 1.5),
        ("learning_rate", 0),
        ("warmup_ratio", 1),
    ],
)
def test_the_protocol_and_its_overrides_refuse_the_same_values(name: str, value: Any) -> None:
    for model in (TrainingConfig, TrainingOverrides):
        with pytest.raises(ValidationError):
            model.model_validate({name: value})


@pytest.mark.parametrize(
    ("shared", "overrides", "words"),
    [
        ({"epochs": 1}, {"steps_factor": 0.1}, "steps_factor 0.1 of epochs 1 makes epochs 0; allowed: 1 to 10000"),
        ({"epochs": 5000}, {"steps_factor": 3}, "makes epochs 15000; allowed: 1 to 10000"),
        ({"max_steps": 1}, {"steps_factor": 0.2}, "makes max_steps 0; allowed: 1 to 100000000"),
        ({"max_steps": 1_000_000}, {"steps_factor": 1000}, "makes max_steps 1000000000"),
    ],
)
def test_a_factor_that_leaves_the_bounds_is_an_error_and_not_cut(
    shared: dict[str, Any], overrides: dict[str, Any], words: str
) -> None:
    changes, training = TrainingOverrides(**overrides), TrainingConfig(**shared)
    assert words in changes.length_problem(training)
    with pytest.raises(ValueError, match="allowed: 1 to"):
        changes.apply(training)


@pytest.mark.parametrize(
    ("shared", "overrides", "epochs", "max_steps"),
    [
        ({"epochs": 10}, {"steps_factor": 2.0}, 20, None),
        ({"epochs": 10}, {"epochs": 4, "steps_factor": 1.5}, 6, None),
        ({"epochs": 10, "max_steps": 100}, {"steps_factor": 0.5}, 5, 50),
        ({"epochs": 10, "max_steps": 100}, {"max_steps": None, "steps_factor": 2.0}, 20, None),
        ({"epochs": 1, "max_steps": 100}, {"steps_factor": 0.1}, 1, 10),
        ({"epochs": 10}, {"epochs": 0, "steps_factor": 3}, 0, None),
        ({"epochs": 10, "max_steps": 100}, {}, 10, 100),
    ],
)
def test_overrides_of_the_length(
    shared: dict[str, Any], overrides: dict[str, Any], epochs: int, max_steps: int | None
) -> None:
    training = TrainingOverrides(**overrides).apply(TrainingConfig(**shared))
    assert (training.epochs, training.max_steps) == (epochs, max_steps)
