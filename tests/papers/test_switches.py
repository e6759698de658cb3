"""A setting that a protocol says is the paper's acts: with another value something else is computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, get_args

import pytest
import torch
from pydantic import BaseModel, ValidationError

from regft_core.models.source import ModelSource, resolve_model
from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.method import Phase
from regft_core.schema.training import TrainingConfig
from tests.methods.chain import Runner, run_phase
from tests.methods.harness import TRAINING, same
from tests.papers.test_protocols import DECLARED, opened
from tests.small_project import REPOSITORY
from tests.tiny import scratch_folder, tiny_model_dir

#: Weights by plain name.
Weights = dict[str, torch.Tensor]
#: The protocol of two steps on a few rows, in which each of its settings can be seen.
SHORT = TRAINING.model_copy(update={"epochs": 2, "clip_norm": 0.01, "warmup_ratio": 0.5, "weight_decay": 0.1})
#: Lengths that one run here cannot show beside the others, and what names no number.
NOT_HERE = {"training.max_steps", "training.warmup_steps", "training.checkpoint"}

#: Of phases that ran before.
RESULTS: dict[str, Mapping[str, Weights]] = {}


@dataclass(frozen=True)
class Switch:
    """One option of a paper's method as presets run it; equal ones of several presets are one."""

    option: str
    phases: tuple[Phase, ...]
    at: int

    @property
    def regulariser(self) -> str:
        return next(name for name, options in self.phases[self.at].regularisers if self.option in dict(options))


def presets() -> Iterator[tuple[Any, str, Any]]:
    """(declared item, preset, opened project)."""
    for declared in DECLARED:
        for preset in declared.item.config.presets:
            yield declared, preset, opened(preset)


def switches(paper: str) -> dict[str, Switch]:
    """Options of the paper's method that a protocol calls stated, lost or different; of equal switches one.

    Whether one acts hangs on the variant, which says which code runs. Controls are ours.
    """
    found: dict[str, Switch] = {}
    for declared, preset, project in presets():
        if declared.paper.name != paper:
            continue
        method = declared.paper.config.method
        for task in project.params.grid.tasks:
            for arm in project.params.methods:
                if project.methods[arm].of or project.methods[arm].config.control_for:
                    continue
                phases = project.method(arm, task).phases
                for at, phase in enumerate(phases):
                    options = dict(phase.regularisers).get(method)
                    where = f"methods.{arm}." + ("" if phase is phases[-1] else f"phases.{phase.name}.")
                    for option, value in options or ():
                        said = declared.value(preset, f"{where}regularisers.{method}.{option}", task)
                        if said is not None and said.origin != "not_stated":
                            variant = getattr(options, "variant", "")
                            key = f"{phase.name}.{option}: {kind(value)} {variant}"
                            found.setdefault(key, Switch(option, phases, at))
    return found


def kind(value: Any) -> Any:
    """``value``; of a number whether it is 0, of a list its type."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "0" if value == 0 else "a number"
    return "a list" if isinstance(value, list | tuple) else value


def alternatives(config: BaseModel, option: str) -> Iterator[BaseModel]:
    """``config`` with other values of an option that it takes."""
    value = getattr(config, option)
    words = [word for part in (*get_args(type(config).model_fields[option].annotation), str) for word in get_args(part)]
    words += [word for word in get_args(type(config).model_fields[option].annotation) if isinstance(word, str)]
    numbers = (
        [2 * value, value / 2, value + 1] if isinstance(value, int | float) and not isinstance(value, bool) else []
    )
    for other in (*words, *numbers, True, False, 1e-9, 0.5, 1, 2, [0], None):
        if other != value:
            try:
                yield type(config).model_validate({**config.model_dump(), option: other})
            except ValidationError:
                continue


def result(phases: tuple[Phase, ...], keyword_segment: str | None = None) -> Mapping[str, Weights]:
    """What the phases leave, by (phase, kind of tensors)."""
    key = repr((phases, keyword_segment))
    if key not in RESULTS:
        RESULTS[key] = computed(phases, keyword_segment)
    return RESULTS[key]


@cache
def encoder() -> ModelSource:
    """A tiny BERT with a head for masked tokens and as many layers as the default encoder."""
    folder = tiny_model_dir(scratch_folder(), "bert", masked_lm=True, layers=6)
    return resolve_model(EncoderConfig(name=str(folder)), REPOSITORY)


def computed(phases: tuple[Phase, ...], keyword_segment: str | None) -> Mapping[str, Weights]:
    ran = Runner(encoder(), rows=8, pair=True, keyword_segment=keyword_segment).run(phases, steps=2)
    return {f"{name}.{kind}": tensors for name, phase in ran.items() for kind, tensors in phase.tensors.items()}


def differ(one: Mapping[str, Weights], other: Mapping[str, Weights]) -> bool:
    return set(one) != set(other) or not all(same(one[name], other[name]) for name in one)


def acts(switch: Switch) -> bool:
    """Whether another value of the option is refused by the method itself, or changes what its phases leave."""
    phase = switch.phases[switch.at]
    options = dict(phase.regularisers)
    tried = False
    for other in alternatives(options[switch.regulariser], switch.option):
        tried = True
        listed = tuple((name, other if name == switch.regulariser else own) for name, own in phase.regularisers)
        changed = replace(phase, regularisers=listed)
        phases = (*switch.phases[: switch.at], changed, *switch.phases[switch.at + 1 :])
        if differ(result(switch.phases), result(phases)):
            return True
    return not tried


@pytest.mark.parametrize("paper", sorted({declared.paper.name for declared in DECLARED}))
def test_declared_options_of_the_papers_method_act(paper: str) -> None:
    assert [key for key, switch in switches(paper).items() if not acts(switch)] == []


def test_keywords_act_in_every_preset_of_csl() -> None:
    phases = {
        repr(phase): phase
        for _, _, project in presets()
        if "csl" in project.params.grid.tasks and project.tasks["csl"].keyword_segment == "text"
        for arm in project.params.methods
        for phase in [project.method(arm, "csl").finetune]
        if "tdt" in dict(phase.regularisers)
    }
    assert {dict(phase.regularisers)["tdt"].variant for phase in phases.values()} == {"paper", "released"}
    for phase in phases.values():
        assert differ(result((phase,), "text"), result((phase,)))


def training_settings() -> set[str]:
    """Fields of ``training`` that a protocol calls the paper's."""
    return {
        path
        for declared in DECLARED
        for values in (declared.of_paper, declared.of_item, *declared.of_presets.values())
        for path, said in values.items()
        if path.startswith("training.") and path.count(".") == 1 and said.origin != "not_stated"
    }


@pytest.mark.parametrize("path", sorted(training_settings() - NOT_HERE))
def test_declared_settings_of_training_act(path: str) -> None:
    field = path.removeprefix("training.")
    value: Any = {"betas": (0.5, 0.9), "optimizer": "adamax", "schedule": "constant", "precision": "bf16"}.get(
        field, getattr(SHORT, field) * 2
    )
    other: TrainingConfig = SHORT.model_copy(update={field: value})
    assert not same(run_phase(training=SHORT).weights, run_phase(training=other).weights)
