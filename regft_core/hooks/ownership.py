"""Refusals between regularisers of one phase: what only one of them may own, change or answer; no torch here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from regft_core.catalogue import OPTIMISERS
from regft_core.hooks.base import implements
from regft_core.hooks.declare import is_last, takes_no_steps
from regft_core.hooks.phase_entries import Entry, active
from regft_core.names import suggestion
from regft_core.schema.method import Phase

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


def transforms_loss(entry: Entry) -> bool:
    """Whether a regulariser computes the task's loss in place of the task."""
    return implements(entry.cls, "task_loss")


def works_on_encoder(entry: Entry) -> bool:
    """Whether a regulariser's ingredient is in trained encoder weights, under these options or its defaults.

    A control (L2-SP toward zero) works on the same weights as its method, also where it declares nothing of its own.
    """
    declares = entry.declares
    by_default = Entry(entry.cls, entry.cls.Config()).declares
    return bool(declares.trains_encoder or (not declares.freezes_encoder and by_default.trains_encoder))


def solves_head(entry: Entry) -> bool:
    """Whether a frozen encoder comes with a fit or passes of its own, so that the task's loss trains no head."""
    own = implements(entry.cls, "fit") or bool(entry.program)
    return entry.declares.freezes_encoder and own


def views_head(entry: Entry) -> bool:
    """Whether a regulariser views the weights of the head and no others, so that a frozen encoder is nothing to it."""
    return entry.declares.owns_weights and not works_on_encoder(entry)


def reads_positions(entry: Entry) -> bool:
    """Whether a regulariser reads hidden states by position."""
    declared = entry.declares.reads_positions
    return bool(entry.program) or entry.declares.needs_hidden if declared is None else declared


#: What one regulariser of a phase may own, whether an entry owns it, and why there can be no second owner.
_SINGLE: tuple[tuple[str, Callable[[Entry], object], str], ...] = (
    (
        "the step program",
        lambda entry: entry.program,
        "each defines which passes and losses a step consists of, and no paper defines their union",
    ),
    ("the task's loss", transforms_loss, "each computes it in its own way from the logits"),
    ("the batch", lambda entry: implements(entry.cls, "change_batch"), "each puts another one in its place"),
    ("the gradient", lambda entry: implements(entry.cls, "change_gradients"), "each changes it, and neither is first"),
    (
        "the weight view",
        lambda entry: entry.declares.owns_weights,
        "each computes the forward weights from the trained ones",
    ),
    ("the optimiser", lambda entry: entry.declares.optimizer, "each is defined on an update rule of its own"),
    ("the texts without labels", lambda entry: entry.declares.unlabelled, "each reads a number of its own in a step"),
)
#: Whether an entry excludes others, what of another one it excludes (None: nothing), and the sentence.
_EXCLUDED: tuple[tuple[Callable[[Entry], object], Callable[[Entry], object], str], ...] = (
    (
        lambda entry: entry.program,
        lambda entry: entry.cls.adds_terms,
        "'{other}' adds to the loss of the plain pass, but '{one}' owns the step program and has no plain pass",
    ),
    (
        lambda entry: entry.program and not entry.declares.trains_on_task,
        transforms_loss,
        "'{other}' transforms the task's loss, but '{one}' trains on a loss of its own",
    ),
    (
        lambda entry: entry.declares.virtual_step,
        changes_update,
        "'{other}' {what}, which the virtual step of '{one}' does not model: that is one step along the gradient of "
        "the task's loss at the shared learning rate",
    ),
    (
        lambda entry: entry.declares.freezes_encoder,
        works_on_encoder,
        "'{other}' works on the encoder's trained weights, but '{one}' freezes the encoder, so it would do nothing or "
        "change what stays frozen",
    ),
    (
        solves_head,
        views_head,
        "'{other}' computes the head's weights from trained ones, but '{one}' freezes the encoder and has a solution "
        "or a loss of its own instead of the task's steps, so it would do nothing or spoil what is solved",
    ),
    (
        lambda entry: entry.declares.moves_tokens,
        reads_positions,
        "'{other}' reads hidden states by the positions of the batch, which '{one}' moves",
    ),
    (
        lambda entry: entry.declares.answers_at_mask,
        lambda entry: entry.declares.description.refused_at_mask,
        "'{other}' does not run beside '{one}', which answers at a mask: {what}",
    ),
)


def ownership_problems(stack: Sequence[Entry]) -> list[str]:
    """Clashes over what can have one owner only, and over the order of edits."""
    acting = active(stack)
    problems = []
    for what, owns, why in _SINGLE:
        problems += _single_owner([entry for entry in acting if owns(entry)], what, why)
    for excludes, excluded, sentence in _EXCLUDED:
        for one in filter(excludes, acting):
            for other in acting:
                if other is not one and (clash := excluded(other)):
                    text = sentence.format(other=other.name, one=one.name, what=clash)
                    problems.append(f"{text}; keep one of them")
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


def _single_owner(owners: Sequence[Entry], what: str, why: str) -> list[str]:
    names = " and ".join(f"'{entry.name}'" for entry in owners)
    return [f"{names} both own {what}: {why}; keep one of them"] if len(owners) > 1 else []


def prediction_problems(stack: Sequence[Entry], phase: Phase) -> list[str]:
    """Errors of a regulariser that answers in place of the model."""
    acting = active(stack)
    owners = [entry for entry in acting if implements(entry.cls, "predict")]
    problems = _single_owner(owners, "the prediction", "each answers in place of the model")
    if len(owners) != 1:
        return problems
    name, others = owners[0].name, [f"'{entry.name}'" for entry in acting if entry is not owners[0]]
    if others:
        problems.append(
            f"'{name}' answers in place of the model, so nobody would see what {' and '.join(others)} does to it; "
            "keep one of them"
        )
    problems += [f"'{name}': {problem}" for problem in (*is_last(phase), *takes_no_steps(phase))]
    if phase.repeat is not None:
        problems.append(f"'{name}': what it fits cannot be averaged; remove 'repeat' from its phase")
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
