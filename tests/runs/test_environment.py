"""What is recorded of where a run was computed, and what execution on a GPU may change."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regft_core.hooks import compose
from regft_core.runs.environment import environment, set_up
from regft_core.runs.training_run import make_deterministic
from regft_core.schema.execution import ExecutionConfig
from regft_core.schema.training import TrainingConfig
from tests.methods.harness import entries


def test_what_changes_digits_is_named_where_it_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch says, after it was asked for what the configuration wants."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    plain = {"device": "cuda", "name": "a GPU", "threads": torch.get_num_threads(), "deterministic": True}
    try:
        assert set_up("cuda:0", ExecutionConfig(threads=7)) == plain
        assert set_up("cuda:0", ExecutionConfig(tf32=True)) == plain | {"tf32": True}
        assert environment("cuda:0") == plain | {"tf32": True}  # it is on, whoever asked for it
        assert set_up("cuda:0", ExecutionConfig(cuda_graphs=True)) == plain | {"cuda_graphs": True}
        assert set_up("cuda:0", ExecutionConfig(deterministic=False)) == plain | {"deterministic": False}
    finally:
        make_deterministic("cuda:0", False)
    monkeypatch.setattr("regft_core.runs.environment.fast_products", lambda: False)
    assert set(environment("cpu")) == {"device", "name", "threads", "deterministic"}
    monkeypatch.setattr("regft_core.runs.environment.fast_products", lambda: True)
    assert environment("cpu")["products"] == "oneDNN"


def test_tf32_is_refused_or_marked_where_it_erases_a_method() -> None:
    training = TrainingConfig()
    allowed = training.model_copy(update={"allow_precision_loss": True})

    def counts(name: str, options: dict[str, Any], config: TrainingConfig = training) -> tuple[int, int]:
        refused, marked = compose.precision_problems(entries([(name, options)]), config, tf32=True)
        return len(refused), len(marked)

    assert counts("hype", {}) == (1, 0)  # changes of 1e-5
    assert counts("hype", {}, allowed) == (0, 1)
    assert counts("hype", {"scale": 0.1}) == (0, 0)
    assert counts("weight_mixup", {})[0] == 1  # finite differences
