"""Controls of weight mixup train as long as the method's own compute lasts, also where a table counts steps."""

from __future__ import annotations

import pytest

from regft_core.hooks.registry import discover
from regft_core.settings.cost import optimiser_steps, phase_cost, planned_rows
from regft_core.settings.papers.public_sizes import TRAINING_ROWS
from regft_core.settings.project import Project
from tests.presets.miniature import names
from tests.small_project import preset


def cost(project: Project, name: str, task: str, rows: int) -> float:
    """Plain steps that a run of a method on ``rows`` rows is worth."""
    method = project.method(name, task)
    counts = [planned_rows(project, task, phase, rows) for phase in method.phases]
    found = [phase_cost(*phase, discover(), method.training) for phase in zip(method.phases, counts, strict=True)]
    return sum(cost for cost in found if cost is not None)


@pytest.mark.parametrize("name", [name for name in names() if name.startswith("weight_mixup")])
def test_the_matched_control_costs_what_the_method_costs(name: str) -> None:
    project = preset(name)
    pairs = {
        control: control.removesuffix("_matched_compute").replace("vanilla_matched", "weight_mixup_released")
        for control in project.methods
        if "_matched" in control
    }
    for control, method in pairs.items():
        for task in project.params.grid.tasks:
            plain, rows = project.method(control, task), TRAINING_ROWS["nyu-mll/glue", task]
            assert plain.training.batch_size == project.method(method, task).training.batch_size
            wanted = cost(project, method, task, rows)
            assert optimiser_steps(plain.training, rows) == pytest.approx(wanted, rel=0.03), (control, task)


def test_the_control_is_there_wherever_the_method_is_compared() -> None:
    for name in names():
        if name.startswith("weight_mixup") and name != "weight_mixup_table5":  # which compares costs, not scores
            methods = preset(name).params.methods
            assert {"vanilla_matched", "weight_mixup_released_matched_compute"} & set(methods), name
