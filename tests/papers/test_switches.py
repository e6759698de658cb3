"""A setting that a protocol calls the paper's acts: with another value something else is computed.

Settings of methods are grouped: one value of an option, under one variant of its method, is switched in one preset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, get_args

import pytest
import torch
from pydantic import BaseModel, ValidationError

from regft_core.errors import ConfigError, ModelError
from regft_core.hooks import registry
from regft_core.models.source import ModelSource, resolve_model
from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.method import FINETUNE, Phase
from regft_core.schema.training import TrainingConfig
from tests.evaluate.test_layers import words
from tests.evaluate.tiny_run import TinyModel, finished, found
from tests.methods.chain import Runner, run_phase
from tests.methods.harness import TRAINING, same
from tests.papers.resolved import has_no_effect
from tests.papers.test_protocols import DECLARED, opened
from tests.small_project import REPOSITORY
from tests.tiny import scratch_folder, tiny_model_dir

REGISTRY = registry.discover()
#: A protocol of two steps in which each of its settings can be seen.
SHORT = TRAINING.model_copy(update={"epochs": 2, "clip_norm": 0.01, "warmup_ratio": 0.5, "weight_decay": 0.1})
#: Lengths, and what needs a validation set.
ELSEWHERE = {"training.max_steps", "training.warmup_steps", "training.checkpoint"}
#: These take a few seconds together.
QUICK = ("hype", "tdt")

Weights = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Switch:
    """An option of a phase, in ``section``: data, repeat, or a regulariser's name."""

    phases: tuple[Phase, ...]
    at: int
    section: str
    option: str

    @property
    def options(self) -> Any:
        return sections(self.phases[self.at])[self.section]

    def other(self, options: BaseModel) -> tuple[Phase, ...]:
        """The phases with other options of the section."""
        phase = self.phases[self.at]
        if self.section in ("data", "repeat"):
            changed = replace(phase, **{self.section: options})
        else:
            listed = ((name, options if name == self.section else given) for name, given in phase.regularisers)
            changed = replace(phase, regularisers=tuple(listed))
        return (*self.phases[: self.at], changed, *self.phases[self.at + 1 :])


def sections(phase: Phase) -> dict[str, Any]:
    """Models with options of a phase: those of regularisers that act, by name."""
    acting = {name: options for name, options in phase.regularisers if REGISTRY[name].declare(options).active}
    return {"data": phase.data, **({"repeat": phase.repeat} if phase.repeat else {}), **acting}


def presets() -> Iterator[tuple[Any, str, Any]]:
    """(declared item, preset, opened project)."""
    for declared in DECLARED:
        for preset in declared.item.config.presets:
            yield declared, preset, opened(preset)


@cache
def switches(paper: str) -> dict[str, Switch]:
    """The declared settings of methods in a paper's presets, by group; controls are left out."""
    switches: dict[str, Switch] = {}
    for declared, preset, project in presets():
        if declared.paper.name != paper:
            continue
        for task in project.params.grid.tasks:
            for arm in project.params.methods:
                if project.methods[arm].of or project.methods[arm].config.control_for:
                    continue
                phases = project.method(arm, task).phases
                for at, phase in enumerate(phases):
                    where = f"methods.{arm}." + ("" if phase.name == FINETUNE else f"phases.{phase.name}.")
                    for section, options in sections(phase).items():
                        path = where + (section if section in ("data", "repeat") else f"regularisers.{section}")
                        for option, value in options:
                            said = declared.value(preset, f"{path}.{option}", task)
                            if said is None or said.origin == "not_stated":
                                continue
                            if section in REGISTRY and has_no_effect(REGISTRY[section], options, option, phase):
                                continue  # test_protocols: such a setting has no declaration
                            group = f"{phase.name}.{section}.{option}: {kind(value)} {getattr(options, 'variant', '')}"
                            switches.setdefault(group.strip(), Switch(phases, at, section, option))
    return switches


