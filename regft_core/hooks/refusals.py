"""Refusals of regularisers: beside each other in a phase, and of a phase after those before it; no torch here.

What only one of them may own, change or answer follows from what they declare and which hooks they have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from regft_core.catalogue import OPTIMISERS
from regft_core.hooks.base import implements
from regft_core.hooks.declare import is_last
from regft_core.hooks.registry import Entry, active, entries
from regft_core.kinds import find
from regft_core.names import suggestion
from regft_core.schema.method import Method, Phase, Registry
from regft_core.schema.tasks import TaskConfig
from regft_core.schema.training import EncoderConfig

#: Hooks that change the update of the weights beyond the gradient of the passes.
UPDATES = (
    *("penalty", "pull_weights", "perturb_weights", "change_gradients", "gradient_masks"),
    *("learning_rate_factors", "parameter_groups"),
)


def _changes_update(entry: Entry) -> bool:
    optimizer = entry.declares.optimizer
    brings = optimizer is not None and optimizer not in OPTIMISERS.names()
    return brings or any(implements(entry.cls, hook) for hook in UPDATES)


def _works_on_encoder(entry: Entry) -> bool:
    """Whether its ingredient is in trained encoder weights, under these options or its defaults.

    A control (L2-SP toward zero) works on the same weights as its method, also where it declares nothing of its own.
    """
    by_default = Entry(entry.cls, entry.cls.Config()).declares.trains_encoder
    return bool(entry.declares.trains_encoder or (not entry.declares.freezes_encoder and by_default))


def _reads_positions(entry: Entry) -> bool:
    declared = entry.declares.reads_positions
    return bool(entry.program) or entry.declares.needs_hidden if declared is None else bool(declared)


#: What one regulariser of a phase may own, and whether an entry owns it.
_SINGLE: tuple[tuple[str, Callable[[Entry], object]], ...] = (
    ("the step program", lambda entry: entry.program),
    ("the task's loss", lambda entry: implements(entry.cls, "task_loss")),
    ("the batch", lambda entry: implements(entry.cls, "change_batch")),
    ("the gradient", lambda entry: implements(entry.cls, "change_gradients")),
    ("the weight view", lambda entry: entry.declares.owns_weights),
    ("the optimiser", lambda entry: entry.declares.optimizer),
    ("the texts without labels", lambda entry: entry.declares.unlabelled),
)
#: Whether an entry excludes others, whether another one is excluded, and the sentence.
_EXCLUDED: tuple[tuple[Callable[[Entry], object], Callable[[Entry], object], str], ...] = (
    (
        lambda entry: entry.program,
        lambda entry: entry.cls.adds_terms,
        "'{other}' adds to the loss of the plain pass, but '{one}' owns the step program and has no plain pass",
    ),
    (
        lambda entry: entry.program and not entry.declares.trains_on_task,
        lambda entry: implements(entry.cls, "task_loss"),
        "'{other}' transforms the task's loss, but '{one}' trains on a loss of its own",
    ),
    (
        lambda entry: entry.declares.virtual_step,
        _changes_update,
        "'{other}' changes the update of the weights, which '{one}' does not model: it looks ahead by one step along "
        "the gradient of the task's loss at the shared learning rate",
    ),
    (
        lambda entry: entry.declares.freezes_encoder,
        _works_on_encoder,
        "'{other}' works on the encoder's trained weights, but '{one}' freezes the encoder",
    ),
    (
        lambda entry: entry.declares.freezes_encoder and (implements(entry.cls, "fit") or entry.program),
        lambda entry: entry.declares.owns_weights and not _works_on_encoder(entry),
        "'{other}' computes the head's weights from trained ones, but '{one}' leaves the head none of the task's steps",
    ),
    (
        lambda entry: entry.declares.moves_tokens == "everywhere",
        _reads_positions,
        "'{other}' reads hidden states by the positions of the batch, which '{one}' moves",
    ),
    (
        lambda entry: entry.declares.moves_tokens == "inside",
        lambda entry: entry.declares.reads_positions == "inside",
        "'{other}' acts at the positions of the batch inside the encoder, where '{one}' moves them",
    ),
    (
        lambda entry: entry.declares.answers_at_mask,
        lambda entry: "mask" in entry.declares.description.refused,
        "'{other}' does not run beside '{one}', which answers at a mask: {why}",
    ),
)


def ownership_problems(stack: Sequence[Entry]) -> list[str]:
    """Clashes over what can have one owner only, and over the order of edits."""
    acting = active(stack)
    problems = [said for what, owns in _SINGLE for said in _single_owner([e for e in acting if owns(e)], what)]
    for excludes, excluded, sentence in _EXCLUDED:
        for one in filter(excludes, acting):
            others = [other for other in acting if other is not one and excluded(other)]
            for other in others:
                why = other.declares.description.refused.get("mask")
                said = sentence.format(other=other.name, one=one.name, why=why)
                problems.append(f"{said}; keep one of them")
    for kind, what in (("weights", "the starting weights"), ("structure", "modules or views of weights")):
        at: dict[int, list[str]] = {}
        for entry in acting:
            if kind in entry.declares.edits:
                at.setdefault(entry.declares.edit_order, []).append(f"'{entry.name}'")
        problems += [
            f"{' and '.join(names)} both change {what}, and neither declares which comes first; keep one of them"
            for names in at.values()
            if len(names) > 1
        ]
    return problems


def _single_owner(owners: Sequence[Entry], what: str) -> list[str]:
    names = " and ".join(f"'{entry.name}'" for entry in owners)
    return [f"{names} both own {what}; keep one of them"] if len(owners) > 1 else []


def prediction_problems(stack: Sequence[Entry], phase: Phase) -> list[str]:
    """Errors of a regulariser that answers in place of the model."""
    acting = active(stack)
    owners = [entry for entry in acting if implements(entry.cls, "predict")]
    if len(owners) != 1:
        return _single_owner(owners, "the prediction")
    name = owners[0].name
    problems = [
        f"'{name}' answers in place of the model, so '{other.name}' would change no answer; keep one of them"
        for other in acting
        if other is not owners[0]
    ]
    problems += [f"'{name}': {problem}" for problem in is_last(phase)]
    if phase.training.epochs:
        problems.append(f"'{name}': it is fitted and takes no steps; give its phase 'training: {{epochs: 0}}'")
    if key := "repeat" if phase.repeat is not None else "refit" if phase.refit != 1 else "":
        problems.append(f"'{name}': what it fits cannot be averaged; remove '{key}' from its phase")
    return problems


def pass_problems(stack: Sequence[Entry]) -> list[str]:
    """Restrictions to passes that the phase does not have."""
    acting = active(stack)
    owner = next((names for entry in acting if (names := entry.program)), None)
    known = owner or ("main", *(name for entry in acting for name in entry.declares.passes))
    return [
        f"'{entry.name}' is to act in the pass '{name}', which this phase does not have; {suggestion(name, known)}"
        for entry in acting
        for name in entry.declares.acts_in or ()
        if name not in known
    ]


def hidden_label_problems(stack: Sequence[Entry], phase: Phase) -> list[str]:
    """The error of a phase that hides its rows' labels, all 0 then, and trains on the task's loss all the same."""
    declared = [entry.declares for entry in active(stack)]
    learns = any({"answers", "hidden"} & {*one.needs.values()} or not one.trains_on_task for one in declared)
    if phase.data.labels or learns or not phase.training.epochs:
        return []
    return ["data.labels: false hides the labels it trains on; remove it, or add distil (weight: 1) or masked_lm"]


#: Hooks by which a regulariser acts in a phase without steps.
WITHOUT_STEPS = ("edit_weights", "fit", "hand", "keep", "predict", "rebuild", "skip")


def idle_problems(stack: Sequence[Entry], phase: Phase) -> list[str]:
    """Errors of regularisers that act in steps alone, in a phase that takes none."""
    acting = [] if phase.training.epochs else active(stack)
    measured = any(implements(entry.cls, "fit") for entry in acting)  # with the loss of one that replaces it
    return [
        f"'{entry.name}' acts in steps, and this phase takes none; move it to one that does, or set epochs above 0"
        for entry in acting
        if not (entry.declares.edits or any(implements(entry.cls, hook) for hook in WITHOUT_STEPS))
        and not (measured and implements(entry.cls, "task_loss"))
    ]


def encoder_problems(
    stack: Sequence[Entry], phase: Phase, encoder: EncoderConfig, task: TaskConfig | None
) -> list[str]:
    """Regularisers that do not fit how the encoder reads a text: in windows, at a mask, each of a pair alone."""
    separate = task is not None and encoder.rows_per_example(task.columns.text_pair is not None) != 1
    answering = [entry.name for entry in active(stack) if entry.declares.answers_at_mask]
    jointly = "set pairs: jointly for this method, under its key 'model'"
    asked = {
        "windows": (encoder.windows > 1, "model.windows", "set model.windows: 1, or leave out this method"),
        "separately": (separate, "model.pairs: separately", jointly),
    }
    problems = [
        f"'{entry.name}' does not run with {setting}: {why}; {hint}"
        for entry in active(stack)
        for what, (is_asked, setting, hint) in asked.items()
        if is_asked and (why := entry.declares.description.refused.get(what))
    ]
    if encoder.pooling != "mask":
        problems += [f"'{name}' answers at a mask; give the method model: {{pooling: mask}}" for name in answering]
    elif phase.data.labels and not answering:
        message = "model.pooling: mask answers by words at a mask, and nothing says which"
        problems.append(f"{message}; add the regulariser verbaliser to this phase, or take another pooling")
    return problems


def earlier_problems(registry: Registry, method: Method, phase: Phase) -> list[str]:
    """Errors of a phase after those before it: no state or other weights are handed over, an anchor was drawn anew."""
    acting = {one.name: active(entries(registry, one.regularisers)) for one in method.phases}
    needs = [(e.name, phase.here(name), what) for e in acting[phase.name] for name, what in e.declares.needs.items()]
    problems = [
        f"'{name}' takes what the phase '{needed}' has learned, and no regulariser there hands anything over; "
        "name another phase, or add such a regulariser to it"
        for name, needed, what in needs
        if what == "state" and needed in acting and not any(implements(one.cls, "hand") for one in acting[needed])
    ]
    problems += [
        f"it takes the weights of the phase '{other}', whose answers are those of the mix by '{entry.name}'; add "
        f"'{entry.name}' to this phase, or leave it out there"
        for other in dict.fromkeys([phase.start, *(needed for _, needed, what in needs if what == "weights")])
        for entry in acting.get(other, ())
        if entry.declares.hands_over == "trained" and entry.name not in [one.name for one in acting[phase.name]]
    ]
    anchored = [entry.name for entry in acting[phase.name] if "checkpoint" in entry.declares.anchors]
    start = phase.start
    while anchored and start in acting:
        problems += [
            f"'{name}' pulls toward the checkpoint, but '{entry.name}' in the phase '{start}' drew tensors anew, which "
            "would be pulled back; pull toward the start of the phase, or start from the checkpoint"
            for entry in acting[start]
            if entry.declares.draws_anew
            for name in anchored
        ]
        start = method.phase(start).start
    return problems


def answers_problems(
    registry: Registry, method: Method, phase: Phase, task: TaskConfig | None, tasks: Mapping[str, TaskConfig]
) -> list[str]:
    """Errors of a phase that learns answers: of an earlier one that has none, or for other labels than it gives."""
    problems, own = list[str](), task_of(phase, task, tasks)
    last = phase is method.finetune and (phase.data.labels or phase.teachers(registry))
    if last and own and task and (own.kind, own.labels) != (task.kind, task.labels):
        shown = f"its answers are for {own.labels or own.kind}, and those of the run for {task.labels or task.kind}"
        problems.append(f"{shown}; give '{phase.data.task}' these labels in this order, or name it in an earlier phase")
    for teacher in map(method.phase, phase.teachers(registry)):
        says, other = f"it learns the answers of the phase '{teacher.name}', ", task_of(teacher, task, tasks)
        if not (teacher.data.labels or teacher.teachers(registry)):
            problems.append(f"{says}which learns none; remove 'labels: false' there")
        problems += [
            f"{says}whose weights do not answer without '{entry.name}'; leave that out there"
            for entry in active(entries(registry, teacher.regularisers))
            if implements(entry.cls, "rebuild")
            or entry.declares.answers_at_mask
            or entry.declares.hands_over != "folded"
        ]
        if own and other and (own.kind, own.labels) != (other.kind, other.labels):
            problems.append(f"{says}which are for other labels than those of its rows; give both one 'data.task'")
        if own and other and not (phase.data.labels or find(own.kind).has_labels):
            problems.append(f"{says}which are values, so it needs those of its rows, too; remove 'labels: false'")
    return problems


def task_of(phase: Phase, task: TaskConfig | None, tasks: Mapping[str, TaskConfig]) -> TaskConfig | None:
    """The task whose rows a phase trains on: its own, None where ``tasks`` lacks it, else the cell's ``task``."""
    return task if phase.data.task is None else tasks.get(phase.data.task)
