"""One phase of one run: take it from the run store, or train it and put it there.

``produce`` trains what is missing; the phases before must be there. ``fetch`` takes what an earlier
stage has produced, by its key, and trains only to restore what was pruned or damaged (it must come
out the same).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from regft_core.errors import CodeChanged, InputChanged, ModelError, RunFailed
from regft_core.hooks.declare import Handed
from regft_core.models.devices import free_memory
from regft_core.progress import ProgressWriter
from regft_core.runs.context import Context
from regft_core.runs.encoder_tensors import load_whole, without_encoder
from regft_core.runs.environment import numerics, other_environments, set_up
from regft_core.runs.epoch_scores import epoch_scores
from regft_core.runs.loaded import LoadedCode
from regft_core.runs.records import merged_record, phase_record
from regft_core.runs.rows import member_label, member_streams, run_rows
from regft_core.runs.scopes import Scope, family
from regft_core.runs.store.stored_run import StoredRun
from regft_core.schema.method import Phase
from regft_core.settings.provenance import place_in

if TYPE_CHECKING:
    from torch import Tensor

    from regft_core.data.examples import Example
    from regft_core.runs.store.working_run import WorkingRun
    from regft_core.runs.training_run import PhaseInputs
    from regft_core.training.best import Judge
    from regft_core.training.loop import Checkpointer

    #: What is stored of a run, by name: ``weights``, ``state``, ``kept`` -> named tensors.
    Tensors = Mapping[str, Mapping[str, Tensor]]

#: What is asked of a finished run: that it was run, or that its tensors are there (with the weights, or
#: whatever else it left). Tensors may have been pruned; weights that nothing needed were never stored.
Need = Literal["result", "state", "weights"]
#: Families in whose code the host waits for a GPU in every pass. CUDA does not allow that while it records a step, so
#: theirs run as usual.
WAITING_FAMILIES = {
    "bart": "its head looks for the end tokens of every text",
    "gemma3_text": "it looks for padding when it makes its masks",
    "qwen3": "it looks for padding when it makes its masks",
    "deberta-v2": "it sends a number to the device for its relative positions",
}


def produce(context: Context, phase: Phase, need: Need = "result") -> StoredRun:
    """The result of ``phase``; trained first where the store does not have it (or only a part)."""
    stored = context.store.get(context.keys.of(phase.name))
    if stored is not None and _serves(stored, need):
        return stored
    if phase.repeat is not None:
        return _merge_and_store(context, phase, need)
    if (training := context.keys.training_of(phase)) is not None:
        return _finish_and_store(context, phase, training, need)
    return _train_and_store(context, phase, None, need)


def fetch(context: Context, name: str, need: Need) -> StoredRun:
    """What an earlier stage has produced; what was pruned or deleted of it, or damaged, is trained again."""
    key = context.keys.of(name)
    stored = context.store.get(key)
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
        PlanOutdated: an earlier stage has produced this phase from something else than what is here now.
    """
    guard = LoadedCode(scope)
    identity = context.keys.identity_of(phase, member)
    if identity["code"] != guard.sha256:
        raise CodeChanged(
            "code-edited", f"the code of phase '{phase.name}' was edited a moment ago; run `dvc repro` again"
        )
    if member is None:
        context.keys.require_current(phase.name)  # else it must be trained again (pruned, damaged), and cannot be
    return guard, identity


# ---------------------------------------------------------------------------------- one member


def _train_and_store(context: Context, phase: Phase, member: int | None, need: Need) -> StoredRun:
    guard, identity = _loaded(context, phase, member, context.keys.training_scope(phase))
    key = context.store.run_key(identity)
    here = set_up(context.device, context.params.execution)
    with context.store.open(key, identity, guard=context.unchanged(guard), environment=here) as working:
        found = working.finished
        if found is not None and _serves(found, need):
            return found
        record, tensors = trained(context, phase, member, here, _weights_too(context, phase, need, found), working)
        return _commit(context, phase, working, record, tensors)


def _commit(context: Context, phase: Phase, working: WorkingRun, record: dict[str, Any], tensors: Tensors) -> StoredRun:
    same = record["environment"]["deterministic"] or record["status"] != "ok"
    stored, files = without_encoder(context, phase, tensors)
    return working.commit(record, stored, files, require_same_tensors=same)


