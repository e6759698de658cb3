"""Rules of composition, checked before anything runs; no torch here.

A phase lists regularisers. Here dropout is negotiated, and a phase is compared with its protocol and task. A method is
asked whether it takes steps, learns, answers in place of a model and can be exported. What cannot stand beside each
other is in :mod:`regft_core.hooks.refusals`. Every refusal names the regularisers and the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from regft_core.catalogue import MERGES
from regft_core.hooks import refusals
from regft_core.hooks.base import implements
from regft_core.hooks.registry import Entry, active, entries
from regft_core.kinds import find
from regft_core.schema import DropoutConfig
from regft_core.schema.method import FINETUNE, Method, Phase, Registry
from regft_core.schema.tasks import FoldsConfig, TaskConfig
from regft_core.schema.training import EncoderConfig, TrainingConfig

#: Half the spacing of representable numbers just below 1: a smaller change is rounded away.
ROUNDED_AWAY = {"fp32": 2.0**-25, "bf16": 2.0**-9, "fp16": 2.0**-12, "tf32": 2.0**-12}


def negotiate_dropout(
    stack: Sequence[Entry], settled: DropoutConfig, declared: DropoutConfig | None
) -> tuple[DropoutConfig, list[str]]:
    """Settle hidden and attention dropout of a phase.

    What the phase itself says (``declared``) and the wish of every regulariser must agree; its protocol's value
    (``settled``) fills what nobody asked for. A wish for dropout that is on is compared with that, too.
    """
    values, problems = {}, []
    for side in ("hidden", "attention"):
        wishes = [(entry.name, getattr(entry.declares.dropout, side)) for entry in stack]
        asked = [(name, float(wish)) for name, wish in wishes if isinstance(wish, int | float)]
        if declared is not None and side in declared.model_fields_set:
            asked.insert(0, ("training.dropout", getattr(declared, side)))
        shared = f"the shared training.dropout.{side} of params.yaml"
        owner, value = asked[0] if asked else (shared, getattr(settled, side))
        for name, wish in asked[1:]:
            if wish != value:
                given = "keeps the checkpoint's value" if value == "keep" else f"sets it to {value}"
                problems.append(f"{side} dropout: '{name}' needs {wish} but {owner} {given}; make the two agree")
        for name in [entry.name for entry in active(stack) if getattr(entry.declares.dropout, side) == "on"]:
            if value == 0.0:
                hint = f"make the two agree, for instance training: {{dropout: {{{side}: 0.1}}}} in the phase"
                problems.append(f"{side} dropout: '{name}' needs it on but {owner} sets it to 0; {hint}")
        values[side] = value
    return DropoutConfig(**values), problems


def randomness_problems(stack: Sequence[Entry], dropout: DropoutConfig) -> tuple[list[str], list[str]]:
    """(refusals, degradations) of regularisers that compare two passes, where no dropout tells them apart."""
    acting = active(stack)
    wanting = [entry.name for entry in acting if entry.declares.dropout.either]
    if not wanting or dropout.hidden != 0.0 or dropout.attention != 0.0:
        return [], []
    random = [entry.name for entry in acting if entry.declares.random_passes]
    if random:
        others = " and ".join(f"'{name}'" for name in random)
        return [], [f"'{name}' runs without dropout: its passes differ by {others} only" for name in wanting]
    hint = "set training: {dropout: {attention: 0.1}}, or add a regulariser with noise of its own"
    return [f"'{name}' compares two passes, but without dropout both are the same; {hint}" for name in wanting], []


def resolve_training(stack: Sequence[Entry], phase: Phase) -> tuple[TrainingConfig, list[str]]:
    """The protocol that a phase runs under, and the errors in it.

    A regulariser of strength 0 keeps its wishes for dropout and optimiser: a control without the ingredient differs
    in nothing else.
    """
    training = phase.training
    dropout, problems = negotiate_dropout(stack, training.dropout, phase.explicit.get("dropout"))
    training = training.model_copy(update={"dropout": dropout})
    for entry in stack:
        wanted = entry.declares.optimizer
        if wanted is None:
            continue
        given = phase.explicit.get("optimizer")
        if given not in (None, wanted):
            problems.append(
                f"'{entry.name}' is defined on {wanted} but training.optimizer says {given}; remove training.optimizer"
            )
        training = training.model_copy(update={"optimizer": wanted})
    last = phase.run_name == FINETUNE and training.epochs  # only the last phase has epochs to choose from, or to score
    if training.checkpoint != "last" and not last:
        training = training.model_copy(update={"checkpoint": "last"})
    # The rule that chooses by the dev set has its scores already, or something else answers for the model.
    scored = training.checkpoint == "best_on_dev_as_published" or answers_for_model(stack) is not None
    if training.epoch_scores and (scored or not last):
        training = training.model_copy(update={"epoch_scores": False})
    return training if training.epochs else training.without_steps(), problems


def checkpoint_problems(stack: Sequence[Entry], training: TrainingConfig) -> list[str]:
    """Regularisers whose result is made after the last step, where the best epoch is to be the result."""
    if training.checkpoint == "last":
        return []
    return [
        f"'{entry.name}' makes its result after the last step, so no epoch can be chosen (training.checkpoint: "
        f"{training.checkpoint}); set checkpoint: last for this method"
        for entry in active(stack)
        if implements(entry.cls, "finish")
    ]


def precision_problems(
    stack: Sequence[Entry], training: TrainingConfig, tf32: bool = False
) -> tuple[list[str], list[str]]:
    """(refusals, degradations) caused by the training precision; ``tf32``: that of fp32's matrix products."""
    refused, degraded = [], []
    rounded = tf32 and training.precision == "fp32"
    precision, instead = ("tf32", "execution.tf32: false") if rounded else (training.precision, "precision: fp32")
    for entry in active(stack):
        says = entry.declares.description
        reason = says.refused.get(precision)
        if reason is not None:
            refused.append(f"'{entry.name}' cannot run in {precision}: {reason}; use {instead}")
        effect = says.smallest_effect
        if effect is None or effect >= ROUNDED_AWAY[precision]:
            continue
        message = (
            f"'{entry.name}' relies on changes of {effect:g}, which {precision} rounds away "
            f"(whatever is below {ROUNDED_AWAY[precision]:.1e} near 1)"
        )
        if training.allow_precision_loss:
            degraded.append(message)
        else:
            hint = f"use {instead}, or set allow_precision_loss: true to run it anyway, marked as degraded"
            refused.append(f"{message}; {hint}")
    return refused, degraded


