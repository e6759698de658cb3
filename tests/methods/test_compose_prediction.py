"""Composition of regularisers that answer in place of the model."""

from __future__ import annotations

from typing import Any

from regft_core.hooks import ownership
from regft_core.schema.method import Phase
from regft_core.schema.methods import DataConfig, RepeatConfig
from tests.methods.harness import TRAINING, entries


def test_what_answers_in_place_of_the_model_stands_alone() -> None:
    def problems(*listed: tuple[str, dict[str, Any]], **changes: Any) -> list[str]:
        protocol = TRAINING.model_copy(update={"epochs": 0})
        given = {"name": "finetune", "repeat": None, "training": protocol} | changes
        phase = Phase(data=DataConfig(), start="checkpoint", seed=None, regularisers=(), explicit={}, **given)
        return ownership.prediction_problems(entries(listed), phase)

    bag = ("tfidf_logistic", {})
    assert problems(bag) == []
    assert problems(("hype", {})) == []
    assert problems(bag, ("hype", {"scale": 0.0, "hidden_dropout": "keep"})) == []
    [found] = problems(bag, ("hype", {}))
    assert "nobody would see what 'hype' does to it" in found
    [found] = problems(bag, ("zero_shot_similarity", {}))
    assert "both own the prediction" in found
    [found] = problems(bag, repeat=RepeatConfig(times=2))
    assert "remove 'repeat'" in found
    [found] = problems(bag, training=TRAINING)
    assert "epochs: 0" in found
    [found] = problems(bag, name="first")
    assert "move it to the phase 'finetune'" in found