def trained(
    context: Context,
    phase: Phase,
    member: int | None,
    here: dict[str, Any],
    weights: bool,
    checkpointer: Checkpointer | None = None,
) -> tuple[dict[str, Any], Tensors]:
    """What training a phase (one member of it) gives, whatever the store has: the record, and what is stored with it.

    Args:
        here: the environment, as ``set_up`` has it.
        weights: whether weights are part of it.

    Raises:
        ModelError: The method cannot train this model. A setting at fault is named with its file and line.
    """
    from regft_core.runs.training_run import outcome_tensors, train

    free_memory(context.device)  # of the phases, members and trials before, which would count in this one's peak
    label = member_label(phase, member)
    base = {"phase": phase.name, "environment": here}
    try:
        inputs = phase_inputs(context, phase, member)
        done = train(
            inputs,
            judge=_judge(context, phase, member),
            watch=_watch(context, phase),
            checkpointer=checkpointer,
            checkpoint_seconds=context.params.execution.checkpoint_seconds,
            progress=ProgressWriter(context.job.progress, context.job.run, label),
        )
    except RunFailed as error:
        return base | {"status": "failed", "error": str(error)}, {}
    except ModelError as error:
        place = place_in(context.project, context.job.method, phase, error.text)
        if place is None:
            raise
        raise ModelError(error.code, f"{place}: {error.text}") from error
    tensors = outcome_tensors(inputs, done, weights=weights)
    record = base | {"status": "ok", "error": None} | phase_record(label, done)
    record["numerics"] = numerics(done.trainee.model)
    record |= epoch_scores(label, done, phase.training.checkpoint, context.task["primary"])
    return record, tensors


def phase_inputs(context: Context, phase: Phase, member: int | None) -> PhaseInputs:
    """Rows, start and handed state of a phase as plain values; all of them are in its key.

    Raises RunFailed when a phase before it failed.
    """
    from regft_core.data.reading import Reading
    from regft_core.runs.training_run import PhaseInputs

    data = context.data(phase)
    train_rows, validation_rows, _ = run_rows(phase, member, data, context.seed(phase))
    return PhaseInputs(
        phase=phase,
        entries=context.entries(phase),
        seed=context.seed(phase),
        streams=member_streams(phase, member),
        source=context.source,
        tokenizer=context.tokenizer,
        encoded=context.encode(data.examples, phase),
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
        groups=data.groups,
        max_length=context.encoder.max_length,
        reading=Reading.of(context.encoder),
        value_range=data.value_range,
        prompt=context.prompt(phase),
        features=context.features if context.keys.fits_to_checkpoint(phase) else None,
    )


def _judge(context: Context, phase: Phase, member: int | None) -> Judge | None:
    """What chooses the epoch, where that is not the last."""
    if phase.training.checkpoint == "last":
        return None
    return _judge_on(context, phase, context.judging_rows(phase, member))


def _watch(context: Context, phase: Phase) -> Judge | None:
    """What scores the dev set after every epoch, where that is asked for."""
    return _judge_on(context, phase, context.dev_rows) if phase.training.epoch_scores else None


def _judge_on(context: Context, phase: Phase, examples: list[Example]) -> Judge:
    from regft_core.runs.epoch_scores import judge

    return judge(context.encode(examples, phase), examples, context.task, context.tokenizer, context.device)


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
            raise RunFailed(
                "phase-failed",
                f"phase '{name}' failed: {stored.result['error']}\n    -> mend the cause, then run `dvc repro` again",
            )
        found = {
            kind: load_whole(context, context.phase(name), stored, kind)
            for kind in stored.tensor_names
            if kind in wanted
        }
        return stored, found

    return context.store.read_intact(lambda: fetch(context, name, need), load)


# --------------------------------------------------------------------------- finished weights


def _finish_and_store(context: Context, phase: Phase, training: Phase, need: Need) -> StoredRun:
    """Produce the training of a phase, which others may share, and what the phase makes of its weights."""
    guard, identity = _loaded(context, phase, None, context.keys.training_scope(phase))
    trained_run = _train_and_store(context, training, None, "result")
    if trained_run.key != identity["trained"]:
        raise InputChanged(f"what phase '{phase.name}' of {context.job.name} is trained with")
    here = set_up(context.device, context.params.execution)
    with context.store.open(context.store.run_key(identity), identity, guard=context.unchanged(guard)) as working:
        found = working.finished
        if found is not None and _serves(found, need):
            return found
        record, tensors = finished(context, phase, training, here, _weights_too(context, phase, need, found))
        return _commit(context, phase, working, record, tensors)


