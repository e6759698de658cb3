"""``steps_factor: {match: method}``: what another method costs, fits without steps included."""

from __future__ import annotations

from typing import Any

import pytest

from regft_core.hooks.declare import Declares
from regft_core.hooks.description import Description
from regft_core.schema.method import Cost
from regft_core.settings.matched_compute import method_factor
from regft_core.settings.read_project import load_project
from tests.settings.conftest import PARAMS, Plain

MATCHED = "regularisers: {}\ntraining: {steps_factor: {match: mask}}\n"
FITTED = "phases:\n  search: {regularisers: {split: {}}, training: {epochs: 0}}\n  finetune: {}\n"


class Split(Plain):
    """Fits something in three passes forward and three back."""

    name = "split"

    @classmethod
    def declare(cls, options: Any) -> Declares:
        return Declares(description=Description(fit_cost=Cost(3, 3)))


def files(training: str, **methods: str) -> dict[str, str | None]:
    changes: dict[str, str | None] = {"params.yaml": PARAMS.replace("epochs: 2", training)}
    return changes | {f"pipelines/methods/{name}.yaml": text for name, text in methods.items()}


def test_a_fit_is_matched_by_epochs(build: Any, registry: dict[str, Any]) -> None:
    """Three epochs' worth of passes and two of steps: five epochs."""
    known = {**registry, "split": Split}
    project = load_project(build(files("epochs: 2", mask=FITTED, noise=MATCHED)), known)
    assert method_factor(project.methods["mask"], project.params.training, known) == pytest.approx(1 + 3 / 2)
    assert project.methods["noise"].training.epochs == 5
    half = FITTED.replace("{regularisers", "{data: {split: 0.5}, repeat: {times: 4}, regularisers")
    project = load_project(build(files("epochs: 2", mask=half, noise=MATCHED)), known)
    assert project.methods["noise"].training.epochs == 2 + 3 * 4 // 2


SOUP = (
    "phases:\n  members: {data: {split: SPLIT}, repeat: {times: 5, vary: [order]}}\n"
    "  finetune: {training: {epochs: 0}}\n"
)


@pytest.mark.parametrize(
    ("training", "split", "epochs", "max_steps"),
    [
        ("epochs: 2", 1.0, 10, None),
        ("epochs: 2", 0.5, 5, None),
        ("epochs: 2\n  max_steps: 50", 1.0, 10, 250),
        # Members take their 50 steps each, whatever share of the rows they draw them from.
        ("epochs: 2\n  max_steps: 50", 0.5, 10, 250),
        ("epochs: 2\n  max_steps: 50\n  accumulation: 2", 1.0, 10, 250),
    ],
)
def test_the_control_of_a_soup_takes_the_steps_of_its_members(
    build: Any, registry: dict[str, Any], training: str, split: float, epochs: int, max_steps: int | None
) -> None:
    """The phase that averages them takes none: under ``max_steps`` it was counted as one more member."""
    changes = files(training, mask=SOUP.replace("SPLIT", str(split)), noise=MATCHED)
    project = load_project(build(changes), registry)
    own = project.methods["noise"].training
    assert (own.epochs, own.max_steps) == (epochs, max_steps)


def test_counted_steps_are_matched_in_batches_of_the_shared_size(build: Any, registry: dict[str, Any]) -> None:
    quarter = "phases:\n  search: {training: {batch_size: 4}}\n  finetune: {}\n"
    changes = files("epochs: 2\n  max_steps: 50", mask=quarter, noise=MATCHED)
    assert load_project(build(changes), registry).methods["noise"].training.max_steps == 50 + round(50 / 4)
    # An epoch goes over the same rows in batches of any size.
    project = load_project(build(files("epochs: 2", mask=quarter, noise=MATCHED)), registry)
    assert project.methods["noise"].training.epochs == 4


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
def test_what_has_no_common_factor_is_refused(
    failures: Any, registry: dict[str, Any], monkeypatch: pytest.MonkeyPatch, training: str, search: str
) -> None:
    """They were divided by each other's number: 50 steps counted as the epochs that they do not take."""
    monkeypatch.setitem(registry, "split", Split)
    searched = f"phases:\n  search: {{{search}}}\n  finetune: {{}}\n"
    (problem,) = failures(files(training, mask=searched, noise=MATCHED))
    assert (problem.code, problem.file) == ("match-incomparable", "pipelines/methods/noise.yaml")
