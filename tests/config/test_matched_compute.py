"""``steps_factor: {match: method}``: what another method costs, fits without steps included."""

from __future__ import annotations

from typing import Any

import pytest

from regft_core.config.check_methods import method_factor
from regft_core.config.load import load_project
from regft_core.config.method import Cost
from tests.config.conftest import NOISE, PARAMS, Plain

MATCHED = "regularisers: {}\ntraining: {steps_factor: {match: mask}}\n"
FITTED = "phases:\n  search: {regularisers: {split: {}}, training: {epochs: 0}}\n  finetune: {}\n"


class Split(Plain):
    """Fits something in three passes forward and three back."""

    name = "split"

    @classmethod
    def fit_cost(cls, options: Any) -> Cost:
        return Cost(3, 3)


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


def test_what_is_fitted_for_nothing_changes_no_factor(build: Any, registry: dict[str, Any]) -> None:
    project = load_project(build(files("epochs: 2", mask=FITTED, noise=MATCHED)), registry)
    assert project.methods["noise"].training.epochs == 2


def test_counted_steps_cannot_match_passes_over_rows(
    build: Any, failures: Any, registry: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many of them one pass over the rows is worth differs from size to size."""
    monkeypatch.setitem(registry, "split", Split)
    changes = files("epochs: 2\n  max_steps: 50", mask=FITTED, noise=MATCHED)
    (problem,) = failures(changes)
    assert problem.file == "pipelines/methods/noise.yaml"
    assert "cannot match 'mask' under max_steps" in str(problem)
    assert "give the factor as a number, or count epochs" in str(problem)
    project = load_project(build(changes | {"pipelines/methods/noise.yaml": NOISE}), registry)
    with pytest.raises(ValueError, match="as much as there are rows"):
        method_factor(project.methods["mask"], project.params.training, registry)
