"""Rules of composition, checked before anything runs; no torch here.

A phase lists regularisers. Some resources have one owner (the step program, the optimiser, the
weight view); edits of the model have a declared order; dropout is negotiated; a precision may
erase a method; a method may have no meaning on a task. Every refusal says which regularisers
clash and why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from regft_core.catalogue import OPTIMISERS
from regft_core.config.method import FINETUNE, Method, Phase
from regft_core.config.schema import DropoutConfig
from regft_core.config.schema.encoder import EncoderConfig
from regft_core.config.schema.tasks import FoldsConfig, TaskConfig
from regft_core.config.schema.training import TrainingConfig
from regft_core.hooks.base import Regulariser, implements
from regft_core.hooks.checks import is_last, takes_no_steps
from regft_core.hooks.declare import Declares
from regft_core.kinds import find
from regft_core.names import suggestion

#: Spacing of representable numbers just below 1: a smaller change is rounded away.
PRECISION_EPSILON = {"fp32": 2.0**-24, "bf16": 2.0**-9, "fp16": 2.0**-12, "tf32": 2.0**-12}


class Entry(NamedTuple):
    """A regulariser class with its validated options."""

    cls: type[Regulariser]
    options: Any

    @property
    def name(self) -> str:
        return self.cls.name

    @property
    def declares(self) -> Declares:
        return self.cls.declare(self.options)


def entries(registry: Mapping[str, type[Regulariser]], regularisers: Sequence[tuple[str, Any]]) -> list[Entry]:
    """Pair each (name, options) of a phase with its class."""
    return [Entry(registry[name], options) for name, options in regularisers]


def active(stack: Sequence[Entry]) -> list[Entry]:
    """The regularisers whose strength is not 0."""
    return [entry for entry in stack if entry.declares.active]


def _single_owner(owners: list[str], what: str, why: str) -> list[str]:
    if len(owners) <= 1:
        return []
    names = " and ".join(f"'{name}'" for name in owners)
    return [f"{names} both own {what}: {why}; keep one of them"]


def ownership_problems(stack: Sequence[Entry]) -> list[str]:
    """Clashes over what can have one owner only, and over the order of edits."""
    problems = []
    acting = active(stack)
    owners = [entry.name for entry in acting if entry.declares.program]
    why = "each defines which passes and losses a step consists of, and no paper defines their union"
    problems += _single_owner(owners, "the step program", why)
    adding = [entry.name for entry in acting if entry.declares.adds_terms]
    if owners and adding:
        added = " and ".join(f"'{name}'" for name in adding) + (" adds" if len(adding) == 1 else " add")
        problems.append(
            f"{added} to the loss of the plain pass, but '{owners[0]}' owns the step program and has no plain pass; "
            "keep one of them"
        )
    problems += _loss_problems(acting) + _virtual_problems(acting)
    owners = [entry.name for entry in acting if entry.declares.owns_weights]
    problems += _single_owner(owners, "the weight view", "each computes the forward weights from the trained ones")
    owners = [entry.name for entry in acting if entry.declares.optimizer]
    problems += _single_owner(owners, "the optimiser", "each is defined on an update rule of its own")
    for kind, what in (("weights", "the starting weights"), ("structure", "modules or views of weights")):
        at: dict[int, list[str]] = {}
        for entry in acting:
            if kind in entry.declares.edits:
                at.setdefault(entry.declares.edit_order, []).append(entry.name)
        for names in at.values():
            if len(names) > 1:
                both = " and ".join(f"'{name}'" for name in names)
                problems.append(f"{both} both change {what}, and neither declares which comes first; keep one of them")
    problems += _frozen_problems(acting) + _head_problems(acting) + _moved_problems(acting)
    return problems + _masked_problems(acting)


def _loss_problems(acting: Sequence[Entry]) -> list[str]:
    """Clashes over the task's loss and over the gradient, which one regulariser of a phase may change."""
    transforming = [entry.name for entry in acting if transforms_loss(entry)]
    problems = _single_owner(transforming, "the task's loss", "each computes it in its own way from the logits")
    batching = [entry.name for entry in acting if implements(entry.cls, "change_batch")]
    problems += _single_owner(batching, "the batch", "each puts another one in its place")
    changing = [entry.name for entry in acting if implements(entry.cls, "change_gradients")]
    problems += _single_owner(changing, "the gradient", "each changes it, and neither comes first")
    for entry in acting:
        if entry.declares.program and not entry.declares.trains_on_task:
            problems += [
                f"'{name}' transforms the task's loss, but '{entry.name}' trains on a loss of its own; keep one of them"
                for name in transforming
            ]
    return problems


