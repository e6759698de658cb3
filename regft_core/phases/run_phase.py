"""One phase of one run: take it from the run store, or train it and put it there.

``produce`` trains what is missing; the phases before must be there. ``fetch`` takes what an earlier
stage has produced, by its key, and trains only to restore weights that were pruned (they must come
out the same).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from regft_core.config.method import Phase
from regft_core.errors import RunFailed, StoreError
from regft_core.hooks.declare import Handed
from regft_core.phases.context import Context
from regft_core.phases.environment import environment
from regft_core.phases.facts import own_modules
from regft_core.phases.phase_data import split_rows
from regft_core.phases.records import merged_record, phase_record
from regft_core.progress import ProgressWriter
from regft_core.runs.fingerprint import training_scope
from regft_core.runs.guard import LoadedCode
from regft_core.runs.killpoints import killpoint
from regft_core.runs.stored import StoredRun

if TYPE_CHECKING:
    from torch import Tensor

    from regft_core.phases.training_run import PhaseInputs


def produce(context: Context, phase: Phase) -> StoredRun:
    """The result of ``phase``; trained first where the store does not have it (or only a part)."""
    key = context.key(phase.name)
    weights = context.weights_wanted(phase)
    stored = context.store.get(key)
    if stored is not None and _serves(stored, weights):
        return stored
    if phase.repeat is None:
        return _train_and_store(context, phase, None)
    return _merge_and_store(context, phase)


def fetch(context: Context, name: str, *, weights: bool) -> StoredRun:
    """What an earlier stage has produced.

    Raises StoreError when the store does not have it. Weights that were pruned are trained again.
    """
    key = context.key(name)
    stored = context.store.get(key)
    if stored is None and context.store.damaged_of(key):
        return produce(context, context.phase(name))  # it was there, and proved damaged
    if stored is None:
        raise StoreError(
            f"phase '{name}' of {context.job.name} is not in the run store {context.store.path} (key {key[:12]}); "
            "the store was changed by hand or damaged. Run `dvc repro -f` for its search and finetune stages"
        )
    return stored if _serves(stored, weights) else produce(context, context.phase(name))


def _serves(stored: StoredRun, weights: bool) -> bool:
    """Whether a finished run has all that is asked of it; a failed one has nothing to give."""
    return stored.result["status"] != "ok" or not stored.tensor_names or (stored.has_weights or not weights)


# ---------------------------------------------------------------------------------- one member


def _train_and_store(context: Context, phase: Phase, member: int | None) -> StoredRun:
    from regft_core.phases.training_run import make_deterministic, outcome_tensors, train

    guard = LoadedCode(training_scope(own_modules(context.entries(phase), phase, context.source)))
    identity = context.identity(phase.name, member)
    key = context.store.run_key(identity)
    here = environment(context.device, context.params.execution)
    with context.store.open(key, identity, guard=guard.check, environment=here) as working:
        found = working.finished
        if found is not None and _serves(found, context.weights_wanted(phase)):
            return found
        same = make_deterministic(context.device, context.params.execution.deterministic)
        base = {"phase": phase.name, "environment": here}
        try:
            inputs = phase_inputs(context, phase, member)
            trained = train(
                inputs,
                checkpointer=working,
                checkpoint_seconds=context.params.execution.checkpoint_seconds,
                progress=ProgressWriter(context.job.progress, context.job.run, _label(phase, member)),
                on_step=lambda _: killpoint("step"),
            )
        except RunFailed as error:
            return working.commit(base | {"status": "failed", "error": str(error)})
        tensors = outcome_tensors(inputs, trained, weights=context.weights_wanted(phase))
        record = base | {"status": "ok", "error": None} | phase_record(_label(phase, member), trained)
        return working.commit(record, tensors, require_same_tensors=same)


def _label(phase: Phase, member: int | None) -> str:
    return phase.name if member is None else f"{phase.name}-{member}"


def phase_inputs(context: Context, phase: Phase, member: int | None) -> PhaseInputs:
    """Rows, start and handed state of a phase as plain values.

    Raises RunFailed when a phase before it failed.
    """
    from regft_core.phases.training_run import PhaseInputs

    data = context.data(phase)
    vary = phase.repeat.vary if phase.repeat is not None else ()
    index = member or 0
    label = _label(phase, member)
    train_rows, validation_rows = split_rows(
        len(data.examples), phase.data.split, context.seed(phase), phase.name, index if "split" in vary else 0
    )
    start, start_head = _start(context, phase)
    return PhaseInputs(
        phase=phase,
        entries=context.entries(phase),
        seed=context.seed(phase),
        streams={
            "noise": label if "noise" in vary else phase.name,
            "order": label if "order" in vary else phase.name,
            "head": f"head/{index}" if "head" in vary else "head",
        },
        source=context.source,
        tokenizer=context.tokenizer,
        encoded=context.encode(data.examples),
        train_rows=train_rows,
        validation_rows=validation_rows,
        kind=data.kind,
        labels=data.labels,
        keyword_segment=data.task.get("keyword_segment"),
        device=context.device,
        pooling=context.encoder.pooling,
        deterministic=context.params.execution.deterministic,
        start=start,
        start_head=start_head,
        handed=_handed(context, phase),
        final=phase.name == context.method.finetune.name,
    )


def _start(context: Context, phase: Phase) -> tuple[Mapping[str, Tensor] | None, bool]:
    if phase.start == "checkpoint":
        return None, True
    before = context.phase(phase.start)
    same_rows = before.data.task == phase.data.task
    _, weights = _read(context, phase.start, ("weights",))
    return weights["weights"], before.keeps_head and same_rows and phase.seed == before.seed


def _handed(context: Context, phase: Phase) -> dict[str, Handed]:
    found = {}
    for name, what in context.needs(phase).items():
        earlier, tensors = _read(context, name, ("state", "weights") if what == "weights" else ("state",))
        found[name] = Handed(earlier.key, tensors.get("state", {}), tensors.get("weights", {}))
    return found


def _read(context: Context, name: str, wanted: tuple[str, ...]) -> tuple[StoredRun, dict[str, dict[str, Tensor]]]:
    """An earlier phase and those of its tensors that are wanted and there; damaged ones are trained again.

    Raises RunFailed when that phase failed.
    """

    def load(stored: StoredRun) -> tuple[StoredRun, dict[str, dict[str, Tensor]]]:
        if stored.result["status"] != "ok":
            raise RunFailed(f"phase '{name}' failed: {stored.result['error']}")
        return stored, {kind: stored.load_tensors(kind) for kind in wanted if kind in stored.tensor_names}

    return context.store.read_intact(lambda: fetch(context, name, weights=True), load)


# --------------------------------------------------------------------------------- all members


def _merge_and_store(context: Context, phase: Phase) -> StoredRun:
    """Produce every member of a repeated phase and merge them."""
    from regft_core.phases.merge import merge_greedily, merge_mean
    from regft_core.phases.training_run import make_deterministic

    assert phase.repeat is not None
    members: list[StoredRun] = []
    failed: str | None = None
    for index in range(phase.repeat.times):
        member = _train_and_store(context, phase, index)
        members.append(member)
        if member.result["status"] != "ok":
            failed = f"{_label(phase, index)}: {member.result['error']}"
            break
    identity = context.identity(phase.name)
    key = context.store.run_key(identity)
    base = {"phase": phase.name, "environment": environment(context.device, context.params.execution)}
    with context.store.open(key, identity) as working:
        found = working.finished
        if found is not None and _serves(found, context.weights_wanted(phase)):
            return found
        record = base | merged_record(members)
        if failed is not None:
            return working.commit(record | {"status": "failed", "error": failed})
        tensors = [_member_tensors(context, phase, index) for index in range(len(members))]
        chosen = list(range(len(members)))
        if phase.repeat.merge == "greedy":
            chosen, scores = merge_greedily(phase_inputs(context, phase, 0), tensors, context.data(phase).task)
            record["soup"] = {"scores": scores, "chosen": chosen}
        return working.commit(
            record | {"status": "ok", "error": None},
            merge_mean([tensors[index] for index in chosen]),
            require_same_tensors=make_deterministic(context.device, context.params.execution.deterministic),
        )


def _member_tensors(context: Context, phase: Phase, index: int) -> dict[str, dict[str, Tensor]]:
    return context.store.read_intact(
        lambda: _train_and_store(context, phase, index),
        lambda stored: {name: stored.load_tensors(name) for name in stored.tensor_names},
    )
