"""Settings of single tasks and methods: what they come to, in which order, and where each is from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regft_core.settings.layers import Setting, settings, settings_lines
from regft_core.settings.project import Project
from tests.settings.conftest import PARAMS, TASK, Load, Mask, Noise, load_project


@pytest.fixture
def load_with(load: Load) -> Callable[..., Project]:
    """The project with blocks added to ``params.yaml``, keys added to its task, and other files replaced."""

    def project(blocks: str = "", task: str = "", **files: str) -> Project:
        changed = {f"pipelines/methods/{name}.yaml": text for name, text in files.items()}
        tasks = PARAMS.replace("[opinions]", "[opinions, films]")
        changed |= {"params.yaml": tasks + blocks, "pipelines/tasks/opinions.yaml": TASK + task}
        return load(changed)

    return project


def test_each_level_wins_over_the_weaker_ones(load_with: Callable[..., Project]) -> None:
    blocks = """\
task_settings:
  opinions:
    training: {batch_size: 4, weight_decay: 0.2, clip_norm: 3.0, epochs: 5}
    methods: {noise: {training: {clip_norm: 9.0}}}
  films: {model: {max_length: 64}}
method_settings:
  noise: {training: {schedule: cosine, clip_norm: 8.0}}
"""
    own = "regularisers: {noise: {}}\ntraining: {weight_decay: 0.3, schedule: constant, steps_factor: 3}\n"
    project = load_with(blocks, "training: {batch_size: 2, epsilon: 1.0e-6}\nmodel: {max_length: 256}\n", noise=own)
    training = project.method("noise", "opinions").training
    assert training.learning_rate == 2e-5  # shared
    assert training.epsilon == 1e-6  # the task's file
    assert training.batch_size == 4  # task_settings over the task's file
    assert training.weight_decay == 0.3  # the method's file over the task
    assert training.schedule == "cosine"  # method_settings over the method's file
    assert training.clip_norm == 9.0  # a method on a task over all
    assert training.epochs == 15  # a factor multiplies the task's length
    elsewhere = project.method("noise", "films").training
    assert (elsewhere.batch_size, elsewhere.epsilon, elsewhere.clip_norm, elsewhere.epochs) == (16, 1e-8, 8.0, 6)
    plain = project.method("vanilla", "opinions").training
    assert (plain.batch_size, plain.weight_decay, plain.clip_norm, plain.epochs) == (4, 0.2, 3.0, 5)
    assert project.methods["vanilla"].training == project.params.training
    assert [project.model(task).max_length for task in ("opinions", "films")] == [256, 64]
    assert project.method("noise", "films").encoder(project.model("films")).max_length == 64


def test_whoever_says_epochs_alone_means_epochs(load_with: Callable[..., Project]) -> None:
    blocks = """\
task_settings:
  opinions:
    training: {max_steps: 50, warmup_steps: 7}
    methods: {noise: {training: {epochs: 4, warmup_ratio: 0.5}}}
"""
    project = load_with(blocks, noise="regularisers: {noise: {}}\ntraining: {steps_factor: 3}\n")
    plain = project.method("vanilla", "opinions").training
    assert (plain.max_steps, plain.warmup_steps) == (50, 7)
    own = project.method("noise", "opinions").training
    assert (own.max_steps, own.epochs, own.warmup_steps, own.warmup_ratio) == (None, 4, None, 0.5)


def test_phases_and_options_of_a_method_on_a_task(load_with: Callable[..., Project]) -> None:
    blocks = """\
task_settings:
  opinions:
    methods:
      mask: {phases: {search: {training: {epochs: 7}}, finetune: {regularisers: {mask: {probability: 0.1}}}}}
      noise: {regularisers: {noise: {scale: 0.25}}, training: {epochs: 9}}