def finished(
    context: Context, phase: Phase, training: Phase, here: dict[str, Any], weights: bool
) -> tuple[dict[str, Any], Tensors]:
    """What a phase makes of the weights of its training, as ``trained`` has it; failed where that has failed."""
    from regft_core.runs.training_run import finish

    done, tensors = context.store.read_intact(
        lambda: _train_and_store(context, training, None, "weights"),
        lambda stored: (
            stored,
            load_whole(context, training, stored, "weights") if stored.result["status"] == "ok" else {},
        ),
    )
    record = done.result | {"environment": here}
    if record["status"] != "ok":
        return record, {}
    record["marks"] = record["marks"] + other_environments(here, [done])
    return record, finish(phase_inputs(context, phase, None), tensors, weights_wanted=weights)


# --------------------------------------------------------------------------------- all members


def _merge_and_store(context: Context, phase: Phase, need: Need) -> StoredRun:
    """Produce every member of a repeated phase and merge them."""
    guard, identity = _loaded(context, phase, None, context.keys.merge_scope(phase))
    key = context.store.run_key(identity)
    members = _members(context, phase, identity["members"])
    here = set_up(context.device, context.params.execution)
    with context.store.open(key, identity, guard=context.unchanged(guard)) as working:
        found = working.finished
        if found is not None and _serves(found, need):
            return found
        record, tensors = merged(context, phase, members, here, _weights_too(context, phase, need, found))
        return _commit(context, phase, working, record, tensors)


def _members(context: Context, phase: Phase, keys: list[str]) -> list[StoredRun]:
    """All members, or those up to the first that failed."""
    found: list[StoredRun] = []
    for index, key in enumerate(keys):
        found.append(_member(context, phase, index, "result", key))
        if found[-1].result["status"] != "ok":
            break
    return found


def merged(
    context: Context, phase: Phase, members: list[StoredRun], here: dict[str, Any], weights: bool
) -> tuple[dict[str, Any], Tensors]:
    """What merging the members of a phase gives, as ``trained`` has it; failed where one of them has failed."""
    from regft_core.runs.merge import merge_mean

    assert phase.repeat is not None
    record = {"phase": phase.name, "environment": here} | merged_record(members)
    record["marks"] += other_environments(here, members)
    if members[-1].result["status"] != "ok":
        failed = f"{member_label(phase, len(members) - 1)}: {members[-1].result['error']}"
        return record | {"status": "failed", "error": failed}, {}
    tensors = [_member_tensors(context, phase, index, weights, one.key) for index, one in enumerate(members)]
    chosen = list(range(len(members)))
    if phase.repeat.merge == "greedy":
        try:
            chosen, record["soup"] = _greedy(context, phase, tensors)
        except RunFailed as error:
            return record | {"status": "failed", "error": f"merging: {error}"}, {}
    return record | {"status": "ok", "error": None}, merge_mean([tensors[index] for index in chosen])


def _greedy(context: Context, phase: Phase, tensors: list[dict[str, dict[str, Tensor]]]) -> tuple[list[int], Any]:
    from regft_core.runs.merge import merge_greedily

    assert phase.repeat is not None
    inputs, task = phase_inputs(context, phase, 0), context.data(phase).task
    chosen, scores = merge_greedily(inputs, tensors, task, phase.repeat.variant)
    return chosen, {"scores": scores, "chosen": chosen}


def _member(context: Context, phase: Phase, index: int, need: Need, key: str) -> StoredRun:
    """One member, from the store or trained now; InputChanged when it is no longer the one that the merge is of."""
    member = _train_and_store(context, phase, index, need)
    if member.key != key:
        raise InputChanged(f"what {member_label(phase, index)} of {context.job.name} is trained with")
    return member


def _member_tensors(
    context: Context, phase: Phase, index: int, weights: bool, key: str
) -> dict[str, dict[str, Tensor]]:
    assert phase.repeat is not None
    need: Need = "weights" if weights or phase.repeat.merge == "greedy" else "state"
    return context.store.read_intact(
        lambda: _member(context, phase, index, need, key),
        lambda stored: {
            name: load_whole(context, phase, stored, name)
            for name in stored.tensor_names
            if name != "weights" or need == "weights"
        },
    )
