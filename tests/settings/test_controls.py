"""Controls: those that a method declares, what they inherit, what is said of them, how they are tuned and listed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from regft_core.hooks.description import Flip
from regft_core.settings.controls import missing, warnings_of, with_controls
from regft_core.settings.project import trials_of
from regft_core.settings.read_project import load_project
from tests.settings.conftest import MASK, PARAMS, VANILLA, Build, Load, Noise
from tests.settings.conftest import NOISE as METHOD

NOISE = "pipelines/methods/noise.yaml"
#: What ``Flipped`` flips is flipped here.
FLAT = "regularisers:\n  noise: {scale: 2, shape: uniform}\n"


class Flipped(Noise):
    controls: ClassVar[dict[str, Flip]] = {
        "flat": Flip({"shape": "uniform"}, "another law"),
        "still": Flip({"scale": 0.0}, "no noise", when=lambda options: options.scale < 1),
    }


@pytest.fixture
def load(build: Build, registry: dict[str, Any]) -> Load:
    return lambda changes: load_project(build(changes), {**registry, "noise": Flipped})


def listing(*names: str, more: str = "") -> str:
    lines = "".join(f"  - {name}\n" for name in names)
    return PARAMS.replace("  - noise  # plain\n", f"  - noise  # plain\n{lines}") + more


def differences(project: Any) -> dict[str, str]:
    return {one.name: one.differs_by for one in project.controls if one.control_for == "noise"}


def test_a_control_needs_no_file(load: Load) -> None:
    project = load({"params.yaml": listing("noise_flat")})
    control, method = project.methods["noise_flat"], project.methods["noise"]
    assert dict(control.finetune.regularisers)["noise"].shape == "uniform"  # type: ignore[attr-defined]
    assert (control.of, control.config.control_for) == ("noise", ("noise",))
    assert differences(project)["noise_flat"] == "noise.shape is uniform instead of normal (another law)"
    assert control.training == method.training
    assert missing(project.controls) == ["noise_still"]


def test_what_is_flipped_already_has_plain_fine_tuning_alone(load: Load) -> None:
    project = load({NOISE: FLAT})
    found = [(one.control_for, one.name, one.zero) for one in project.controls]
    assert found == [("noise", "vanilla", True), ("mask", "vanilla", True)]


def test_settings_of_the_arm_reach_its_control(load: Load) -> None:
    more = """\
method_settings:
  noise: {regularisers: {noise: {scale: 0.5}}, training: {epochs: 7}}
task_settings:
  opinions: {methods: {noise: {training: {epochs: 9}}}}
"""
    project = load({"params.yaml": listing("noise_flat", more=more)})
    control = project.methods["noise_flat"]
    assert dict(control.finetune.regularisers)["noise"].scale == 0.5  # type: ignore[attr-defined]
    assert control.training.epochs == 7
    assert project.method("noise_flat", "opinions").training.epochs == 9


def test_own_settings_of_a_control_are_laid_over_and_warned_of(load: Load) -> None:
    more = "method_settings:\n  noise_flat: {training: {epochs: 11}}\n"
    project = load({"params.yaml": listing("noise_flat", more=more)})
    assert project.methods["noise_flat"].training.epochs == 11
    [warning] = [text for text in project.warnings if "noise_flat" in text and "in more than" in text]
    assert "training.epochs" in warning
    assert "training.epochs is 11 instead of" in differences(project)["noise_flat"]


TUNED = """\
tuning:
  selection: dev_as_published
  values: {training.learning_rate: [1.0e-5, 2.0e-5]}
  methods:
    noise: {regularisers.noise.shape: [normal, uniform], regularisers.noise.scale: [0.1, 0.2, 0.3]}
"""


def test_a_control_is_tuned_as_its_arm_but_for_what_it_flips(load: Load) -> None:
    project = load({"params.yaml": listing("noise_flat", more=TUNED)})
    tuning = project.params.tuning
    assert len(trials_of(tuning, project.methods["noise"])) == 12
    trials = trials_of(tuning, project.methods["noise_flat"])
    assert len(trials) == 6
    assert {key for trial in trials for key in trial} == {"training.learning_rate", "regularisers.noise.scale"}


def test_plain_fine_tuning_has_the_arms_own_settings_without_its_methods(load: Load) -> None:
    more = """\
method_settings:
  noise: {training: {epochs: 7}}
tuning:
  selection: dev_as_published
  methods:
    noise: {regularisers.noise.scale: [0.1, 0.2], training.weight_decay: [0.0, 0.1]}
"""
    files = {NOISE: f"{FLAT}training: {{learning_rate: 1.0e-3}}\n", "params.yaml": listing("noise_plain", more=more)}
    project = load(files)
    control = project.methods["noise_plain"]
    assert (control.training.epochs, control.training.learning_rate) == (7, 2e-5)
    assert control.finetune.regularisers == ()
    assert [*trials_of(project.params.tuning, control)] == [
        {"training.weight_decay": 0.0},
        {"training.weight_decay": 0.1},
    ]
    assert not [text for text in project.warnings if "in more than" in text]


def test_a_method_may_declare_controls_in_its_yaml(load: Load) -> None:
    text = """\
