"""Controls: what methods declare, what controls inherit, how they differ, are tuned and listed; shipped controls."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from regft_core.errors import ConfigError
from regft_core.hooks.description import Flip
from regft_core.hooks.registry import discover
from regft_core.schema.method import Method, optimiser_steps
from regft_core.settings.controls import missing, warnings_of, with_controls
from regft_core.settings.derived import differences, takes_away, undeclared
from regft_core.settings.project import Project, trials_of
from regft_core.settings.read_project import open_project
from regft_core.settings.yaml_paths import names
from tests.settings.conftest import MASK, PARAMS, VANILLA, Build, Load, Noise, load_project
from tests.settings.conftest import NOISE as METHOD
from tests.small_project import REPOSITORY, preset

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


def controls_of_noise(project: Any) -> dict[str, str]:
    return {one.name: one.differs_by for one in project.controls if one.control_for == "noise"}


def test_a_control_needs_no_file_and_has_the_settings_of_its_arm(load: Load) -> None:
    more = """\
method_settings:
  noise: {regularisers: {noise: {scale: 0.5}}, training: {epochs: 7}}
task_settings:
  opinions: {methods: {noise: {training: {epochs: 9}}}}
"""
    project = load({"params.yaml": listing("noise_flat", more=more)})
    control, method = project.methods["noise_flat"], project.methods["noise"]
    options: Any = dict(control.finetune.regularisers)["noise"]
    assert (options.shape, options.scale, control.training.epochs) == ("uniform", 0.5, 7)
    assert project.method("noise_flat", "opinions").training.epochs == 9
    assert (control.of, control.config.control_for) == ("noise", ("noise",))
    assert controls_of_noise(project)["noise_flat"] == "noise.shape is uniform instead of normal (another law)"
    assert control.training == method.training
    assert missing(project.controls) == ["noise_still", "noise_plain"]  # its protocol is not that of vanilla


def test_what_is_flipped_already_has_plain_fine_tuning_alone(load: Load) -> None:
    project = load({NOISE: FLAT})
    found = [(one.control_for, one.name, one.zero) for one in project.controls]
    assert found == [("noise", "vanilla", True), ("mask", "vanilla", True)]


def test_a_control_is_plain_fine_tuning_only_where_its_compute_is_matched(load: Load) -> None:
    """``compute: null`` made it so, too, and its own values were ignored."""
    text = METHOD + "controls: {half: {why: half of it, compute: null, regularisers: {noise: {scale: 0.5}}}}\n"
    project = load({NOISE: text, "params.yaml": listing("noise_half")})
    assert project.methods["noise_half"].finetune.regularisers[0][1].scale == 0.5


def test_own_settings_of_a_control_are_laid_over_and_warned_of(load: Load) -> None:
    more = "method_settings:\n  noise_flat: {training: {epochs: 11}}\n"
    project = load({"params.yaml": listing("noise_flat", more=more)})
    assert project.methods["noise_flat"].training.epochs == 11
    [warning] = [text for text in project.warnings if "noise_flat" in text and "in more than" in text]
    assert "training.epochs" in warning
    assert "training.epochs is 11 instead of" in controls_of_noise(project)["noise_flat"]


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
    said = controls_of_noise(project)
    epochs = project.methods["noise"].training.epochs
    assert said["noise_short"] == f"training.epochs is 1 instead of {epochs} (one epoch)"
    assert said["noise_plain"] == "no noise (nothing is added)"
    longer = f"no noise, training.epochs is {2 * epochs} instead of {epochs} (more epochs instead)"
    assert said["noise_longer"] == longer


def test_a_control_that_cannot_be_built_is_told(load: Load) -> None:
    """With a misspelt option it was left out of the controls without a word."""
    text = METHOD + "controls: {half: {why: half of it, regularisers: {noise: {scael: 0.5}}}}\n"
    project = load({NOISE: text})
    assert "noise_half" not in controls_of_noise(project)
    assert any("'noise_half'" in warning and "[unknown-key]" in warning for warning in project.warnings)


def test_variants_have_the_controls_of_their_family(load: Load) -> None:
    files = {
        NOISE: f"controls:\n  short: {{training: {{epochs: 1}}, why: x}}\n{FLAT}",
        "pipelines/methods/loud.yaml": "variant_of: noise\nregularisers:\n  noise: {scale: 3, shape: uniform}\n",
        "params.yaml": listing("loud"),
    }
    project = load(files)
    assert set(missing(project.controls)) == {"noise_short", "loud_short"}


def test_a_hand_written_control_that_drifts_is_warned_of(load: Load) -> None:
    files = {
        "pipelines/methods/quiet.yaml": "control_for: noise\ndiffers_in: [regularisers.noise]\ntraining: {epochs: 1}\n",
        "params.yaml": listing("quiet"),
    }
    project = load(files)
    [warning] = [text for text in project.warnings if "in more than" in text]
    assert warning.startswith("pipelines/methods/quiet.yaml:2: the control 'quiet' differs from 'noise' in more than")
    assert "training.epochs" in warning
    assert "training.epochs is 1 instead of" in controls_of_noise(project)["quiet"]


# --------------------------------------------------------------------------------------- in params.yaml


def written(target: str, epochs: int) -> str:
    length = f"training: {{epochs: {epochs}}}\n"
    return f"regularisers: {{}}\ncontrol_for: {target}\ndiffers_in: [regularisers, training]\n{length}"


def test_only_the_names_are_inserted(tmp_path: Path) -> None:
    file, rest = tmp_path / "params.yaml", "mask  # ours\n\n# end\ntraining: {}\n"
    for before in ("methods:  # which\n  - vanilla\n  - ", "methods:\n- vanilla\n- "):
        file.write_text(before + rest)
        added = before + before.rpartition("\n")[2].join(("quiet\n", "still\n", ""))
        assert with_controls(file, ["quiet", "still"]) == added + rest


def test_a_list_with_the_same_yaml_anchor_stays_as_it_is(tmp_path: Path) -> None:
    """It got the controls, too."""
    file = tmp_path / "params.yaml"
    for text in ("methods: &arms [a, b]\nothers: *arms\n", "others: &arms [a, b]\nmethods: *arms\n"):
        file.write_text(text)
        assert yaml.safe_load(with_controls(file, ["c"])) == {"methods": ["a", "c", "b"], "others": ["a", "b"]}


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


# ---------------------------------------------------------------------------------------------------- what is shipped

PRESETS = names(REPOSITORY, "pipelines/presets")
#: Of plain fine-tuning with an arm's compute: that its protocol is the arm's own is asserted by itself.
MATCHED = "_matched_compute"
#: Methods whose compute is a whole number of epochs, and of steps.
SOUPS = ("uniform_soup", "greedy_soup", "greedy_soup_released", "tdt", "tdt_without_ranking")
#: Divisible by the batch size, also 80% of them.
ROWS = 320


@cache
def shipped(steps: int | None = None) -> Project:
    """A project that lists every shipped method; those of whole epochs where the protocol counts ``steps``."""
    soups = ["vanilla", *(one for name in SOUPS for one in (name, f"{name}{MATCHED}"))]
    params = {
        "model": {"name": "minilm"},
        "grid": {"tasks": ["mrpc"], "sizes": [128], "seeds": [0]},
        "methods": soups if steps else names(REPOSITORY, "pipelines/methods"),
        "subsample": {},
        "training": {"max_steps": steps} if steps else {"epochs": 4},
        "report": {"reference": "vanilla"},
    }
    return open_project(REPOSITORY, params_text=yaml.safe_dump(params, sort_keys=False), check_composition=False)


def built(project: Project, name: str, task: str | None) -> Method | None:
    """An arm under the settings of a project; None where its compute has no one factor."""
    builder = project.builder
    try:
        return builder.build(name, None, task)
    except ConfigError as error:
        if name.endswith(MATCHED) and {problem.code for problem in error.problems} == {"match-incomparable"}:
            return None
        raise


def pairs(project: Project, task: str | None) -> Iterator[tuple[Method, Method]]:
    """(arm, control) for the controls that listed arms declare, and for those that are listed."""
    for name, listed in project.methods.items():
        arm = built(project, name, task)
        for end in project.builder.controls(name) if listed.of is None else ():
            control = built(project, f"{name}_{end}", task)
            if control is not None and arm is not None:
                yield arm, control
        for target in arm.config.control_for if arm is not None and arm.of is None else ():
            method = built(project, target, task) if target in project.methods else None
            if method is not None and arm is not None:
                yield method, arm


def check(project: Project, task: str | None) -> int:
    builder, found = project.builder, 0
    for arm, control in pairs(project, task):
        settings = [builder.settings_of(one) for one in (arm, control)]
        apart = differences(*settings)
        assert apart, f"{control.name} is {arm.name}"
        more = undeclared(apart, control.config.differs_in)
        assert not more, f"{control.name} differs from {arm.name} in {more}, too"
        if not control.name.endswith(MATCHED) and control.of is not None:
            assert apart.keys() <= set(settings[0]) | set(settings[1])
        found += 1
    return found


def test_every_shipped_arm() -> None:
    assert check(shipped(), None) > 160


def test_every_method_has_a_control_of_strength_zero() -> None:
    """Plain fine-tuning has the settings of ``vanilla``, so it is the same run; ``test_contract`` trains the others."""
    project = shipped()
    builder, plain = project.builder, project.builder.settings_of(project.methods["vanilla"])
    methods = {name: method for name in project.methods if has_an_ingredient(method := builder.build(name))}
    assert len(methods) > 80
    for name, method in methods.items():
        acting, zero = builder.settings_of(method, acting=True), []
        for end, change in builder.controls(name).items():
            control = builder.build(f"{name}_{end}")
            assert takes_away(acting, builder.settings_of(control, acting=True)) == change.zero, control.name
            zero += [control] if change.zero else []
            if end == "plain":
                assert builder.settings_of(control) == plain
        assert zero, name
        if any(one.name == f"{name}_plain" for one in zero):
            assert ("vanilla", True) in [(one.name, one.zero) for one in project.controls if one.control_for == name]


def has_an_ingredient(method: Method) -> bool:
    """Whether a method, which is no control itself, does more than set the protocol, and takes steps."""
    more = any(phase.regularisers for phase in method.phases) or len(method.phases) > 1
    return more and any(phase.training.epochs for phase in method.phases) and not method.config.control_for


@pytest.mark.parametrize("name", PRESETS)
def test_every_arm_of_a_preset(name: str) -> None:
    """Also on the tasks whose settings it changes."""
    project = preset(name)
    assert check(project, None)
    for task in project.params.grid.tasks:
        check(project, task)


def passes(method: Method) -> float:
    """Steps of all phases and members in which a pass forward and back counts one; all batches are of one size."""
    total = 0.0
    for phase in method.phases:
        steps = optimiser_steps(phase.training, int(ROWS * phase.data.split))
        total += steps * phase.members * phase.ratio(discover())
    return total


@pytest.mark.parametrize(
    ("name", "steps"),  # a search that counts epochs has no compute in steps
    [*((name, steps) for name in SOUPS for steps in (None, 50)), ("weight_mixup_k5", None), ("weight_mixup", None)],
)
def test_a_compute_control_takes_as_many_plain_passes(name: str, steps: int | None) -> None:
    project = shipped(steps)
    arm, control = built(project, name, None), built(project, name + MATCHED, None)
    assert arm is not None
    assert control is not None
    epoch = ROWS / arm.training.batch_size
    assert passes(control) == pytest.approx(passes(arm), abs=1e-9 if name in SOUPS else epoch / 2)
