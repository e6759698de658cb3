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
SOUPS = ("uniform_soup", "greedy_soup", "greedy_soup_released", "tdt", "tdt_without_ranking")
SEARCHES = ("", "_k5", "_first_order", "_reused", "_joint")
MATCHED = "_matched_compute"


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
def test_a_compute_control_takes_as_many_plain_passes(training: dict[str, Any]) -> None:
    methods = listed(training, "seed_soup", *SOUPS, *(name + MATCHED for name in SOUPS))
    for control, of in [("uniform_soup", "seed_soup"), *zip(SOUPS, SOUPS)]:
        assert passes(methods[control + MATCHED]) == pytest.approx(passes(methods[of])), control


@pytest.mark.parametrize("training", SHARED[:2], ids=str)
def test_the_compute_of_searches_is_matched_to_half_an_epoch(training: dict[str, Any]) -> None:
    names = [f"weight_mixup{end}" for end in SEARCHES]
    methods = listed(training, *names, *(name + MATCHED for name in names))
    epoch = passes(methods["vanilla"]) / training["epochs"]
    for name in names:
        assert passes(methods[name + MATCHED]) == pytest.approx(passes(methods[name]), abs=epoch / 2), name


def test_searches_that_count_epochs_are_not_matched_in_steps() -> None:
    from regft_core.errors import ConfigError

    with raises_code(ConfigError, "match-incomparable", "weight_mixup", "'search' counts epochs"):
        listed({"max_steps": 50}, "weight_mixup_matched_compute")
