"""Which runs have an export, asked of their regularisers alone."""

from __future__ import annotations

import pytest

from regft_core.hooks.phase_entries import in_the_way_of_export
from regft_core.hooks.registry import discover


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("hype", None),
        ("lora", None),
        ("tfidf_logistic", None),
        ("constant_answer", None),
        ("zero_shot_similarity", "zero_shot_similarity"),
        ("prefix_tuning", "prefix_tuning"),
        ("prompt_tuning", "prompt_tuning"),
    ],
)
def test_what_plain_weights_and_kept_tensors_can_hold(name: str, found: str | None) -> None:
    registry = discover()
    options = registry[name].Config()
    assert in_the_way_of_export(registry, [(name, options)]) == found
