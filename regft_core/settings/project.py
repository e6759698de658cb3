"""A valid project, as everything that plans, runs and reports sees it: its cells, and the trials of each arm.

A trial is a set of dotted settings (``training.learning_rate``, ``regularisers.hype.scale``,
``phases.search.repeat.times``). They are laid over the method as the strongest layer; ``training.*`` of a method with
phases is laid over the shared protocol instead, which its phases then change.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from regft_core.errors import ConfigError, Problem
from regft_core.models.source import encoder_weights
from regft_core.names import suggestion
from regft_core.schema import Size
from regft_core.schema.method import Method, Phase
from regft_core.schema.params import Params, TuningConfig
from regft_core.schema.tasks import TaskConfig
from regft_core.schema.training import EncoderConfig, TrainingConfig
from regft_core.settings.build_method import MethodBuilder
from regft_core.settings.document import Document, Place
from regft_core.settings.layers import all_sizes, from_dotted, lay, shared_sections, sizes_of

if TYPE_CHECKING:
    from regft_core.settings.controls import Control

T = TypeVar("T")
#: Dotted settings of one trial, in the order of the file.
Trial = dict[str, Any]
#: Seed of the draw of ``tuning.trials`` from a grid: arms with equal grids get equal trials.
_DRAW = 0


@dataclass(frozen=True, order=True)
class Cell:
    """One method on one task at one training size; all seeds belong to it."""

    method: str
    task: str
    size: Size

    @property
    def directory(self) -> str:
        """``method/task/size``, the cell's place below ``work/<stage>/``."""
        return f"{self.method}/{self.task}/{self.size}"


def parse_size(text: str) -> Size:
    """Read a training size as it stands in names (``"300"``, ``"full"``)."""
    return "full" if text == "full" else int(text)


@dataclass(frozen=True)
class LeftOut:
    """Why a declared out-of-distribution set does not judge; ``file``: the file that is missing, if that is why."""

    why: str
    file: str | None = None


@dataclass(frozen=True)
class Project:
    """A valid project.

    Attributes:
        tasks: those of the grid, those that only judge them, and those that a phase trains on.
        methods: in the order of ``params.yaml``, under the shared protocol; ``on_task``: those that a task changes.
        sections: task -> the shared protocol and encoder.
        left_out: task of the grid -> the declared out-of-distribution sets that do not judge it.
    """

    root: Path
    params: Params
    tasks: dict[str, TaskConfig]
    methods: dict[str, Method]
    builder: MethodBuilder = field(repr=False, compare=False)
    warnings: tuple[str, ...] = ()
    documents: dict[str, Document] = field(default_factory=dict, repr=False, compare=False)
    on_task: dict[tuple[str, str], Method] = field(default_factory=dict)
    sections: Mapping[str, tuple[TrainingConfig, EncoderConfig]] = field(default_factory=dict)
    controls: list[Control] = field(default_factory=list, repr=False, compare=False)
    left_out: Mapping[str, Mapping[str, LeftOut]] = field(default_factory=dict)
    #: What was worked out for a plan; None where nothing is remembered.
    _worked_out: dict[tuple[Any, ...], Any] | None = field(default=None, repr=False, compare=False)

    def snapshot(self) -> Project:
        """Return this project for one plan: what thousands of keys share is worked out ``once``. Runs look again."""
        return replace(self, _worked_out={})

    def once(self, what: tuple[Any, ...], make: Callable[[], T]) -> T:
        """Return ``make()``; of a snapshot, what it was the first time that ``what`` was asked for."""
        if self._worked_out is None:
            return make()
        if what not in self._worked_out:
            self._worked_out[what] = make()
        value: T = self._worked_out[what]
        return value

    def method(self, name: str, task: str) -> Method:
        """Return a listed method as it runs on a task."""
        return self.on_task.get((name, task), self.methods[name])

    def shared(self, task: str) -> TrainingConfig:
        """Return the protocol that all methods share on a task: ``training`` with what the task changes."""
        return self.sections[task][0]

    def model(self, task: str) -> EncoderConfig:
        """Return the section ``model`` with what the task changes, before a method's own."""
        return self.sections[task][1]

    def encoders(self) -> list[EncoderConfig]:
        """Return the section ``model`` of each encoder that tasks of the grid start from or that phases name, once."""
        tasks = self.params.grid.tasks
        named = [
            method.encoder(self.model(task), phase)
            for task in tasks
            for method in [self.method(name, task) for name in self.methods]
            for phase in method.phases
            if phase.model
        ]
        return list({(model.name, model.revision): model for model in [*named, *map(self.model, tasks)]}.values())

    def relative_size(self, phase: Phase, method: Method, task: str) -> float | None:
        """Return the weights in the layers of a phase's encoder over those of the task's; None where nothing tells."""
        own, shared = method.encoder(self.model(task), phase).name, self.model(task).name
        if own == shared:
            return 1.0
        weights, of_task = encoder_weights(own, self.root), encoder_weights(shared, self.root)
        return None if weights is None or of_task is None else weights / of_task

    def trials(self, name: str) -> list[Trial]:
        return trials_of(self.params.tuning, self.methods[name])

    def tuned(self, name: str, task: str | None, values: Mapping[str, Any]) -> tuple[Method, TrainingConfig]:
        """Return a method (on a task) with tuned values, and the protocol that it starts from. Raises ConfigError."""
        return tuned_method(self.builder, name, task, values)


