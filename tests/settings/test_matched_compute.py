"""Lengths of a training: factors, which way to say one replaces which, what another method costs."""

from __future__ import annotations

from typing import Any

import pytest

from regft_core.hooks.declare import Declares
from regft_core.hooks.description import Description
from regft_core.schema.method import Cost
from regft_core.schema.training import TrainingConfig, scaled
from regft_core.settings.document import Document
from regft_core.settings.layers import lay
from tests.settings.conftest import PARAMS, Load, Plain

MATCHED = "regularisers: {}\ntraining: {steps_factor: {match: mask}}\n"


class Split(Plain):
    """Fits something in three passes forward and three back."""

    name = "split"

    @classmethod
    def declare(cls, options: Any) -> Declares:
        return Declares(description=Description(fit_cost=Cost(3, 3)))


def files(training: str, **methods: str) -> dict[str, str | None]:
    changes: dict[str, str | None] = {"params.yaml": PARAMS.replace("epochs: 2", training)}
    return changes | {f"pipelines/methods/{name}.yaml": text for name, text in methods.items()}


@pytest.fixture
def registry(registry: dict[str, Any]) -> dict[str, Any]:
    return {**registry, "split": Split}


FIT, SOUP = "regularisers: {split: {}}, training: {epochs: 0}", "repeat: {times: 5, vary: [order]}"


@pytest.mark.parametrize(
    ("training", "first", "last", "epochs", "max_steps"),
    [
        # Three epochs' worth of passes, of four members on half of the rows, and two of steps.
        ("epochs: 2", FIT, "{}", 2 + 3, None),
        ("epochs: 2", f"data: {{split: 0.5}}, repeat: {{times: 4}}, {FIT}", "{}", 2 + 3 * 4 // 2, None),
        # The phase that averages members takes no steps; members take theirs whatever share they draw them from.
        ("epochs: 2", f"data: {{split: 0.5}}, {SOUP}", "{training: {epochs: 0}}", 5, None),
        ("epochs: 2\n  max_steps: 50", f"data: {{split: 0.5}}, {SOUP}", "{training: {epochs: 0}}", None, 250),
        ("epochs: 2\n  max_steps: 50\n  accumulation: 2", SOUP, "{training: {epochs: 0}}", None, 250),
        # Counted steps are matched in batches of the shared size; an epoch goes over the same rows in any batches.
        ("epochs: 2\n  max_steps: 50", "training: {batch_size: 4}", "{}", None, 50 + round(50 / 4)),
        ("epochs: 2", "training: {batch_size: 4}", "{}", 4, None),
    ],
)
def test_the_control_takes_the_passes_of_its_arm(
    load: Load,
    training: str,
    first: str,
    last: str,
    epochs: int | None,
    max_steps: int | None,
) -> None:
    arm = f"phases:\n  search: {{{first}}}\n  finetune: {last}\n"
    project = load(files(training, mask=arm, noise=MATCHED))
    own = project.methods["noise"].training
    assert own.max_steps == max_steps
    if epochs is not None:  # they count for nothing beside steps
        assert own.epochs == epochs


@pytest.mark.parametrize(
    ("training", "search"),
    [
        ("epochs: 2\n  max_steps: 50", "training: {epochs: 1}"),
        ("epochs: 2", "training: {max_steps: 50}"),
        # How many steps one pass over the rows is worth differs from size to size.
        ("epochs: 2\n  max_steps: 50", "regularisers: {split: {}}, training: {epochs: 0}"),
        ("epochs: 2", "data: {task: films}"),
    ],
)
def test_what_has_no_common_factor_is_refused(failures: Any, training: str, search: str) -> None:
    """They were divided by each other's number: 50 steps counted as the epochs that they do not take."""
    searched = f"phases:\n  search: {{{search}}}\n  finetune: {{}}\n"
    (problem,) = failures(files(training, mask=searched, noise=MATCHED))
    assert (problem.code, problem.file) == ("match-incomparable", "pipelines/methods/noise.yaml")


# --------------------------------------------------------------------------------------------- lengths


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
