"""Sentences claim what the intervals show."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from regft_core.reporting.words import overall


def text(built: Any, method: str, block: str = "sst2-300") -> str:
    (found,) = [f for f in built.report.findings if (f.method, f.block) == (method, block)]
    return " ".join(found.sentences)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], None),
        (["better", "better"], "better"),
        (["better", "no evidence"], "no evidence"),
        (["better", "worse"], "worse"),
        (["no evidence"], "no evidence"),
    ],
)
def test_better_means_better_than_every_control(words: list[str], expected: str | None) -> None:
    comparisons: Any = [SimpleNamespace(verdict=SimpleNamespace(word=word)) for word in words]
    assert overall(comparisons) == expected


def test_a_gain_that_the_control_has_too_is_not_credited(built: Any) -> None:
    said = text(built, "hype_n")
    assert said.startswith(
        "On sst2 at 300 rows, there is no evidence that hype_n differs from its control vanilla_no_dropout"
    )
    assert "better than the reference vanilla" in said
    assert "cannot be credited" in said
    assert "on contrast" in said


def test_every_sentence_starts_as_one(make: Any, synthetic: Any) -> None:
    arms = {name: synthetic.Arm(control_for="pats" if name != "pats" else None) for name in ("pats", "adamax", "noise")}
    said = text(make(arms, {"sst2": synthetic.Task(n=60)}, seeds=[0, 1, 2, 3, 4, 5]), "pats")
    assert "On sst2 at 300 rows, there is no evidence" in said
    assert ". There is no evidence that pats differs from its control" in said


def test_a_gain_over_the_control(built: Any) -> None:
    said = text(built, "weight_mixup")
    assert "weight_mixup is better than its control weight_mixup_soup (+" in said
    assert "5 seeds" in said
    assert "fewer than six seeds: an indication only" in said
    assert "Of 6 seeds, 1 run failed." in said
    assert "cannot be credited" not in said


def test_without_control_the_cause_stays_open(built: Any) -> None:
    said = text(built, "r_drop")
    assert "r_drop is worse than the reference vanilla" in said
    assert "no control in this grid" in said
    assert "declares 2.0 times the compute of vanilla" in said


def test_controls_and_the_reference_are_not_judged(built: Any) -> None:
    assert {f.method for f in built.report.findings} == {"hype_n", "weight_mixup", "r_drop"}


def test_one_seed_allows_no_conclusion(make: Any, synthetic: Any) -> None:
    arms = {"vanilla": synthetic.Arm(0.5), "huge": synthetic.Arm(0.95)}
    built = make(arms, {"sst2": synthetic.Task(n=60)}, seeds=[4])
    assert "no conclusion" in text(built, "huge")
    assert {f.word for f in built.report.findings} == {"no evidence"}
    assert any("1 seed: with fewer than 6" in warning for warning in built.report.warnings)


def test_nothing_is_said_of_a_method_that_never_finished(make: Any, synthetic: Any) -> None:
    arms = {"vanilla": synthetic.Arm(), "broken": synthetic.Arm(failed={0: "NaN", 1: "NaN"})}
    built = make(arms, {"sst2": synthetic.Task(n=60)}, seeds=[0, 1])
    assert "no seed of broken ran to the end" in text(built, "broken")
    assert built.report.metrics["sst2-300"]["broken"]["failed"] == 2
    assert built.report.metrics["sst2-300"]["broken"]["dev"]["accuracy"] == {
        "mean": None, "low": None, "high": None, "n": 0,
    }  # fmt: skip
