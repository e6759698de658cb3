"""Named passes and randomness, and which runs have an export: asked of regularisers alone."""

from __future__ import annotations

from typing import Any

import pytest

from regft_core.hooks import compose, ownership
from regft_core.hooks.phase_entries import in_the_way_of_export
from regft_core.hooks.registry import discover
from regft_core.schema import DropoutConfig
from tests.methods.harness import entries

R_DROP: tuple[str, dict[str, Any]] = ("r_drop", {})
HYPE: tuple[str, dict[str, Any]] = ("hype", {"scale": 1e-3})
OFF = ("r_drop", {"alpha": 0.0, "cross_entropy": "first"})
STILL = DropoutConfig(hidden=0.0, attention=0.0)


@pytest.mark.parametrize(
    ("stack", "passes", "nearest"),
    [
        ([], ("main",), ""),
        ([R_DROP], ("main", "r_drop.second"), ""),
        ([("tdt", {})], ("clean", "distilled", "negative"), ""),
        ([R_DROP], ("r_drop.secnd",), "did you mean 'r_drop.second'?"),
        ([OFF], ("r_drop.second",), "allowed: main"),  # an inactive regulariser adds no pass
    ],
)
def test_a_regulariser_is_restricted_to_passes_of_its_phase(stack: list[Any], passes: Any, nearest: str) -> None:
    problems = ownership.pass_problems(entries([*stack, ("hype", {"scale": 1e-3, "passes": list(passes)})]))
    assert [nearest in problem for problem in problems] == ([True] if nearest else [])


@pytest.mark.parametrize(
    ("listed", "dropout", "refused", "marked"),
    [
        *(([R_DROP], dropout, 0, 0) for dropout in (DropoutConfig(), DropoutConfig(hidden=0.0))),
        ([R_DROP], DropoutConfig(attention=0.0), 0, 0),
        ([R_DROP], STILL, 1, 0),
        ([R_DROP, ("hype", {"scale": 0.0})], STILL, 1, 0),
        ([R_DROP, HYPE], STILL, 0, 1),  # its passes differ by that noise only
        ([HYPE], STILL, 0, 0),
    ],
)
def test_two_passes_must_differ_by_something(listed: Any, dropout: DropoutConfig, refused: int, marked: int) -> None:
    problems, marks = compose.randomness_problems(entries(listed), dropout)
    assert (len(problems), len(marks)) == (refused, marked)
    assert all("'r_drop'" in said for said in (*problems, *marks))


@pytest.mark.parametrize("name", ["prefix_tuning", "prompt_tuning"])
def test_what_plain_weights_and_kept_tensors_cannot_hold(name: str) -> None:
    registry = discover()
    for can in ("hype", "lora", "tfidf_logistic", "constant_answer", "stacking", "zero_shot_similarity"):
        assert in_the_way_of_export(registry, [(can, registry[can].Config())]) is None
    assert in_the_way_of_export(registry, [(name, registry[name].Config())]) == name