def transforms_loss(entry: Entry) -> bool:
    """Whether a regulariser computes the task's loss in place of the task."""
    return implements(entry.cls, "task_loss")


#: Hooks that change the update of the weights -> what a regulariser with such a hook does.
UPDATES = {
    "penalty": "pulls the weights",
    "pull_weights": "pulls the weights",
    "perturb_weights": "adds noise to the weights after each step",
    "change_gradients": "changes the gradient",
    "gradient_masks": "masks the gradient",
    "learning_rate_factors": "gives tensors learning rates of their own",
    "parameter_groups": "gives tensors settings of their own",
}


def changes_update(entry: Entry) -> str | None:
    """How a regulariser changes the update of the weights, beyond the gradient of the passes; None: it does not."""
    optimizer = entry.declares.optimizer
    if optimizer is not None and optimizer not in OPTIMISERS.names():
        return "brings an update rule of its own"
    return next((what for hook, what in UPDATES.items() if implements(entry.cls, hook)), None)


def _virtual_problems(acting: Sequence[Entry]) -> list[str]:
    """Regularisers that change the weights' update beside one that predicts it by a plain gradient step."""
    return [
        f"'{entry.name}' {what}, which the virtual step of '{owner.name}' does not model: that is one step along the "
        "gradient of the task's loss at the shared learning rate; keep one of them"
        for owner in acting
        if owner.declares.virtual_step
        for entry in acting
        if entry is not owner and (what := changes_update(entry))
    ]


def _frozen_problems(acting: Sequence[Entry]) -> list[str]:
    """Regularisers of trained encoder weights beside one that freezes the encoder."""
    freezing = [entry.name for entry in acting if entry.declares.freezes_encoder]
    return [
        f"'{entry.name}' works on the encoder's trained weights, but '{frozen}' freezes the encoder, so it would do "
        "nothing or change what stays frozen; keep one of them"
        for frozen in freezing
        for entry in acting
        if entry.name != frozen and works_on_encoder(entry)
    ]


def works_on_encoder(entry: Entry) -> bool:
    """Whether a regulariser's ingredient is in trained encoder weights, under these options or its defaults.

    A control (L2-SP toward zero) works on the same weights as its method, also where it declares nothing of its own.
    """
    declares = entry.declares
    by_default = Entry(entry.cls, entry.cls.Config()).declares
    return bool(declares.trains_encoder or (not declares.freezes_encoder and by_default.trains_encoder))


def _head_problems(acting: Sequence[Entry]) -> list[str]:
    """Views of the head alone beside one that takes the head out of the task's loss."""
    solving = [entry.name for entry in acting if solves_head(entry)]
    return [
        f"'{entry.name}' computes the head's weights from trained ones, but '{solver}' freezes the encoder and has a "
        "solution or a loss of its own in the place of the task's steps, so it would do nothing or spoil what is "
        "solved; keep one of them"
        for solver in solving
        for entry in acting
        if entry.name != solver and views_head(entry)
    ]


def solves_head(entry: Entry) -> bool:
    """Whether a frozen encoder comes with a fit or passes of its own, so that the task's loss trains no head."""
    own = implements(entry.cls, "fit") or bool(entry.declares.program)
    return entry.declares.freezes_encoder and own


def views_head(entry: Entry) -> bool:
    """Whether a regulariser views the weights of the head and no others, so that a frozen encoder is nothing to it."""
    return entry.declares.owns_weights and not works_on_encoder(entry)


def _moved_problems(acting: Sequence[Entry]) -> list[str]:
    """Regularisers that read hidden states by position beside one that moves the positions."""
    moving = [entry.name for entry in acting if entry.declares.moves_tokens]
    return [
        f"'{entry.name}' reads hidden states by the positions of the batch, which '{mover}' moves; keep one of them"
        for mover in moving
        for entry in acting
        if entry.name != mover and entry.declares.reads_positions
    ]


def _masked_problems(acting: Sequence[Entry]) -> list[str]:
    """Regularisers that need another head than the one that answers at a mask."""
    return [
        f"'{entry.name}' does not run beside '{answering.name}', which answers at a mask: {why}; keep one of them"
        for answering in acting
        if answering.declares.answers_at_mask
        for entry in acting
        if entry is not answering and (why := entry.declares.says.refused_at_mask)
    ]


