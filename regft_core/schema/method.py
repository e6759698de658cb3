"""A method as the rest of regft sees it: its phases with every option validated, and the passes that they take."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from regft_core.schema import NAME_PATTERN
from regft_core.schema.methods import DataConfig, MethodConfig, Refit, RepeatConfig
from regft_core.schema.training import EncoderConfig, TrainingConfig

if TYPE_CHECKING:
    from regft_core.hooks.base import Regulariser

#: So many rows that no batch of them is cut short.
MANY = 7_200_000_000
#: The phase that every method ends with, and the only one of most.
FINETUNE = "finetune"


@dataclass(frozen=True)
class Cost:
    """Passes over the encoder as declared by a regulariser: per optimiser step and batch, or per row of a fit.

    Passes that run as one larger batch count one by one: three views in one forward are ``forward=3``.
    """

    forward: float = 1.0
    backward: float = 1.0

    @property
    def ratio(self) -> float:
        """Cost relative to a plain training step: a forward pass counts 1, a backward pass 2."""
        return (self.forward + 2 * self.backward) / 3


#: Name -> a regulariser's class, which is asked for what it declares.
Registry = Mapping[str, "type[Regulariser]"]


def declared_cost(entries: Iterable[tuple[type[Regulariser], Any]]) -> Cost:
    """Passes per step of a phase: those of the most expensive regulariser, added terms on top."""
    declared = [(cls, declares) for cls, options in entries if (declares := cls.declare(options)).active]
    base = [declares.description.cost for cls, declares in declared if not cls.adds_terms]
    added = [declares.description.cost for cls, declares in declared if cls.adds_terms]
    forward = max([cost.forward for cost in base], default=1.0) + sum(cost.forward - 1 for cost in added)
    backward = max([cost.backward for cost in base], default=1.0) + sum(cost.backward - 1 for cost in added)
    return Cost(forward, backward)


def declared_fit(entries: Iterable[tuple[type[Regulariser], Any]]) -> Cost:
    """Passes per training row of what a phase fits without steps; each regulariser goes over the rows by itself."""
    found = [declares.description.fit_cost for cls, options in entries if (declares := cls.declare(options)).active]
    return Cost(sum(cost.forward for cost in found), sum(cost.backward for cost in found))


@dataclass(frozen=True)
class Lent:
    """Whose phase a phase is (``method``), where a method lets another one stand in; their results have one key.

    ``name``: what it is called there; ``prefix``: what that method's earlier phases begin with here.
    """

    method: str
    name: str
    prefix: str
    model: Mapping[Any, Any]


@dataclass(frozen=True)
class Phase:
    """One phase of a listed method.

    Attributes:
        start: ``checkpoint`` or the name of the earlier phase whose weights it starts from.
        repeat: how often it runs and how the members are merged; None: once.
        seed: the one seed of a phase that is trained once for all; None: the run's own.
        regularisers: (name, validated options), sorted by name.
        training: the shared protocol with the phase's own values, which are ``explicit``.
        model: what the phase changes in the section ``model``.
        lent: the method that it is taken from; None for a phase of the method itself.
    """

    name: str
    data: DataConfig
    start: str
    repeat: RepeatConfig | None
    seed: int | None
    regularisers: tuple[tuple[str, BaseModel], ...]
    training: TrainingConfig
    explicit: Mapping[str, Any]
    model: Mapping[str, Any] = field(default_factory=dict)
    lent: Lent | None = None
    refit: Refit = 1

    @property
    def run_name(self) -> str:
        """Its name in its own method, which stands in keys, names random streams and labels curves."""
        return self.name if self.lent is None else self.lent.name

    def here(self, name: str) -> str:
        """The name that an earlier phase has here which its own method calls ``name``."""
        return name if self.lent is None else self.lent.prefix + name

    def there(self, name: str) -> str:
        """The name in its own method of an earlier phase that is called ``name`` here."""
        return name if self.lent is None else name.removeprefix(self.lent.prefix)

    @property
    def of_final_model(self) -> Phase:
        """The phase as a final model has it: repeated, where it is the mean of several trainings."""
        if self.refit in (1, "mean_of_runs"):
            return self
        return replace(self, repeat=RepeatConfig.model_validate({"times": self.refit}))

    @property
    def members(self) -> int:
        """How many times the phase trains: members of a mean or a soup, else 1."""
        return self.repeat.times if self.repeat is not None else 1

    def ratio(self, registry: Registry) -> float:
        return declared_cost((registry[name], options) for name, options in self.regularisers).ratio

    def teachers(self, registry: Registry) -> list[str]:
        """Earlier phases whose answers to its rows it learns."""
        declared = [registry[name].declare(options) for name, options in self.regularisers]
        needs = [item for one in declared if one.active for item in one.needs.items()]
        return [self.here(name) for name, what in needs if what in ("answers", "hidden")]

    def fit_ratio(self, registry: Registry) -> float:
        """Declared cost of what one member fits without steps, in epochs of plain fine-tuning over the phase's rows."""
        return declared_fit((registry[name], options) for name, options in self.regularisers).ratio


