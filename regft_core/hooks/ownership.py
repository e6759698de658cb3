"""Refusals between regularisers of one phase: what only one of them may own, change or answer; no torch here."""

from __future__ import annotations

from collections.abc import Sequence

from regft_core.catalogue import OPTIMISERS
from regft_core.hooks.base import implements
from regft_core.hooks.declare import is_last, takes_no_steps
from regft_core.hooks.listed import Entry, active
from regft_core.names import suggestion
from regft_core.schema.method import Phase


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
        "solution or a loss of its own instead of the task's steps, so it would do nothing or spoil what is "
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
    """Errors of a regulariser that answers in place of the model."""
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