def check_phase(
    stack: Sequence[Entry],
    phase: Phase,
    task: TaskConfig | None,
    encoder: EncoderConfig | None = None,
    *,
    tf32: bool = False,
) -> list[str]:
    """The errors of running this phase on its ``task``; where that is None, as it is wrong itself, all but its own.

    ``encoder`` is the section ``model`` with what the method overrides; None stands for one input per example.
    """
    problems = refusals.ownership_problems(stack) + refusals.prediction_problems(stack, phase)
    if encoder is not None:
        problems += refusals.encoder_problems(stack, phase, encoder, task)
    training, found = resolve_training(stack, phase)
    resolved = replace(phase, training=training)
    for cls, options in stack:
        problems += [f"'{cls.name}': {reason}" for reason in cls.check_options(options, resolved)]
    problems += found
    problems += refusals.pass_problems(stack) + refusals.hidden_label_problems(stack, resolved)
    problems += refusals.idle_problems(stack, resolved)
    problems += randomness_problems(stack, training.dropout)[0]
    problems += precision_problems(stack, training, tf32)[0]
    problems += checkpoint_problems(stack, training)
    if task is not None and training.class_weights != "none" and not find(task.kind).has_labels:
        problems.append(
            f"training.class_weights: {training.class_weights} weights classes, and a {task.kind} task has none; set "
            "class_weights: none in the task's own 'training'"
        )
    where = "this task" if phase.data.task is None else f"the phase's task '{phase.data.task}'"
    for entry in active(stack):
        if task is not None:
            problems += [f"'{entry.name}' on {where}: {reason}" for reason in entry.cls.check_task(entry.options, task)]
        if entry.declares.validation_share and phase.data.split == 1.0:
            problems.append(f"'{entry.name}' learns on rows set aside; give the phase 'data: {{split: 0.8}}'")
    return list(dict.fromkeys(problems))


