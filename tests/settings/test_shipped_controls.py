"""Every shipped arm, and every arm of every preset, differs from its controls in what the controls declare alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
import yaml

from regft_core.errors import ConfigError
from regft_core.hooks.registry import discover
from regft_core.runs.opened_project import open_project
from regft_core.schema.method import Method, optimiser_steps
from regft_core.settings.derived import differences, takes_away, undeclared
from regft_core.settings.project import Project
from regft_core.settings.yaml_paths import names
from tests.small_project import REPOSITORY, preset

PRESETS = names(REPOSITORY, "pipelines/presets")
#: Of plain fine-tuning with an arm's compute: that its protocol is the arm's own is asserted by itself.
MATCHED = "_matched_compute"
#: Methods whose compute is a whole number of epochs, and of steps.
SOUPS = ("uniform_soup", "greedy_soup", "greedy_soup_released", "tdt", "tdt_without_ranking")
#: Divisible by the batch size, also 80% of them.
ROWS = 320


@cache
def shipped(protocol: str = "epochs: 4") -> Project:
    """A project that lists every shipped method, under a shared protocol."""
    methods = names(REPOSITORY, "pipelines/methods")
    if "max_steps" in protocol:  # searches that count epochs have no compute in steps
        methods = ["vanilla", *(one for name in SOUPS for one in (name, f"{name}{MATCHED}"))]
    params = {
        "model": {"name": "minilm"},
        "grid": {"tasks": ["cue_pair"], "sizes": [128], "seeds": [0]},
        "methods": methods,
        "subsample": {},
        "training": yaml.safe_load(protocol),
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
    ("name", "protocol"),
    [
        *((name, protocol) for name in SOUPS for protocol in ("epochs: 4", "max_steps: 50")),
        *((name, "epochs: 4") for name in ("weight_mixup", "weight_mixup_k5", "weight_mixup_first_order")),
    ],
)
def test_a_compute_control_takes_as_many_plain_passes(name: str, protocol: str) -> None:
    project = shipped(protocol)
    arm, control = built(project, name, None), built(project, name + MATCHED, None)
    epoch = ROWS / arm.training.batch_size
    assert passes(control) == pytest.approx(passes(arm), abs=1e-9 if name in SOUPS else epoch / 2)