def kind(value: Any) -> Any:
    """``value``; of a number whether it is 0, of a list its type."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "0" if value == 0 else "a number"
    return "a list" if isinstance(value, list | tuple) else value


def alternatives(switch: Switch) -> Iterator[tuple[Phase, ...]]:
    """The phases with other values of the option that its method takes."""
    options = switch.options
    value, annotation = getattr(options, switch.option), get_args(type(options).model_fields[switch.option].annotation)
    words = [word for part in annotation for word in (part, *get_args(part)) if isinstance(word, str)]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    numbers = [value * 2, value / 2, value + 1, 1, 0.5] if number else [1e-9, 0.5, 1, 2]
    for other in (*words, *numbers, True, False, [0], None):
        if other != value:
            try:
                phases = switch.other(type(options).model_validate({**options.model_dump(), switch.option: other}))
            except ValidationError:
                continue
            if not refused(phases[switch.at], switch.section):
                yield phases


def refused(phase: Phase, section: str) -> bool:
    return section in REGISTRY and bool(REGISTRY[section].check_options(sections(phase).get(section) or {}, phase))


@cache
def encoder() -> ModelSource:
    """A tiny BERT with a head for masked tokens and as many layers as the default encoder."""
    folder = tiny_model_dir(scratch_folder(), "bert", masked_lm=True, layers=6)
    return resolve_model(EncoderConfig(name=str(folder)), REPOSITORY)


RESULTS: dict[str, Mapping[str, Weights]] = {}


def result(phases: tuple[Phase, ...], keyword_segment: str | None = None, steps: int = 2) -> Mapping[str, Weights]:
    """Tensors that the phases leave, by phase and part."""
    key = repr((phases, keyword_segment, steps))
    if key not in RESULTS:
        ran = Runner(encoder(), rows=8, pair=True, keyword_segment=keyword_segment).run(phases, steps=steps)
        RESULTS[key] = {f"{name}.{part}": tensors for name, one in ran.items() for part, tensors in one.tensors.items()}
    return RESULTS[key]


def differ(one: Mapping[str, Weights], other: Mapping[str, Weights]) -> bool:
    return set(one) != set(other) or not all(same(one[name], other[name]) for name in one)


def acts(switch: Switch) -> bool:
    """Whether another value changes what the phases leave, or stops them; true where the method takes no other."""
    others = list(alternatives(switch))
    for steps in (2, 4):
        for phases in others:
            try:
                if differ(result(switch.phases, steps=steps), result(phases, steps=steps)):
                    return True
            except (ModelError, ConfigError):
                return True
    return not others


@pytest.mark.parametrize(
    "paper",
    [
        pytest.param(paper, marks=[] if paper in QUICK else [pytest.mark.slow])
        for paper in sorted({declared.paper.name for declared in DECLARED})
    ],
)
def test_declared_settings_of_methods_act(paper: str) -> None:
    assert [group for group, switch in switches(paper).items() if not acts(switch)] == []


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


def declared_training() -> list[str]:
    """Fields of ``training`` that a protocol calls the paper's."""
    return sorted(
        {
            path
            for declared in DECLARED
            for values in (declared.of_paper, declared.of_item, *declared.of_presets.values())
            for path, said in values.items()
            if path.startswith("training.") and path.count(".") == 1 and said.origin != "not_stated"
        }
        - ELSEWHERE
    )


@pytest.mark.parametrize("path", declared_training())
def test_declared_settings_of_training_act(path: str) -> None:
    field = path.removeprefix("training.")
    others = {"betas": (0.5, 0.9), "optimizer": "adamax", "schedule": "constant", "precision": "bf16"}
    other: TrainingConfig = SHORT.model_copy(update={field: others.get(field) or getattr(SHORT, field) * 2})
    assert not same(run_phase(training=SHORT).weights, run_phase(training=other).weights)


#: Evaluation -> options at which another value of each can be seen on a few rows.
SMALL: dict[str, dict[str, Any]] = {
    "views": {"rows": 6},
    "confidence": {"rows": 6},
    "robustness": {"rates": [0.5], "noise": ["mixed"], "copies": 2, "rows": 6},
    "deletion": {"confidence_of": "tdt", "drop": "mask", "shares": [0.3], "rows": 6},
    "sensitivity": {"decay": 0.75, "between": [1e-9, 1e9], "batches": 3, "batch_size": 4},
    "token_similarity": {"rows": 6},
    "layer_probes": {
        "tasks": ["cue_a"],
        "rows": 8,
        "test_rows": 8,
        "learning_rate": 0.03,
        "epochs": 2,
        "batch_size": 4,
    },
}
#: Option -> another value.
OTHER = {
    **{"rows": 12, "test_rows": 12, "copies": 3, "epochs": 4, "batch_size": 2, "learning_rate": 0.3, "decay": 0.1},
    **{"rates": [0.2], "shares": [0.6], "between": [1e-6, 1e9], "noise": ["mask"], "drop": "remove"},
    **{"confidence_of": None, "tasks": ["cue_b"]},
}


def declared_evaluations() -> list[str]:
    paths = {
        path
        for declared in DECLARED
        for values in (declared.of_paper, declared.of_item)
        for path, said in values.items()
        if path.startswith("evaluations.") and said.origin != "not_stated"
    }
    return sorted(path.removeprefix("evaluations.") for path in paths)


@pytest.mark.parametrize("path", declared_evaluations())
def test_declared_options_of_evaluations_act(path: str) -> None:
    name, option = path.split(".")
    model, other = (TinyModel(kind="regression", seed=seed) for seed in (0, 1))  # its scores are no counts
    model.said, other.said = (lambda x: x.sum(-1).sigmoid()), (lambda x: 1 - x.sum(-1).sigmoid())
    judged = finished(model, 16)
    model.learned = judged.examples
    tasks = {task: words(task, "regression") for task in ("cue_a", "cue_b")}
    one, two = (
        found(name, model, judged, primary="pearson", others=tasks, models={"tdt": other}, **options)
        for options in (SMALL[name], SMALL[name] | {option: OTHER[option]})
    )
    assert one != two
