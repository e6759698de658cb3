"""One phase of one run: take it from the run store, or train it and put it there.

``produce`` trains what is missing; the phases before must be there. ``fetch`` takes what an earlier
stage has produced, by its key, and trains only to restore what was pruned or damaged (it must come
out the same).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from regft_core.config.method import Phase
from regft_core.errors import CodeChanged, InputsChanged, RunFailed
from regft_core.hooks.declare import Handed
from regft_core.phases.code import family
from regft_core.phases.context import Context
from regft_core.phases.environment import environment, other_environments
from regft_core.phases.epoch_scores import epoch_scores
from regft_core.phases.phase_data import member_label, member_streams, run_rows
from regft_core.phases.records import merged_record, phase_record
from regft_core.progress import ProgressWriter
from regft_core.runs.devices import free_memory
from regft_core.runs.fingerprint import Scope
from regft_core.runs.guard import LoadedCode
from regft_core.runs.killpoints import killpoint
from regft_core.runs.stored import StoredRun

if TYPE_CHECKING:
    from torch import Tensor

    from regft_core.data.examples import Example
    from regft_core.phases.training_run import PhaseInputs
    from regft_core.training.best import Judge

#: What is asked of a finished run: that it was run, or that its tensors are there (with the weights, or
#: whatever else it left). Tensors may have been pruned; weights that nothing needed were never stored.
Need = Literal["result", "state", "weights"]
#: Families in whose code the host waits for a GPU in every pass. CUDA does not allow that while it records a step, so
#: theirs run as usual.
WAITING_FAMILIES = {
    "bart": "its head looks for the end tokens of every text",
    "deberta-v2": "it sends a number to the device for its relative positions",
}


def produce(context: Context, phase: Phase, need: Need = "result") -> StoredRun:
    """The result of ``phase``; trained first where the store does not have it (or only a part)."""
    stored = context.store.get(context.key(phase.name))
    if stored is not None and _serves(stored, need):
        return stored
    if phase.repeat is None:
        return _train_and_store(context, phase, None, need)
    return _merge_and_store(context, phase, need)


def fetch(context: Context, name: str, need: Need) -> StoredRun:
    """What an earlier stage has produced; what was pruned or deleted of it, or damaged, is trained again."""
    key = context.key(name)
    stored = context.store.get(key)
    if stored is not None and not _serves(stored, need):
        stored = context.store.restore(key)  # before it is trained again, which takes the code that it was trained with
    return stored if stored is not None and _serves(stored, need) else produce(context, context.phase(name), need)


def _serves(stored: StoredRun, need: Need) -> bool:
    """Whether a finished run has all that is asked of it; a failed one has nothing to give."""
    if need == "result" or stored.result["status"] != "ok":
        return True
    if need == "weights":
        return stored.has_weights and "weights" in stored.tensor_names
    return stored.has_weights or not stored.tensor_names


def _weights_too(context: Context, phase: Phase, need: Need, found: StoredRun | None) -> bool:
    """Whether to store weights: somebody wants them, or the run had them before it was pruned."""
    return need == "weights" or context.weights_wanted(phase) or (found is not None and "weights" in found.tensor_names)


def _loaded(context: Context, phase: Phase, member: int | None, scope: Scope) -> tuple[LoadedCode, dict[str, Any]]:
    """The code that is about to run, as loaded, and the identity of the result that it will have.

    Raises:
        CodeChanged: the files say something else than what is loaded.
        InputsChanged: an earlier stage has produced this phase from something else than what is there now.
    """
    guard = LoadedCode(scope)
    identity = context.identity(phase.name, member)
    if identity["code"] != guard.sha256:
        raise CodeChanged(
            "code-edited", f"the code of phase '{phase.name}' was edited a moment ago; run `dvc repro` again"
        )
    known = context.job.keys.get(phase.name)
    if member is None and known is not None and known != context.store.run_key(identity):
        raise InputsChanged(
            "out-of-date",
            f"phase '{phase.name}' of {context.job.name} must be trained again (its weights were pruned or damaged), "
            "but its configuration, code, data or packages are no longer those it was trained with; run `dvc repro`",
        )
    return guard, identity


# ---------------------------------------------------------------------------------- one member


def _train_and_store(context: Context, phase: Phase, member: int | None, need: Need) -> StoredRun:
    from regft_core.phases.training_run import make_deterministic, outcome_tensors, train

    guard, identity = _loaded(context, phase, member, context.training_scope(phase))
    key = context.store.run_key(identity)
    here = environment(context.device, context.params.execution)
    with context.store.open(key, identity, guard=guard.check, environment=here) as working:
        found = working.finished
        if found is not None and _serves(found, need):
            return found
        execution = context.params.execution
        same = make_deterministic(context.device, execution.deterministic, execution.tf32)
        free_memory(context.device)  # of the phases, members and trials before, which would count in this one's peak
        label = member_label(phase, member)
        base = {"phase": phase.name, "environment": here}
        try:
            inputs = phase_inputs(context, phase, member)
            trained = train(
                inputs,
                judge=_judge(context, phase, member),
                watch=_watch(context, phase),
                checkpointer=working,
                checkpoint_seconds=context.params.execution.checkpoint_seconds,
                progress=ProgressWriter(context.job.progress, context.job.run, label),
                on_step=lambda _: killpoint("step"),
            )
        except RunFailed as error:
            return working.commit(base | {"status": "failed", "error": str(error)})
        tensors = outcome_tensors(inputs, trained, weights=_weights_too(context, phase, need, found))
        record = base | {"status": "ok", "error": None} | phase_record(label, trained)
        record |= epoch_scores(label, trained, phase.training.checkpoint, context.task["primary"])
        return working.commit(record, tensors, require_same_tensors=same)


def phase_inputs(context: Context, phase: Phase, member: int | None) -> PhaseInputs:
    """Rows, start and handed state of a phase as plain values; all of them are in its key.

    Raises RunFailed when a phase before it failed.
    """
    from regft_core.phases.training_run import PhaseInputs

    data = context.data(phase)
    train_rows, validation_rows, _ = run_rows(phase, member, len(data.examples), context.seed(phase))
    return PhaseInputs(
        phase=phase,
        entries=context.entries(phase),
        seed=context.seed(phase),
        streams=member_streams(phase, member),
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
        tf32=context.params.execution.tf32,
        cuda_graphs=context.params.execution.cuda_graphs and family(context.source).name not in WAITING_FAMILIES,
        start=None if phase.start == "checkpoint" else _read(context, phase.start, "weights")[1]["weights"],
        start_head=context.start_head(phase),
        handed=handed(context, phase),
        final=phase.name == context.method.finetune.name,
        examples=data.examples,
        max_length=context.encoder.max_length,
        value_range=data.value_range,
    )


def _judge(context: Context, phase: Phase, member: int | None) -> Judge | None:
    """What chooses the epoch, where that is not the last."""
    if phase.training.checkpoint == "last":
        return None
    return _judge_on(context, context.judging_rows(phase, member))


def _watch(context: Context, phase: Phase) -> Judge | None:
    """What scores the dev set after every epoch, where that is asked for."""
    return _judge_on(context, context.dev_rows()) if phase.training.epoch_scores else None


def _judge_on(context: Context, examples: list[Example]) -> Judge:
    from regft_core.phases.checkpoint_rule import judge

    return judge(context.encode(examples), examples, context.task, context.tokenizer, context.device)


def handed(context: Context, phase: Phase) -> dict[str, Handed]:
    """What the earlier phases that the regularisers of ``phase`` name have left for it, by phase."""
    found = {}
    for name, what in context.needs(phase).items():
        earlier, tensors = _read(context, name, "weights" if what == "weights" else "state")
        found[name] = Handed(earlier.key, tensors.get("state", {}), tensors.get("weights", {}))
    return found


def _read(context: Context, name: str, need: Need) -> tuple[StoredRun, dict[str, dict[str, Tensor]]]:
    """An earlier phase and its tensors as far as they are needed; damaged ones are trained again.

    Raises RunFailed when that phase failed.
    """
    wanted = {"state", "weights"} if need == "weights" else {"state"}

    def load(stored: StoredRun) -> tuple[StoredRun, dict[str, dict[str, Tensor]]]:
        if stored.result["status"] != "ok":
            raise RunFailed("phase-failed", f"phase '{name}' failed: {stored.result['error']}")
        return stored, {kind: stored.load_tensors(kind) for kind in stored.tensor_names if kind in wanted}

    return context.store.read_intact(lambda: fetch(context, name, need), load)


# --------------------------------------------------------------------------------- all members


def _merge_and_store(context: Context, phase: Phase, need: Need) -> StoredRun:
    """Produce every member of a repeated phase and merge them."""
    from regft_core.phases.averaging import merge_mean
    from regft_core.phases.training_run import make_deterministic

    assert phase.repeat is not None
    guard, identity = _loaded(context, phase, None, context.merge_scope(phase))
    key = context.store.run_key(identity)
    members: list[StoredRun] = []
    failed: str | None = None
    for index in range(phase.repeat.times):
        member = _train_and_store(context, phase, index, "result")
        members.append(member)
        if member.result["status"] != "ok":
            failed = f"{member_label(phase, index)}: {member.result['error']}"
            break
    execution = context.params.execution
    here = environment(context.device, execution)
    with context.store.open(key, identity, guard=guard.check) as working:
        found = working.finished
        if found is not None and _serves(found, need):
            return found
        record = {"phase": phase.name, "environment": here} | merged_record(members)
        record["marks"] += other_environments(here, members)
        if failed is not None:
            return working.commit(record | {"status": "failed", "error": failed})
        weights = _weights_too(context, phase, need, found)
        tensors = [_member_tensors(context, phase, index, weights) for index in range(len(members))]
        chosen = list(range(len(members)))
        if phase.repeat.merge == "greedy":
            try:
                chosen, record["soup"] = _greedy(context, phase, tensors)
            except RunFailed as error:
                return working.commit(record | {"status": "failed", "error": f"merging: {error}"})
        return working.commit(
            record | {"status": "ok", "error": None},
            merge_mean([tensors[index] for index in chosen]),
            require_same_tensors=make_deterministic(context.device, execution.deterministic, execution.tf32),
        )


def _greedy(context: Context, phase: Phase, tensors: list[dict[str, dict[str, Tensor]]]) -> tuple[list[int], Any]:
    from regft_core.phases.merge import merge_greedily

    assert phase.repeat is not None
    inputs, task = phase_inputs(context, phase, 0), context.data(phase).task
    chosen, scores = merge_greedily(inputs, tensors, task, phase.repeat.variant)
    return chosen, {"scores": scores, "chosen": chosen}


def _member_tensors(context: Context, phase: Phase, index: int, weights: bool) -> dict[str, dict[str, Tensor]]:
    assert phase.repeat is not None
    need: Need = "weights" if weights or phase.repeat.merge == "greedy" else "state"
    return context.store.read_intact(
        lambda: _train_and_store(context, phase, index, need),
        lambda stored: {
            name: stored.load_tensors(name) for name in stored.tensor_names if name != "weights" or need == "weights"
        },
    )
