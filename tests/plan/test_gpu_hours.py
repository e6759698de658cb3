"""GPU hours against the formula that is printed beside them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from regft_core.plan.gpu_hours import SPEED, WEIGHTS, gpu_hours


def test_hours_are_six_operations_per_weight_and_token_at_the_assumed_speed() -> None:
    training = SimpleNamespace(precision="bf16")
    model = SimpleNamespace(name="roberta-large", max_length=100, windows=1)
    project: Any = SimpleNamespace(
        params=SimpleNamespace(model=model, training=training), root=Path("/nowhere"), model=lambda task: model
    )
    # Examples of one run such that 3 runs take 5 hours.
    examples = 5 * 3600 * SPEED["bf16"] / (3 * 100 * 6 * WEIGHTS["large"])
    cell = SimpleNamespace(task="t")
    rows: Any = [
        SimpleNamespace(cell=cell, examples=examples, to_train=3),
        SimpleNamespace(cell=cell, examples=None, to_train=2),
    ]
    text = gpu_hours(project, rows)
    assert text.startswith("GPU hours: about 5 (assumed: 6 operations")
    assert text.endswith("; 2 runs of unknown length not counted")
    model.windows = 4
    assert gpu_hours(project, rows).startswith("GPU hours: about 20 (")
    assert "every example 4 windows of max_length tokens long" in gpu_hours(project, rows)
    assert "not known; 2 runs are of unknown length" in gpu_hours(project, rows[1:])