def prediction_problems(stack: Sequence[Entry], phase: Phase) -> list[str]:
    """What speaks against a regulariser that answers in place of the model."""
    acting = active(stack)
    owners = [entry.name for entry in acting if entry.declares.owns_prediction]
    problems = _single_owner(owners, "the prediction", "each answers in place of the model")
    if len(owners) != 1:
        return problems
    name, others = owners[0], [f"'{entry.name}'" for entry in acting if entry.name not in owners]
    if others:
        problems.append(
            f"'{name}' answers in place of the model, so nobody would see what {' and '.join(others)} does to it; "
            "keep one of them"
        )
    problems += [f"'{name}': {problem}" for problem in (*is_last(phase), *takes_no_steps(phase))]
    if phase.repeat is not None:
        problems.append(f"'{name}': what it fits cannot be averaged; remove 'repeat' from its phase")
    return problems


def _dropout_side(side: str, stack: Sequence[Entry], declared: Any) -> tuple[Any, list[str]]:
    """Negotiate one kind of dropout; ``declared`` is the method YAML's own value or None."""
    problems: list[str] = []
    value, owner = declared, "training.dropout"
    for entry in stack:
        wish = getattr(entry.declares.dropout, side)
        if not isinstance(wish, int | float) or isinstance(wish, bool):
            continue
        if value is None:
            value, owner = float(wish), entry.name
        elif value != wish:
            given = "keeps the checkpoint's value" if value == "keep" else f"sets it to {value}"
            problems.append(f"{side} dropout: '{entry.name}' needs {wish} but {owner} {given}; make the two agree")
    for entry in active(stack):
        if getattr(entry.declares.dropout, side) == "on" and value == 0.0:
            problems.append(f"{side} dropout: '{entry.name}' needs it on but {owner} sets it to 0; make the two agree")
    return value, problems


def _shared_dropout_problems(side: str, stack: Sequence[Entry]) -> list[str]:
    """Regularisers that need dropout, where nobody in the phase sets it and the shared protocol switches it off."""
    return [
        f"{side} dropout: '{entry.name}' needs it on but the shared training.dropout.{side} of params.yaml is 0; give "
        f"the phase its own, for instance training: {{dropout: {{{side}: 0.1}}}}, or raise the shared one"
        for entry in active(stack)
        if getattr(entry.declares.dropout, side) == "on"
    ]


def negotiate_dropout(
    stack: Sequence[Entry], settled: DropoutConfig, declared: DropoutConfig | None
) -> tuple[DropoutConfig, list[str]]:
    """Settle hidden and attention dropout of a phase.

    What the phase itself says (``declared``) and the wish of every regulariser must agree; only then
    does the shared protocol's value (``settled``) fill what nobody asked for. A wish for dropout that is on is
    held against that, too.
    """
    explicit = declared.model_fields_set if declared is not None else set()
    found, problems = {}, []
    for side in ("hidden", "attention"):
        own = getattr(declared, side) if declared is not None and side in explicit else None
        value, wrong = _dropout_side(side, stack, own)
        found[side] = getattr(settled, side) if value is None else value
        problems += wrong
        if value is None and found[side] == 0.0:
            problems += _shared_dropout_problems(side, stack)
    return DropoutConfig(**found), problems


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


def pass_problems(stack: Sequence[Entry]) -> list[str]:
    """Restrictions to passes that the phase does not have."""
    acting = active(stack)
    owner = next((names for entry in acting if (names := entry.declares.program)), None)
    known = owner or ("main", *(name for entry in acting for name in entry.declares.added_passes))
    return [
        f"'{entry.name}' is to act in the pass '{name}', which this phase does not have; {suggestion(name, known)}"
        for entry in acting
        for name in entry.declares.acts_in or ()
        if name not in known
    ]


def resolve_training(stack: Sequence[Entry], phase: Phase, shared: TrainingConfig) -> tuple[TrainingConfig, list[str]]:
    """The protocol that a phase runs under, and the errors in it.

    A regulariser of strength 0 keeps its wishes for dropout and optimiser: a control without the ingredient differs
    in nothing else.
    """
    acting = active(stack)
    training = phase.training
    dropout, problems = negotiate_dropout(stack, shared.dropout, phase.explicit.get("dropout"))
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
    if training.checkpoint != "last" and (phase.name != FINETUNE or not training.epochs):
        training = training.model_copy(update={"checkpoint": "last"})  # only the last phase has epochs to choose from
    if training.epoch_scores and not _has_epoch_scores(acting, phase, training):
        training = training.model_copy(update={"epoch_scores": False})
    return training, problems