"""
    has = "phases: {one: {method: noise}, finetune: {training: {steps_factor: {match: noise}}}}\n"
    project = load_with(blocks, vanilla=has)  # what it has of another method is that of the task
    assert [phase.training.epochs for phase in project.method("vanilla", "opinions").phases] == [9, 18]
    mask = project.method("mask", "opinions")
    assert [phase.training.epochs for phase in mask.phases] == [7, 2]
    assert mask.finetune.regularisers[0][1].probability == 0.1
    assert project.method("noise", "opinions").finetune.regularisers[0][1].scale == 0.25
    assert project.method("noise", "films").finetune.regularisers[0][1].scale == 1e-5


def test_an_arm_is_listed_like_a_file(load: Load) -> None:
    params = PARAMS.replace("  - mask\n", "  - louder\n")
    params += (
        "method_settings:\n  louder: {base: noise, description: more of it, regularisers: {noise: {scale: 0.5}}}\n"
    )
    project = load({"params.yaml": params})
    louder = project.methods["louder"]
    assert louder.finetune.regularisers[0][1].scale == 0.5
    assert louder.finetune.regularisers[0][1].shape == "normal"
    assert louder.config.description == "more of it"
    assert louder.config.variant_of == ("noise",)
    assert project.methods["noise"].finetune.regularisers[0][1].scale == 1e-5


def test_an_arm_of_a_control_is_no_control(load: Load) -> None:
    """What the base's file says about itself and its relatives is not true of the arm."""
    base = "description: less\npaper: A (2020)\ncontrol_for: noise\ndiffers_in: [regularisers]\nregularisers: {}\n"
    params = PARAMS.replace("  - mask\n", "  - louder\n") + "method_settings:\n  louder: {base: quiet, "
    files = {"pipelines/methods/quiet.yaml": base}
    project = load({**files, "params.yaml": params + "regularisers: {noise: {scale: 0.5}}, training: {epochs: 3}}\n"})
    louder = project.methods["louder"].config
    assert (louder.control_for, louder.differs_in, louder.paper) == ((), (), "")
    assert louder.variant_of == ("quiet",)
    assert not [warning for warning in project.warnings if "differs_in" in warning or "quiet.yaml" in warning]


def test_equal_settings_change_nothing(load_with: Callable[..., Project]) -> None:
    project = load_with("task_settings: {opinions: {training: {epochs: 2, learning_rate: 2.0e-5}}}\n")
    assert project.on_task == {}
    assert project.shared("opinions") == project.params.training


def test_the_dry_run_says_where_values_came_from(load_with: Callable[..., Project]) -> None:
    blocks = """\
task_settings:
  opinions:
    training: {batch_size: 4}
    methods: {noise: {training: {batch_size: 8}}}
method_settings:
  noise: {regularisers: {noise: {scale: 0.5}}}
"""
    lines = settings_lines(load_with(blocks, "model: {max_length: 64}\n"))
    start = len(PARAMS.splitlines())
    assert lines == [
        f"  every method on opinions: model.max_length 64 (pipelines/tasks/opinions.yaml:7), "
        f"training.batch_size 4 (params.yaml:{start + 3})",
        f"  noise: regularisers.noise.scale 0.5 (params.yaml:{start + 6})",
        f"  noise on opinions: training.batch_size 8 (params.yaml:{start + 4})",
    ]
    assert settings_lines(load_with()) == []


# -------------------------------------------------------------------------------------------- where a setting is from


METHOD = """\
phases:
  search:
    regularisers: {noise: {scale: 1e-5, shape: uniform}}
    training: {epochs: 1, schedule: constant}
  finetune:
    start: search
    regularisers: {mask: {probability: 0.25}}
sources:
  phases.search.training: "paper: section 3"
  phases.search.training.epochs: "code: a/b train.sh:4"
  phases.finetune: "ours: a guess"
"""


class Sourced(Noise):
    sources = {"scale": "paper: table 1", "shape": "paper: table 2"}  # noqa: RUF012


class OwnMask(Mask):
    sources = {"probability": "paper: table 3", "taken": "ours: both are equal"}  # noqa: RUF012


def found(root: Path, registry: dict[str, Any]) -> dict[str, Setting]:
    method = load_project(root, registry).methods["mask"]
    return {one.path: one for one in settings(method, {"noise": Sourced, "mask": OwnMask})}


def test_the_nearest_word_counts(build: Any, registry: dict[str, Any]) -> None:
    own = found(build({"pipelines/methods/mask.yaml": METHOD}), registry)
    noise, mask = "phases.search.regularisers.noise.", "phases.finetune.regularisers.mask."
    assert {path: one.source for path, one in own.items()} == {
        noise + "scale": "paper: table 1",  # the default, written out
        noise + "shape": "",  # not the default, and nothing above says it
        "phases.search.training.epochs": "code: a/b train.sh:4",
        "phases.search.training.schedule": "paper: section 3",
        mask + "probability": "ours: a guess",
        mask + "taken": "ours: both are equal",  # left out
    }  # start: search is wiring
    assert [path for path, one in own.items() if not one.given] == [mask + "taken"]


def test_a_replaced_value_takes_its_source_along(build: Any, registry: dict[str, Any], files: dict[str, str]) -> None:
    layer = "method_settings:\n  mask:\n    phases:\n      search:\n        training: {epochs: 3}\n"
    method = METHOD.replace("epochs: 1", "max_steps: 5").replace("training.epochs", "training.max_steps")
    root = build({"pipelines/methods/mask.yaml": method, "params.yaml": files["params.yaml"] + layer})
    own = found(root, registry)
    assert own["phases.search.training.epochs"].source == "ours: params.yaml:20"
    assert "phases.search.training.max_steps" not in own
