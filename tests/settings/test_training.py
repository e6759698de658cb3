"""Lengths of a training: which way to say one replaces which, and a factor stays inside the bounds."""

from __future__ import annotations

from typing import Any

import pytest

from regft_core.schema.training import TrainingConfig, scaled
from regft_core.settings.document import Document
from regft_core.settings.layers import lay


@pytest.mark.parametrize(
    ("shared", "factor", "words"),
    [
        ({"epochs": 1}, 0.1, "steps_factor 0.1 of epochs 1 makes epochs 0; allowed: 1 to 10000"),
        ({"epochs": 5000}, 3, "makes epochs 15000; allowed: 1 to 10000"),
        ({"max_steps": 1}, 0.2, "makes max_steps 0; allowed: 1 to 100000000"),
        ({"max_steps": 1_000_000}, 1000, "makes max_steps 1000000000"),
    ],
)
def test_a_factor_that_leaves_the_bounds_is_an_error_and_not_cut(
    shared: dict[str, Any], factor: float, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        scaled(TrainingConfig(**shared), factor)


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
    base, over = (Document({"training": values}, {}, "a.yaml") for values in (shared, overrides))
    values = lay(base, over).data["training"]
    factor = values.pop("steps_factor", 1.0)
    training = scaled(TrainingConfig(**values), factor)
    assert (training.epochs, training.max_steps) == (epochs, max_steps)
