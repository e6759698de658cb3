"""What is recorded of where a run was computed, and what execution on a GPU may change."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from regft_core.grid.failures import torch_threads
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


def test_the_threads_are_those_that_torch_has() -> None:
    for threads in (1, 2):
        with torch_threads(threads):
            assert set_up("cpu", ExecutionConfig(threads=3))["threads"] == threads


def test_matrix_products_of_fewer_digits_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    assert environment("cpu")["matrix_precision"] == "medium"


@pytest.mark.parametrize("name", ["tf32", "cuda_graphs"])
def test_they_are_refused_on_a_device_that_has_neither(name: str) -> None:
    with pytest.raises(ValidationError, match=f"{name} is for CUDA devices, but device is cpu; remove it, or set"):
        ExecutionConfig(device="cpu", **{name: True})


def test_tf32_is_refused_or_marked_where_it_erases_a_method() -> None:
    training = TrainingConfig()
    hype = entries([("hype", {})])
    assert compose.precision_problems(hype, training) == ([], [])
    (refused,), _ = compose.precision_problems(hype, training, tf32=True)
    assert "changes of 1e-05, which tf32 rounds away (spacing 2.4e-04 near 1)" in refused
    assert "use execution.tf32: false, or set allow_precision_loss: true" in refused
    allowed = training.model_copy(update={"allow_precision_loss": True})
    assert compose.precision_problems(hype, allowed, tf32=True)[0] == []
    assert "tf32 rounds away" in compose.precision_problems(hype, allowed, tf32=True)[1][0]
    assert compose.precision_problems(entries([("hype", {"scale": 0.1})]), training, tf32=True) == ([], [])
    (searched,), _ = compose.precision_problems(entries([("weight_mixup", {})]), training, tf32=True)
    assert searched == (
        "'weight_mixup' cannot run in tf32: finite differences of the search lose their digits; "
        "use execution.tf32: false"
    )
