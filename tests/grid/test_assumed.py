"""GPU hours against the formula that is printed beside them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from regft_core.grid.assumed import SPEED, WEIGHTS
from regft_core.grid.time import gpu_line
from regft_core.settings.cost import PlanRow
from regft_core.settings.grid import Cell


def test_hours_are_six_operations_per_weight_and_token_at_the_assumed_speed() -> None:
    training = SimpleNamespace(precision="bf16", batch_size=4, epochs=1, judges_epochs=False)
    model = SimpleNamespace(name="roberta-large", max_length=100, windows=1)
    execution = SimpleNamespace(executor="serial")
    project: Any = SimpleNamespace(
        params=SimpleNamespace(model=model, training=training, execution=execution),
        root=Path("/nowhere"),
        model=lambda task: model,
        shared=lambda task: training,
        method=lambda method, task: SimpleNamespace(training=training),
    )
    # Plain steps of one run such that 3 runs take 5 hours.
    steps = 5 * 3600 * SPEED["bf16"] / (3 * 100 * 6 * WEIGHTS["large"]) / training.batch_size
    rows = [PlanRow(Cell("m", "t", 10), 3, 0, 10, 1, steps, 0.0), PlanRow(Cell("m", "t", "full"), 2, 0, *[None] * 4)]
    text = gpu_line(project, rows)
    assert text.startswith(
        "GPU hours: not known for 2 runs of unknown length; for the others about 5 (assumed: 6 operations"
    )
    model.windows = 4
    assert gpu_line(project, rows).startswith(
        "GPU hours: not known for 2 runs of unknown length; for the others about 20 ("
    )
    assert "every example 4 windows of max_length tokens long" in gpu_line(project, rows)
    assert "not known; 2 runs are of unknown length" in gpu_line(project, rows[1:])
