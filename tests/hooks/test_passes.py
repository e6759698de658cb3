"""Named passes and randomness: restrictions that name no pass, and comparisons of passes that cannot differ."""

from __future__ import annotations

from typing import Any

import pytest

from regft_core.hooks import compose, ownership
from regft_core.schema import DropoutConfig
from tests.methods.harness import entries

HYPE = ("hype", {"scale": 1e-3})
STILL = DropoutConfig(hidden=0.0, attention=0.0)


def restricted(*passes: str) -> tuple[str, dict[str, Any]]:
    return "hype", {"scale": 1e-3, "passes": list(passes)}


@pytest.mark.parametrize(
    ("stack", "passes"),
    [
        ([], ("main",)),
        ([("r_drop", {})], ("main", "r_drop.second")),
        ([("tdt", {})], ("clean", "distilled", "negative")),
    ],
)
def test_a_regulariser_may_be_restricted_to_the_passes_of_its_phase(stack: list[Any], passes: tuple[str, ...]) -> None:
    assert not ownership.pass_problems(entries([*stack, restricted(*passes)]))


def test_a_pass_that_does_not_exist_is_refused_with_the_nearest() -> None:
    (problem,) = ownership.pass_problems(entries([("r_drop", {}), restricted("r_drop.secnd")]))
    assert problem == (
        "'hype' is to act in the pass 'r_drop.secnd', which this phase does not have; "
        "did you mean 'r_drop.second'? allowed: main, r_drop.second"
    )
    # An inactive regulariser adds no pass.
    off = ("r_drop", {"alpha": 0.0, "cross_entropy": "first"})
    assert ownership.pass_problems(entries([off, restricted("r_drop.second")]))


@pytest.mark.parametrize(
    "dropout", [DropoutConfig(), DropoutConfig(hidden=0.0), DropoutConfig(attention=0.0), DropoutConfig(hidden=0.1)]
)
def test_either_kind_of_dropout_tells_two_passes_apart(dropout: DropoutConfig) -> None:
    assert compose.randomness_problems(entries([("r_drop", {})]), dropout) == ([], [])


def test_two_passes_without_anything_random_are_refused_and_with_noise_only_marked() -> None:
    refused, marks = compose.randomness_problems(entries([("r_drop", {})]), STILL)
    assert not marks
    assert "'r_drop' compares two passes, but without dropout both are the same" in refused[0]
    assert "dropout: {attention: 0.1}" in refused[0]
    assert compose.randomness_problems(entries([("r_drop", {}), HYPE]), STILL) == (
        [],
        ["'r_drop' runs without dropout: its passes differ by 'hype' only"],
    )
    silent = ("hype", {"scale": 0.0})
    assert compose.randomness_problems(entries([("r_drop", {}), silent]), STILL)[0] == refused
    assert compose.randomness_problems(entries([HYPE]), STILL) == ([], [])