def _has_epoch_scores(acting: Sequence[Entry], phase: Phase, training: TrainingConfig) -> bool:
    """Whether the dev set can be scored by epoch, and is not already: where it chooses the epoch, that rule's scores.

    There is nothing to score before the last phase, without steps, or where something else answers for the model.
    """
    if phase.name != FINETUNE or not training.epochs or training.checkpoint == "best_on_dev_as_published":
        return False
    return not any(entry.declares.owns_prediction for entry in acting)


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
        says = entry.declares.says
        reason = says.refused_precisions.get(precision)
        if reason is not None:
            refused.append(f"'{entry.name}' cannot run in {precision}: {reason}; use {instead}")
        effect = says.smallest_effect
        if effect is None or effect >= PRECISION_EPSILON[precision]:
            continue
        message = (
            f"'{entry.name}' relies on changes of {effect:g}, which {precision} rounds away "
            f"(spacing {PRECISION_EPSILON[precision]:.1e} near 1)"
        )
        if training.allow_precision_loss:
            degraded.append(message)
        else:
            hint = f"use {instead}, or set allow_precision_loss: true to run it anyway, marked as degraded"
            refused.append(f"{message}; {hint}")
    return refused, degraded


def encoder_problems(stack: Sequence[Entry], encoder: EncoderConfig, task: TaskConfig) -> list[str]:
    """Regularisers that cannot act where a text has several rows, or where each text of a pair is a row of its own."""
    problems = [
        f"'{entry.name}' does not run with model.windows: {why}; set model.windows: 1, or leave out this method"
        for entry in active(stack)
        if encoder.windows > 1 and (why := entry.declares.says.refused_windows)
    ]
    if encoder.rows_per_example(task.columns.text_pair is not None) == 1:
        return problems
    return problems + [
        f"'{entry.name}' does not run with model.pairs: separately: {why}; set pairs: jointly for this method, under "
        "its key 'model'"
        for entry in active(stack)
        if (why := entry.declares.says.refused_separate_pairs)
    ]


def mask_problems(stack: Sequence[Entry], phase: Phase, encoder: EncoderConfig) -> list[str]:
    """What is missing for answers at the mask of a template: the head that reads it, or what says how."""
    answering = [entry.name for entry in active(stack) if entry.declares.answers_at_mask]
    if encoder.pooling != "mask":
        return [f"'{name}' answers at a mask; give the method model: {{pooling: mask}}" for name in answering]
    if answering or not phase.data.labels:
        return []
    return [
        "model.pooling: mask answers by words at a mask, and nothing says which; add the regulariser verbaliser to "
        "this phase, or take another pooling"
    ]


def check_phase(
    stack: Sequence[Entry],
    phase: Phase,
    shared: TrainingConfig,
    task: TaskConfig | None,
    encoder: EncoderConfig | None = None,
    *,
    tf32: bool = False,
) -> list[str]:
    """Everything that speaks against running this phase on ``task``.

    ``task`` is the phase's own where it names one (``phase.data.task``), and None where it is wrong itself: then all
    is checked that needs no task. ``encoder`` is the section ``model`` with what the method overrides;
    None stands for one input per example.
    """
    problems = ownership_problems(stack) + prediction_problems(stack, phase)
    if encoder is not None and task is not None:
        problems += encoder_problems(stack, encoder, task)
    if encoder is not None:
        problems += mask_problems(stack, phase, encoder)
    training, found = resolve_training(stack, phase, shared)
    resolved = replace(phase, training=training)
    for cls, options in stack:
        problems += [f"'{cls.name}': {reason}" for reason in cls.check_options(options, resolved)]
    problems += found
    problems += pass_problems(stack)
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
    registry: Mapping[str, type[Regulariser]],
    method: Method,
    shared: TrainingConfig,
    task: TaskConfig | None,
    model: EncoderConfig | None = None,
    tasks: Mapping[str, TaskConfig] | None = None,
    *,
    tf32: bool = False,
) -> list[str]:
    """Everything that speaks against running a method on ``task``; phases are named where there are several.

    With None in the place of ``task``, what speaks against it on any task.
    ``model`` is the shared section of that name, before the method's own overrides. ``tasks`` holds the tasks that
    phases name as their own; a phase is judged on its own, not on the cell's.
    """
    problems = []
    encoder = method.encoder(model) if model is not None else None
    for phase in method.phases:
        prefix = f"phase '{phase.name}': " if len(method.phases) > 1 else ""
        stack = entries(registry, phase.regularisers)
        trained_on = task_of(phase, task, tasks or {})
        problems += [prefix + problem for problem in check_phase(stack, phase, shared, trained_on, encoder, tf32=tf32)]
        problems += [prefix + problem for problem in earlier_problems(registry, method, phase, stack)]
        chooses = resolve_training(stack, phase, shared)[0].checkpoint == "best_on_dev_as_published"
        if chooses and task is not None and isinstance(task.splits.dev, FoldsConfig):
            problems.append(
                f"{prefix}training.checkpoint: best_on_dev_as_published chooses the epoch by the rows that judge the "
                "fold; set checkpoint: best_on_split"
            )
    return problems