def check_method(
    registry: Registry,
    method: Method,
    task: TaskConfig | None,
    model: EncoderConfig | None = None,
    tasks: Mapping[str, TaskConfig] | None = None,
    *,
    tf32: bool = False,
) -> list[str]:
    """The errors of running a method on ``task``, with None on any task; phases are named where there are several.

    ``model`` is the shared section of that name, before the method's own overrides. ``tasks`` holds the tasks that
    phases name as their own; a phase is checked on its own, not on the cell's.
    """
    problems, tasks = list[str](), tasks or {}
    for phase in method.phases:
        encoder = method.encoder(model, phase) if model is not None else None
        prefix = f"phase '{phase.name}': " if len(method.phases) > 1 else ""
        stack = entries(registry, phase.regularisers)
        trained_on = refusals.task_of(phase, task, tasks)
        found = check_phase(stack, phase, trained_on, encoder, tf32=tf32)
        found += refusals.earlier_problems(registry, method, phase)
        found += refusals.answers_problems(registry, method, phase, task, tasks)
        chooses = resolve_training(stack, phase)[0].checkpoint == "best_on_dev_as_published"
        if chooses and task is not None and isinstance(task.splits.dev, FoldsConfig):
            found.append(
                "training.checkpoint: best_on_dev_as_published chooses the epoch on the fold that it is then evaluated "
                "on; set checkpoint: best_on_split"
            )
        problems += [prefix + problem for problem in found]
    return problems


def degradations(
    registry: Registry,
    method: Method,
    task: TaskConfig,
    tasks: Mapping[str, TaskConfig] | None = None,
    *,
    tf32: bool = False,
) -> list[str]:
    """Marks that the results of a method must carry, trained in ``tf32`` or not; ``tasks``: see ``check_method``."""
    marks = []
    for phase in method.phases:
        stack = entries(registry, phase.regularisers)
        training, _ = resolve_training(stack, phase)
        marks += precision_problems(stack, training, tf32)[1]
        marks += randomness_problems(stack, training.dropout)[1]
        trained_on = refusals.task_of(phase, task, tasks or {})
        if trained_on is not None:
            found = (entry.declares.description.degraded.get(trained_on.kind) for entry in active(stack))
            marks += [mark for mark in found if mark is not None]
        size = "full" if any(entry.declares.unlabelled for entry in active(stack)) else phase.data.size
        if size is not None and (size != phase.data.size or not phase.data.labels):
            rows = "all" if size == "full" else f"{size:,}"
            marks.append(f"phase '{phase.name}' reads the text of {rows} training rows, without their labels")
        if phase.data.task is not None:
            marks.append(f"phase '{phase.name}' trains on labelled rows of another task, {phase.data.task}")
    return list(dict.fromkeys(marks))


def variants(method: Method, registry: Registry) -> str | None:
    """``paper`` or ``released`` where that is a choice; ``mixed`` if regularisers, or merges of members, differ."""
    merges = [MERGES.load(phase.repeat.merge) for phase in method.phases if phase.repeat is not None]
    acting = [entry for phase in method.phases for entry in active(entries(registry, phase.regularisers))]
    found = {getattr(merge, "VARIANT", None) for merge in merges}
    found |= {e.declares.description.variant or getattr(e.options, "variant", None) for e in acting}
    found.discard(None)
    return "mixed" if len(found) > 1 else next(iter(found), None)


def answers_without_encoder(stack: Sequence[Entry]) -> Entry | None:
    """The regulariser that answers in place of a model and reads no encoder: what it kept is all there is."""
    owner = answers_for_model(stack)
    return owner if owner is not None and owner.declares.reads != "encoder" else None


def answers_for_model(stack: Sequence[Entry]) -> Entry | None:
    """The regulariser that answers in place of a model."""
    return next((e for e in active(stack) if implements(e.cls, "predict")), None)


def takes_steps(method: Method) -> bool:
    """Whether any phase takes optimiser steps; without them a method is solved, in seconds."""
    return any(phase.training.epochs for phase in method.phases)


def learns(registry: Registry, method: Method) -> bool:
    """Whether a method learns from labelled rows: it takes steps, or fits something to them."""
    labelled = (phase for phase in method.phases if phase.data.labels)
    acting = (entry for phase in labelled for entry in active(entries(registry, phase.regularisers)))
    return takes_steps(method) or any(implements(entry.cls, "fit") for entry in acting)


def in_the_way_of_export(registry: Registry, regularisers: Sequence[tuple[str, Any]]) -> str | None:
    """The regulariser of a last phase whose runs have no export: plain weights would give other answers."""
    known = entries(registry, [pair for pair in regularisers if pair[0] in registry])
    return next((e.name for e in active(known) if implements(e.cls, "rebuild")), None)
