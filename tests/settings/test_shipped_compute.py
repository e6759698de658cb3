"""The shipped arms that put another method's compute into plain steps do so under every shared protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from regft_core.hooks.registry import discover
from regft_core.runs.project import open_project
from regft_core.schema.method import Method
from regft_core.settings.cost import optimiser_steps
from tests.errors import raises_code

ROOT = Path(__file__).resolve().parents[2]
#: Divisible by every batch size here, also 80% of them.
ROWS = 320
SHARED: list[dict[str, Any]] = [{"epochs": 4}, {"epochs": 3, "batch_size": 8}, {"max_steps": 50}]


def listed(training: dict[str, Any], *methods: str) -> dict[str, Method]:
    """Shipped methods under a shared protocol, by name."""
    params = {
        "model": {"name": "minilm"},
        "grid": {"tasks": ["cue_pair"], "sizes": [ROWS], "seeds": [0]},
        "methods": ["vanilla", *methods],
        "subsample": {},
        "training": training,
        "report": {},
    }
    project = open_project(ROOT, params_text=yaml.safe_dump(params, sort_keys=False), check_composition=False)
    return dict(project.methods)


def passes(method: Method) -> float:
    """Steps of all phases and members in which a pass forward and back counts one; all batches are of one size."""
    total = 0.0
    for phase in method.phases:
        steps = optimiser_steps(phase.training, int(ROWS * phase.data.split))
        assert steps is not None
        total += steps * phase.members * phase.ratio(discover())
    return total


@pytest.mark.parametrize("training", SHARED, ids=str)
@pytest.mark.parametrize(
    ("control", "of"),
    [
        ("uniform_soup_matched_compute", "uniform_soup"),
        ("uniform_soup_matched_compute", "seed_soup"),
        ("greedy_soup_matched_compute", "greedy_soup"),
        ("greedy_soup_released_matched_compute", "greedy_soup_released"),
        ("tdt_matched_compute", "tdt"),
        ("tdt_without_ranking_matched_compute", "tdt_without_ranking"),
    ],
)
def test_a_compute_control_takes_as_many_plain_passes(control: str, of: str, training: dict[str, Any]) -> None:
    found = listed(training, control, of)
    assert passes(found[control]) == pytest.approx(passes(found[of]))


@pytest.mark.parametrize(
    ("control", "of"),
    [
        ("weight_mixup_matched_compute", "weight_mixup"),
        ("weight_mixup_k5_matched_compute", "weight_mixup_k5"),
        ("weight_mixup_first_order_matched_compute", "weight_mixup_first_order"),
        ("weight_mixup_reused_matched_compute", "weight_mixup_reused"),
        ("weight_mixup_joint_matched_compute", "weight_mixup_joint"),
    ],
)
@pytest.mark.parametrize("training", SHARED[:2], ids=str)
def test_the_compute_of_searches_is_matched_to_half_an_epoch(control: str, of: str, training: dict[str, Any]) -> None:
    found = listed(training, control, of)
    epoch = passes(found["vanilla"]) / training["epochs"]
    assert passes(found[control]) == pytest.approx(passes(found[of]), abs=epoch / 2)


def test_searches_that_count_epochs_are_not_matched_in_steps() -> None:
    from regft_core.errors import ConfigError

    with raises_code(ConfigError, "match-incomparable", "weight_mixup", "'search' counts epochs"):
        listed({"max_steps": 50}, "weight_mixup_matched_compute")
