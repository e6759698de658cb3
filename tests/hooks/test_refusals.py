"""Compositions that are refused: what a phase takes of earlier ones, idle regularisers, several that answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from regft_core.hooks import compose, refusals
from regft_core.hooks.registry import discover
from regft_core.schema.methods import RepeatConfig
from tests.methods.cases import task
from tests.methods.chain import method, phase
from tests.methods.harness import NO_STEPS, TRAINING, Listed, entries

FISHER = "first: {training: {epochs: 0}, regularisers: {fisher: {share: 0.3}}}"
SMOOTHED = "first: {regularisers: {label_smoothing: {smoothing: 0.1}}}"
DRAWN = "first: {regularisers: {re_init: {layers: 1}}}, second: {}"
TAKES = "regularisers: {child_tuning: {mask: first}}"


@pytest.mark.parametrize(
    ("earlier", "last", "problem"),
    [
        (FISHER, TAKES, ""),
        (SMOOTHED, TAKES, "'child_tuning' takes what the phase 'first' has learned, and no regulariser there hands"),
        (SMOOTHED.replace("{r", "{training: {epochs: 0}, r"), "start: previous", "'label_smoothing' acts in steps"),
        (FISHER.replace("{fisher", "{label_smoothing: {smoothing: 0.1}, fisher"), TAKES, ""),  # it measures that loss
        # Nothing pulls drawn layers back to the checkpoint.
        (DRAWN, "start: previous, regularisers: {l2_sp: {toward: checkpoint}}", "'re_init' in the phase 'first' drew"),
        (DRAWN, "start: previous, regularisers: {l2_sp: {toward: start}}", ""),
        (DRAWN, "start: checkpoint, regularisers: {l2_sp: {toward: checkpoint}}", ""),
        # Labels that are hidden are all 0.
        (
            "first: {data: {labels: false}}",
            "start: previous",
            "'first': data.labels: false hides the labels it trains on",
        ),
        ("first: {data: {labels: false}, regularisers: {masked_lm: {}}}", "start: previous", ""),
        ("first: {data: {labels: false}, training: {epochs: 0}}", "start: previous", ""),
    ],
)
def test_a_phase_fits_those_before_it(earlier: str, last: str, problem: str) -> None:
    given = method(earlier + last, f"phases: {{{earlier}, finetune: {{{last}}}}}")
    problems = compose.check_method(discover(), given, TRAINING, task("classification"))
    assert [problem in said for said in problems] == ([True] if problem else [])


HYPE: Listed = ("hype", {})
BAG: Listed = ("tfidf_logistic", {})


@pytest.mark.parametrize(
    ("listed", "changes", "problem"),
    [
        ([BAG], {}, ""),
        ([HYPE], {}, ""),
        ([BAG, ("hype", {"scale": 0.0, "hidden_dropout": "keep"})], {}, ""),
        ([BAG, HYPE], {}, "'hype'"),
        ([BAG, ("zero_shot_similarity", {})], {}, "both own the prediction"),
        ([BAG], {"repeat": RepeatConfig(times=2)}, "'repeat'"),
        ([BAG], {"training": TRAINING}, "epochs: 0"),
        ([BAG], {"name": "first"}, "'finetune'"),
    ],
)
def test_what_answers_in_place_of_the_model_stands_alone(listed: Any, changes: dict[str, Any], problem: str) -> None:
    answering = replace(phase(), **{"training": NO_STEPS, **changes})
    problems = refusals.prediction_problems(entries(listed), answering)
    assert [problem in said for said in problems] == [True] if problem else problems == []