def cells(project: Project) -> list[Cell]:
    """All cells, in the order of ``params.yaml``: methods, then tasks, then sizes."""
    params = project.params
    pairs = product(project.methods, params.grid.tasks)
    return [Cell(method, task, size) for method, task in pairs for size in sizes_of(params, task)]


def check_listed(project: Project, **given: str | int) -> None:
    """Raise ConfigError for a ``method``, ``task``, ``size`` or ``seed`` that ``params.yaml`` does not list."""
    grid, task = project.params.grid, str(given.get("task"))
    of_task = task in grid.tasks
    listed = {
        "method": list(project.methods),
        "task": list(grid.tasks),
        "size": [str(size) for size in (sizes_of(project.params, task) if of_task else all_sizes(project.params))],
        "seed": [str(seed) for seed in grid.seeds],
    }
    problems = []
    for what, value in given.items():
        if str(value) not in listed[what]:
            key = "methods" if what == "method" else f"grid.{what}s"
            hint = suggestion(str(value), listed[what], f"{what}s listed")
            problems.append(Problem("not-listed", "params.yaml", 0, key, f"{what} '{value}' is not listed", hint))
    if problems:
        raise ConfigError(problems)


def named_cells(project: Project, names: Sequence[str]) -> list[Cell]:
    """Return the cells of each ``METHOD/TASK``, or ``METHOD`` for all its tasks; raises as ``check_listed``."""
    for name in names:
        check_listed(project, **dict(zip(("method", "task"), name.split("/", 1))))
    return [cell for cell in cells(project) if cell.method in names or f"{cell.method}/{cell.task}" in names]


def trials_of(tuning: TuningConfig | None, method: Method) -> list[Trial]:
    """The trials of an arm, in order; empty where nothing of it is tuned.

    ``values`` are for arms that take optimiser steps; an arm's own are for it whatever it does.
    """
    if tuning is None:
        return []
    own = tuning.methods.get(method.name)
    if own is None and method.of is not None:
        own = _inherited(tuning.methods.get(method.of), method.flipped)
    if isinstance(own, list):
        return [dict(trial) for trial in own]
    if own is not None and not own:
        return []
    shared = tuning.values if any(phase.training.epochs for phase in method.phases) else {}
    grid = {**shared, **(own or {})}
    if not grid:
        return []
    every = [dict(zip(grid, values)) for values in product(*grid.values())]
    if tuning.trials is None or tuning.trials >= len(every):
        return every
    return [every[index] for index in sorted(random.Random(_DRAW).sample(range(len(every)), tuning.trials))]


def _inherited(
    own: Mapping[str, Any] | list[Trial] | None, flipped: Collection[str]
) -> dict[str, Any] | list[Trial] | None:
    """Return the trials of an arm for its control, without the settings that it flips; None: those for every arm."""

    def kept(values: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in values.items() if not any(f"{k}.".startswith(f"{one}.") for one in flipped)}

    if not isinstance(own, list):
        return (kept(own) or None) if own else None if own is None else {}
    trials = [kept(trial) for trial in own]
    return [trial for index, trial in enumerate(trials) if trial and trial not in trials[:index]]


def layer_of(builder: MethodBuilder, name: str, values: Mapping[str, Any]) -> Document:
    """Return tuned values as a layer, each at its place in ``tuning`` of ``params.yaml``. Raises ConfigError."""
    document, arms = builder.params, builder.behind(name)

    def place(key: str) -> Place:
        named = [path for path in document.places if path[0] == "tuning" and path[2:] and path[-1] == key]
        own = [path for path in named if path[1] == "values" or path[2] in arms]
        # Of a list of trials the one with this value; an arm's own setting before the one for every arm.
        return document.place(min(own, key=lambda at: (document.value(at) != values[key], at[1]), default=("tuning",)))

    return from_dotted(values, place)


def tuned_method(
    builder: MethodBuilder, name: str, task: str | None, values: Mapping[str, Any]
) -> tuple[Method, TrainingConfig]:
    """Return what ``Project.tuned`` does."""
    document, shared = builder.document(name, task), builder.shared(task)
    assert document is not None
    phased = isinstance(document.data.get("phases"), dict)
    protocol = {key: value for key, value in values.items() if phased and key.startswith("training.")}
    tuned = layer_of(builder, name, protocol)
    training, _, problems = shared_sections(lay(shared, tuned))
    if training is None:
        raise ConfigError(problems)
    rest = layer_of(builder, name, {key: value for key, value in values.items() if key not in protocol})
    return builder.build(name, lay(document, rest), task, tuned=tuned), training


def budget_lines(tuning: TuningConfig, methods: Iterable[Method]) -> list[str]:
    """The dry run's lines: how many trials each arm gets, and what chooses."""
    if tuning.selection != "split":
        judge = "the dev set, as published, once for all seeds: scores on it are optimistic"
    else:
        part = f"{tuning.folds} folds of" if tuning.folds else f"rows set aside ({1 - tuning.split:.0%}) of"
        judge = f"{part} a run's training rows, which it then trains on as a whole; each seed chooses"
    lines = [f"tuning: evaluated by {judge}"]
    for method in methods:
        trials = trials_of(tuning, method)
        keys = list(dict.fromkeys(key for trial in trials for key in trial))
        what = f"{len(trials)} trials over {', '.join(keys)}" if trials else "no trials"
        lines.append(f"  {method.name}: {what}")
    return lines
