"""Rules of composition, checked before anything runs; no torch here.

A method is a list of regularisers. Some resources have one owner (the step program of a
phase, the optimiser, the weight view); dropout is negotiated; a precision may erase a method;
a method may have no meaning on a task. Every refusal says which regularisers clash and why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from regft_core.config.schema import DropoutConfig, TaskConfig, TrainingConfig, TrainingOverrides
from regft_core.methods.base import Cost, Regulariser

#: A regulariser class with its validated options.
Entry = tuple[type[Regulariser], Any]

#: Spacing of representable numbers just below 1: a smaller change is rounded away.
PRECISION_EPSILON = {"fp32": 2.0**-24, "bf16": 2.0**-9, "fp16": 2.0**-12}


def entries(registry: Mapping[str, type[Regulariser]], regularisers: Sequence[tuple[str, Any]]) -> list[Entry]:
    """Pair each (name, options) of a method with its class."""
    return [(registry[name], options) for name, options in regularisers]


def active(stack: Sequence[Entry]) -> list[Entry]:
    """The regularisers whose strength is not 0."""
    return [(cls, options) for cls, options in stack if cls.active(options)]


def _single_owner(owners: list[str], what: str, why: str) -> list[str]:
    if len(owners) <= 1:
        return []
    names = " and ".join(f"'{name}'" for name in owners)
    return [f"{names} both own {what}: {why}; keep one of them"]


def ownership_problems(stack: Sequence[Entry], search: bool) -> list[str]:
    """Clashes over what can have one owner only."""
    problems = []
    names = [cls.name for cls, _ in stack]
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.append(f"regulariser '{name}' is listed twice; merge its options into one entry")
    for phase in ("search", "finetune") if search else ("finetune",):
        owners = [cls.name for cls, options in stack if cls.program(options, phase)]
        why = "each defines which passes and losses a step consists of, and no paper defines their union"
        problems += _single_owner(owners, f"the step program of the {phase} phase", why)
    owners = [cls.name for cls, options in stack if cls.owns_weights(options)]
    problems += _single_owner(owners, "the weight view", "each computes the forward weights from the trained ones")
    owners = [cls.name for cls, options in stack if cls.optimizer(options)]
    problems += _single_owner(owners, "the optimiser", "each is defined on an update rule of its own")
    owners = [cls.name for cls, options in stack if cls.search_phase(options)]
    problems += _single_owner(owners, "the search phase", "fine-tuning can start from one searched state only")
    return problems


def _dropout_side(side: str, stack: Sequence[Entry], declared: Any) -> tuple[Any, list[str]]:
    """Negotiate one kind of dropout; ``declared`` is the method YAML's own value or None."""
    problems: list[str] = []
    value, owner = declared, "training.dropout"
    for cls, options in stack:
        wish = getattr(cls.dropout(options), side)
        if not isinstance(wish, int | float) or isinstance(wish, bool):
            continue
        if value is None:
            value, owner = float(wish), cls.name
        elif value != wish:
            given = "keeps the checkpoint's value" if value == "keep" else f"sets it to {value}"
            problems.append(f"{side} dropout: '{cls.name}' needs {wish} but {owner} {given}; make the two agree")
    for cls, options in stack:
        if getattr(cls.dropout(options), side) == "on" and value == 0.0:
            problems.append(f"{side} dropout: '{cls.name}' needs it on but {owner} sets it to 0; make the two agree")
    return value, problems


def negotiate_dropout(
    stack: Sequence[Entry], shared: DropoutConfig, overrides: TrainingOverrides
) -> tuple[DropoutConfig, list[str]]:
    """Settle hidden and attention dropout of a method.

    A value in the method's own YAML and the wish of every regulariser must agree; only then
    does the shared protocol's value fill what nobody asked for.
    """
    declared = overrides.dropout
    explicit = declared.model_fields_set if declared is not None else set()
    settled, problems = {}, []
    for side in ("hidden", "attention"):
        own = getattr(declared, side) if declared is not None and side in explicit else None
        value, found = _dropout_side(side, stack, own)
        settled[side] = getattr(shared, side) if value is None else value
        problems += found
    return DropoutConfig(**settled), problems


def resolve_training(
    stack: Sequence[Entry], shared: TrainingConfig, overrides: TrainingOverrides
) -> tuple[TrainingConfig, list[str]]:
    """The protocol that a method really runs under, and what speaks against it."""
    acting = active(stack)
    training = overrides.apply(shared)
    dropout, problems = negotiate_dropout(acting, shared.dropout, overrides)
    training = training.model_copy(update={"dropout": dropout})
    for cls, options in acting:
        wanted = cls.optimizer(options)
        if wanted is None:
            continue
        if overrides.optimizer not in (None, wanted):
            problems.append(
                f"'{cls.name}' is defined on {wanted} but training.optimizer says {overrides.optimizer}; "
                f"remove training.optimizer"
            )
        training = training.model_copy(update={"optimizer": wanted})
    return training, problems


def precision_problems(stack: Sequence[Entry], training: TrainingConfig) -> tuple[list[str], list[str]]:
    """(refusals, degradations) caused by the training precision."""
    refused, degraded = [], []
    for cls, options in active(stack):
        reason = cls.refused_precisions(options).get(training.precision)
        if reason is not None:
            refused.append(f"'{cls.name}' cannot run in {training.precision}: {reason}; use precision: fp32")
        effect = cls.smallest_effect(options)
        if effect is None or effect >= PRECISION_EPSILON[training.precision]:
            continue
        message = (
            f"'{cls.name}' relies on changes of {effect:g}, which {training.precision} rounds away "
            f"(spacing {PRECISION_EPSILON[training.precision]:.1e} near 1)"
        )
        if training.allow_precision_loss:
            degraded.append(message)
        else:
            hint = "use precision: fp32, or set allow_precision_loss: true to run it anyway, marked as degraded"
            refused.append(f"{message}; {hint}")
    return refused, degraded


def check_method(
    stack: Sequence[Entry], shared: TrainingConfig, overrides: TrainingOverrides, task: TaskConfig, search: Any
) -> list[str]:
    """Everything that speaks against running this method on this task.

    ``search`` is the validated search section, or None for a method without a search phase.
    """
    problems = ownership_problems(stack, search is not None)
    for cls, options in stack:
        problems += [f"'{cls.name}': {reason}" for reason in cls.check_options(options, search)]
    training, found = resolve_training(stack, shared, overrides)
    problems += found
    problems += precision_problems(stack, training)[0]
    for cls, options in active(stack):
        problems += [f"'{cls.name}' on this task: {reason}" for reason in cls.check_task(options, task)]
    return problems


def degradations(stack: Sequence[Entry], training: TrainingConfig, task: TaskConfig) -> list[str]:
    """Marks that the result of a run must carry."""
    marks = precision_problems(stack, training)[1]
    for cls, options in active(stack):
        marks += cls.degraded(options, task)
    return marks


def declared_cost(stack: Sequence[Entry]) -> Cost:
    """Passes per step of the fine-tuning phase: those of the owner of the step program."""
    cost = Cost()
    for cls, options in active(stack):
        own = cls.cost(options)
        cost = Cost(max(cost.forward, own.forward), max(cost.backward, own.backward))
    return cost


def variants(stack: Sequence[Entry]) -> str | None:
    """``paper`` or ``released`` where that is a choice; ``mixed`` if regularisers differ."""
    found = {value for cls, options in stack if (value := cls.variant(options)) is not None}
    if not found:
        return None
    return found.pop() if len(found) == 1 else "mixed"
