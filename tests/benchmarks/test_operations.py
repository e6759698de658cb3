"""How many operations a step of weight mixup starts: those of its passes, and few more than plain passes have."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Operations beyond plain passes that a step may have. The mixes are in 9 stacks at the size of bert-large, which have
#: 27 operations together in a pass, and 100 more where the attention has a gradient (3 passes of a search step).
BEYOND = {
    "weight_mixup (search)": 300,
    "weight_mixup": 50,
    "weight_mixup_released (search)": 400,
    "weight_mixup_released": 300,
}


@pytest.fixture(scope="module")
def counted() -> Iterator[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        operations = importlib.import_module("operations")
        yield {count.name: count for count in operations.counts(["weight_mixup", "weight_mixup_released"])}


@pytest.mark.parametrize("name", BEYOND)
def test_a_step_starts_few_operations_beyond_those_of_its_passes(counted: dict[str, Any], name: str) -> None:
    """One by one it was 19,700 in a search step (five plain passes: 9,890), 2,410 in a fine-tuning step."""
    plain, own = counted["vanilla"], counted[name]
    assert own.passes == (5 if "search" in name else 1)
    assert 1500 < plain.total < 2500  # 24 layers
    assert own.total - own.passes * plain.total < BEYOND[name], own.names.most_common(30)


def test_it_counts_and_leaves_no_trace(counted: dict[str, Any]) -> None:
    from regft_core.models import mixing_together
    from regft_core.training.trainee import Trainee

    assert counted["vanilla"].names["addmm"] > 24
    assert mixing_together.STACK == 1 << 25
    assert Trainee.__post_init__.__qualname__ == "Trainee.__post_init__"