@dataclass(frozen=True)
class Method:
    """One listed method.

    Attributes:
        name: its file's name without ``.yaml``.
        phases: in the order in which they run; the last one is ``finetune``.
        of: the method whose declared control this is; None for a method with a file or a base.
        flipped: settings, or beginnings of settings, that are not tuned with those of that arm.
    """

    name: str
    config: MethodConfig
    phases: tuple[Phase, ...]
    of: str | None = None
    flipped: tuple[str, ...] = ()

    @property
    def earlier(self) -> tuple[Phase, ...]:
        """The phases before fine-tuning, which the stage ``search`` runs."""
        return self.phases[:-1]

    @property
    def finetune(self) -> Phase:
        return self.phases[-1]

    @property
    def training(self) -> TrainingConfig:
        return self.finetune.training

    def encoder(self, shared: EncoderConfig, phase: Phase | None = None) -> EncoderConfig:
        """The shared ``model`` section with what this method overrides (an opponent's own pooling), and a phase of it.

        A method that wants a mean of the tokens takes the last one where the shared section does: the encoder was
        trained to be read there.
        """
        changes = dict(self.config.model if phase is None or phase.lent is None else phase.lent.model)
        if shared.pooling == "last" and changes.get("pooling") in ("mean", "unit_mean", "mean_last_four"):
            del changes["pooling"]
        if phase is not None:
            changes |= ({"revision": None} if "name" in phase.model else {}) | dict(phase.model)
        return EncoderConfig.model_validate({**shared.model_dump(), **changes})

    def phase(self, name: str) -> Phase:
        return next(phase for phase in self.phases if phase.name == name)


def other_tasks(methods: Iterable[Method], *, labelled: bool = False) -> list[str]:
    """Tasks beside their own whose rows phases of the methods train on, each once; ``labelled``: on their labels."""
    every = (phase.data for method in methods for phase in method.phases if phase.data.labels or not labelled)
    return list(dict.fromkeys(data.task for data in every if data.task is not None))


def is_name(text: str) -> bool:
    """Whether ``text`` may name a task or a method (``[a-z0-9_-]``, so no path can hide in it)."""
    return re.fullmatch(NAME_PATTERN, text) is not None


def optimiser_steps(training: TrainingConfig, rows: int | None) -> int | None:
    """Optimiser steps of one run on ``rows`` examples; None when that needs an unknown ``rows``."""
    if training.epochs == 0:
        return 0
    if training.max_steps is not None:
        return training.max_steps
    if rows is None:
        return None
    return training.epochs * epoch_steps(training, rows)


def epoch_steps(training: TrainingConfig, rows: int) -> int:
    return math.ceil(math.ceil(rows / training.batch_size) / training.accumulation)


def phase_cost(
    phase: Phase,
    count: int | None,
    registry: Registry,
    shared: TrainingConfig,
    size: float | None = 1.0,
    teachers: Sequence[float | None] = (),
    steps: int | None = None,
) -> float | None:
    """Plain-step equivalents of all members of a phase, on ``count`` rows each; None when that needs an unknown.

    A plain step is one over a batch of the ``shared`` protocol: one of a phase with smaller batches is a part of it.
    ``size`` is that of the phase's encoder over the task's (``Project.relative_size``), ``teachers`` those of the
    encoders whose answers it learns: each costs a forward pass over the rows. ``steps``: that all members took.
    """
    own, fit = phase.training, phase.fit_ratio(registry)
    each = optimiser_steps(own, count) if steps is None else steps / phase.members
    passes = 0.0
    for factor, length in ((size, fit), *((teacher, 1 / 3) for teacher in teachers)):
        if factor is None or (length and count is None):
            return None
        passes += factor * length * epoch_steps(own, count) if count is not None else 0.0
    if each is None or size is None:
        return None
    passes += each * phase.ratio(registry) * size
    return passes * own.accumulation * phase.members * own.batch_size / shared.batch_size


def method_factor(method: Method, training: TrainingConfig, registry: Registry) -> float:
    """Return the compute of ``method`` in units of plain fine-tuning under ``training``; both must be comparable."""
    total, plain = 0.0, (optimiser_steps(training, MANY) or 0) * training.accumulation
    for phase in method.phases:
        teachers = [1.0] * len(phase.teachers(registry))
        total += phase_cost(phase, int(MANY * phase.data.split), registry, training, 1.0, teachers) or 0.0
    return total / plain


def comparable(method: Method, training: TrainingConfig, registry: Registry) -> bool:
    """Whether one factor says for every number of rows what a method costs.

    None does for other rows or another encoder; passes over rows and counted steps compare at one number of rows only.
    """
    counted = training.max_steps is not None
    for phase in method.phases:
        others = (phase.data.task, phase.data.size, phase.data.steps) != (None, None, "own") or bool(phase.model)
        mixed = phase.training.epochs > 0 and (phase.training.max_steps is not None) != counted
        if others or mixed or (counted and (phase.fit_ratio(registry) > 0 or phase.teachers(registry))):
            return False
    return True