def earlier_problems(
    registry: Mapping[str, type[Regulariser]], method: Method, phase: Phase, stack: Sequence[Entry]
) -> list[str]:
    """What speaks against a phase after those before it: nothing is handed over, or anchors mean nothing any more."""
    acting = {one.name: active(entries(registry, one.regularisers)) for one in method.phases}
    problems = [
        f"'{entry.name}' takes what the phase '{needed}' has learned, and no regulariser there hands anything over; "
        "name another phase, or add such a regulariser to it"
        for entry in active(stack)
        for needed, what in entry.declares.needs.items()
        if what == "state" and needed in acting and not any(implements(one.cls, "hand") for one in acting[needed])
    ]
    anchored = [entry.name for entry in active(stack) if "checkpoint" in entry.declares.anchors]
    start = phase.start
    while anchored and start in acting:
        for entry in acting[start]:
            if entry.declares.draws_anew:
                problems += [
                    f"'{name}' pulls toward the checkpoint, but '{entry.name}' in the phase '{start}' drew tensors "
                    "anew, which would be pulled back; pull toward the start of the phase, or start from the checkpoint"
                    for name in anchored
                ]
        start = method.phase(start).start
    return problems


def task_of(phase: Phase, task: TaskConfig | None, tasks: Mapping[str, TaskConfig]) -> TaskConfig | None:
    """The task whose rows a phase trains on: its own, None where ``tasks`` lacks it, else the cell's ``task``."""
    return task if phase.data.task is None else tasks.get(phase.data.task)


def degradations(
    registry: Mapping[str, type[Regulariser]],
    method: Method,
    shared: TrainingConfig,
    task: TaskConfig,
    tasks: Mapping[str, TaskConfig] | None = None,
    *,
    tf32: bool = False,
) -> list[str]:
    """Marks that the results of a method must carry; ``tasks`` as in :func:`check_method`.

    ``tf32``: they were trained in it.
    """
    marks = []
    for phase in method.phases:
        stack = entries(registry, phase.regularisers)
        training, _ = resolve_training(stack, phase, shared)
        marks += precision_problems(stack, training, tf32)[1]
        marks += randomness_problems(stack, training.dropout)[1]
        trained_on = task_of(phase, task, tasks or {})
        if trained_on is not None:
            found = (entry.declares.says.degraded.get(trained_on.kind) for entry in active(stack))
            marks += [mark for mark in found if mark is not None]
        if not phase.data.labels and phase.data.size == "full":
            marks.append(f"phase '{phase.name}' reads the text of all training rows, without their labels")
        if phase.data.task is not None:
            marks.append(f"phase '{phase.name}' trains on labelled rows of another task, {phase.data.task}")
    return list(dict.fromkeys(marks))


def variants(method: Method, registry: Mapping[str, type[Regulariser]]) -> str | None:
    """``paper`` or ``released`` where that is a choice; ``mixed`` if regularisers, or merges of members, differ."""
    found: set[str] = set()
    for phase in method.phases:
        if phase.repeat is not None and phase.repeat.merge == "greedy":
            found.add(phase.repeat.variant)
        for entry in active(entries(registry, phase.regularisers)):
            if (value := entry.declares.says.variant) is not None:
                found.add(value)
    if not found:
        return None
    return found.pop() if len(found) == 1 else "mixed"
