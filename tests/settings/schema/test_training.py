"""What methods change in the shared protocol has its types and bounds, and a factor of the length stays inside them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from regft_core.schema import NOT_NULL
from regft_core.schema.training import TrainingConfig, TrainingOverrides
from regft_core.settings.messages.describe import allowed


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
        ({"epochs": 10, "max_steps": 100}, {"epochs": 4}, 4, None),
        ({"epochs": 10, "max_steps": 100}, {"epochs": 0}, 0, None),
        ({"epochs": 10, "max_steps": 100}, {"epochs": 4, "max_steps": 30}, 4, 30),
    ],
)
def test_overrides_of_the_length(
    shared: dict[str, Any], overrides: dict[str, Any], epochs: int, max_steps: int | None
) -> None:
    training = TrainingOverrides(**overrides).apply(TrainingConfig(**shared))
    assert (training.epochs, training.max_steps) == (epochs, max_steps)
