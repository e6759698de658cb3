"""Warnings about methods that are valid and hardly meant."""

from __future__ import annotations

from typing import Any

import pytest

from regft_core.settings.read_project import load_project


@pytest.fixture
def odd(files: dict[str, str], build: Any, registry: dict[str, Any]) -> Any:
    """The warnings of a project whose ``params.yaml`` has more lines."""

    def load(more: str, old: str = "", new: str = "") -> list[str]:
        params = files["params.yaml"]
        assert old in params
        root = build({"params.yaml": params.replace(old, new) + more})
        return [text for text in load_project(root, registry).warnings if "params.yaml: " in text]

    return load


def test_an_ordinary_project_has_no_such_warning(odd: Any) -> None:
    assert odd("") == []


def test_a_noise_scale_far_above_its_default_is_said_once(odd: Any) -> None:
    (text,) = odd("method_settings: {noise: {regularisers: {noise: {scale: 1.0e+29}}}}\n")
    assert text == "params.yaml: noise.scale is 1e+29 (noise), and 1e-05 is usual; lower it unless that is meant"
    assert odd("method_settings: {noise: {regularisers: {noise: {scale: 0.05}}}}\n") == []


def test_a_learning_rate_of_a_half_is_said_once_with_the_methods(odd: Any) -> None:
    (text,) = odd("task_settings: {opinions: {training: {learning_rate: 0.5}}}\n")
    assert "training.learning_rate is 0.5 (vanilla, noise, mask): weights will diverge" in text


def test_a_method_that_changes_nothing_is_plain_under_another_name(odd: Any) -> None:
    again = "method_settings: {again: {base: vanilla}, slow: {base: vanilla, training: {learning_rate: 1.0e-6}}}\n"
    (text,) = odd(again, "  - mask\n", "  - mask\n  - again\n  - slow\n")
    assert "method 'again' has no regulariser and no setting of its own" in text
