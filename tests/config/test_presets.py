"""What the project ships is valid: its own params.yaml, every method and task (presets: ``tests/presets``)."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from regft_core.config.find_controls import find_controls
from regft_core.config.project import Project
from regft_core.hooks import compose
from regft_core.hooks.registry import discover
from regft_core.run.project import open_project

ROOT = Path(__file__).resolve().parents[2]


def test_the_shipped_params_are_valid() -> None:
    assert open_project(ROOT).params.model.name == "minilm"


#: For tasks that ask how alike two texts are; refused on others.
FOR_VALUES_ALONE = {"zero_shot_similarity"}


def listing(methods: list[str], tasks: list[str]) -> Project:
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["methods"], params["grid"]["tasks"] = methods, tasks
    if params["report"]["reference"] not in methods:
        params["report"]["reference"] = methods[0]
    return open_project(ROOT, params_text=yaml.safe_dump(params, sort_keys=False))


def test_methods_for_values_alone_can_be_listed() -> None:
    assert listing(["vanilla", "majority", *FOR_VALUES_ALONE], ["cue_regression"])


def test_every_shipped_method_can_be_listed() -> None:
    """All methods at once, on a task of each kind that needs no hub; refusals must be reasons, not crashes."""
    every = {path.stem for path in (ROOT / "pipelines" / "methods").glob("*.yaml")}
    project = listing(sorted(every - FOR_VALUES_ALONE), ["cue_sentence", "cue_pair"])
    assert len(project.methods) > 30
    without = [w for w in project.warnings if "without its control" in w]
    assert not without
    assert not find_controls(ROOT, project.methods).without


@pytest.mark.parametrize(
    ("arm", "control", "ingredient"),
    [
        ("dps_released", "dps_released_random", "selection"),
        ("smart_released", "smart_released_random", "direction"),
        ("cutoff_token_released", "cutoff_released_no_cut", "ratio"),
        ("rec_adam_random", "rec_adam_random_no_pull", "strength"),
    ],
)
def test_a_released_arm_has_a_control_that_differs_in_its_ingredient_alone(
    arm: str, control: str, ingredient: str
) -> None:
    """What the release also changes (dropout, size of noise, start) is the same in both."""
    project, registry = listing(["vanilla", arm, control], ["cue_sentence"]), discover()
    first, second = (project.methods[name] for name in (arm, control))
    assert second.config.control_for == (arm,)
    stacks = [compose.entries(registry, one.finetune.regularisers) for one in (first, second)]
    settled = [
        compose.resolve_training(stack, one.finetune, project.params.training)
        for stack, one in zip(stacks, (first, second), strict=True)
    ]
    assert settled[0] == settled[1]
    ((name, options),), ((other, others),) = first.finetune.regularisers, second.finetune.regularisers
    assert name == other
    differing = {key for key, value in vars(options).items() if value != getattr(others, key)}
    assert differing == {ingredient}