controls:
  short: {training: {epochs: 1}, why: one epoch}
  plain: {regularisers: {noise: null}, why: nothing is added}
  longer: {compute: matched, why: more epochs instead}
regularisers:
  noise: {scale: 2, shape: uniform}
"""
    changes = {NOISE: text, "params.yaml": listing("noise_short", "noise_plain", "noise_longer")}
    project = load(changes)
    said = differences(project)
    epochs = project.methods["noise"].training.epochs
    assert said["noise_short"] == f"training.epochs is 1 instead of {epochs} (one epoch)"
    assert said["noise_plain"] == "no noise (nothing is added)"
    longer = f"no noise, training.epochs is {2 * epochs} instead of {epochs} (more epochs instead)"
    assert said["noise_longer"] == longer


def test_variants_have_the_controls_of_their_family(load: Load) -> None:
    files = {
        NOISE: f"controls:\n  short: {{training: {{epochs: 1}}, why: x}}\n{FLAT}",
        "pipelines/methods/loud.yaml": "variant_of: noise\nregularisers:\n  noise: {scale: 3, shape: uniform}\n",
        "params.yaml": listing("loud"),
    }
    project = load(files)
    assert set(missing(project.controls)) == {"noise_short", "loud_short"}


def test_a_control_that_is_plain_fine_tuning_is_the_listed_one(load: Load) -> None:
    text = f"controls:\n  plain: {{regularisers: {{noise: null}}, why: nothing}}\n{FLAT}"
    project = load({NOISE: text})
    assert missing(project.controls) == []
    assert ("noise", "vanilla") in [(one.control_for, one.name) for one in project.controls]


def test_a_hand_written_control_that_drifts_is_warned_of(load: Load) -> None:
    files = {
        "pipelines/methods/quiet.yaml": "control_for: noise\ndiffers_in: [regularisers.noise]\ntraining: {epochs: 1}\n",
        "params.yaml": listing("quiet"),
    }
    project = load(files)
    [warning] = [text for text in project.warnings if "in more than" in text]
    assert warning.startswith("pipelines/methods/quiet.yaml:2: the control 'quiet' differs from 'noise' in more than")
    assert "training.epochs" in warning
    assert "training.epochs is 1 instead of" in differences(project)["quiet"]


# --------------------------------------------------------------------------------------- in params.yaml


def written(target: str, epochs: int) -> str:
    length = f"training: {{epochs: {epochs}}}\n"
    return f"regularisers: {{}}\ncontrol_for: {target}\ndiffers_in: [regularisers, training]\n{length}"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("methods: [vanilla, mask] # a\n\n# end\n", "methods: [vanilla, quiet, still, mask] # a\n\n# end\n"),
        (
            "methods:  # which\n  - vanilla\n  - mask  # ours\n\n# end\ntraining: {}\n",
            "methods:  # which\n  - vanilla\n  - quiet\n  - still\n  - mask  # ours\n\n# end\ntraining: {}\n",
        ),
        ("methods:\n- noise\n", "methods:\n- quiet\n- still\n- noise\n"),
    ],
)
def test_only_the_names_are_inserted(tmp_path: Path, before: str, after: str) -> None:
    file = tmp_path / "params.yaml"
    file.write_text(before)
    assert with_controls(file, ["quiet", "still"]) == after


def test_missing_controls_are_found(build: Any, registry: dict[str, Any]) -> None:
    root = build(
        {
            "pipelines/methods/noise.yaml": METHOD + "controlled_by: quiet\n",
            "pipelines/methods/vanilla.yaml": VANILLA + "controlled_by: still\n",
            "pipelines/methods/mask.yaml": "controlled_by: still\n" + MASK,
            "pipelines/methods/quiet.yaml": written("noise", 21),
            "pipelines/methods/still.yaml": written("[mask, vanilla]", 23),
            "pipelines/methods/unrelated.yaml": written("split", 24),
            "pipelines/methods/split.yaml": "description: plain\n",
        }
    )
    project = load_project(root, registry)
    found = [(one.name, one.control_for) for one in project.controls if not one.listed]
    assert found == [("still", "vanilla"), ("quiet", "noise"), ("still", "mask")]
    [warning] = warnings_of(project.builder, project.methods, project.controls)
    assert "vanilla: no control is in the grid" in warning, "noise has vanilla, which is without noise"
    params = root / "params.yaml"
    params.write_text(with_controls(params, missing(project.controls)))
    after = load_project(root, registry).controls
    assert missing(after) == []
    plain = [("noise", "vanilla"), ("mask", "vanilla")]
    named = [("vanilla", "still"), ("noise", "quiet"), ("mask", "still")]
    assert sorted((one.control_for, one.name) for one in after) == sorted([*named, *plain])
