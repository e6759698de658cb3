"""One phase of one run: take it from the run store, or train, finish or merge it and put it there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from regft_core.errors import InputChanged, ModelError, RunFailed
from regft_core.hooks.declare import Handed
from regft_core.models.devices import free_memory
from regft_core.progress import ProgressWriter
from regft_core.runs.context import Context
from regft_core.runs.encoder_tensors import load_whole, without_encoder
from regft_core.runs.environment import numerics, other_environments
from regft_core.runs.epoch_scores import epoch_scores
from regft_core.runs.hashed_code import family
from regft_core.runs.made_once import made_once
from regft_core.runs.phase_record import merged_record, phase_record
from regft_core.runs.row_splits import member_label, member_streams, run_rows
from regft_core.runs.run_folder import StoredRun
from regft_core.schema.method import Phase
from regft_core.settings.provenance import place_in

if TYPE_CHECKING:
    from torch import Tensor

    from regft_core.data.examples import Example
    from regft_core.runs.run_folder import OpenRun
    from regft_core.runs.training_run import PhaseInputs
    from regft_core.training.best import Judge

    #: What is stored of a run, by name: ``weights``, ``state``, ``kept`` -> named tensors.
    Tensors = Mapping[str, Mapping[str, Tensor]]
    _Make = Callable[[Context, Phase, int | None, OpenRun, dict[str, Any], bool], tuple[dict[str, Any], Tensors]]

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
    """Return the result of ``phase`` from the store; trained first where that does not have it (or only a part).

    What is trained is stored under a key that an earlier stage may have written down; what was pruned or damaged since
    must come out the same.
    """
    stored = context.store.get(context.keys.of(phase.name))
    return stored if stored is not None and _serves(stored, need) else _made(context, phase, None, need)


def _serves(stored: StoredRun, need: Need) -> bool:
    """Whether a finished run has all that is asked of it; a failed one has nothing to give."""
    if need == "result" or stored.result["status"] != "ok":
        return True
    if need == "weights":
        return stored.has_weights and "weights" in stored.tensor_names
    return stored.has_weights or not stored.tensor_names


def _made(context: Context, phase: Phase, member: int | None, need: Need, key: str | None = None) -> StoredRun:
    """Return a phase (one member of it), from the store or made now.

    Raises InputChanged where a ``key`` is given and the run has another: what it is made of was edited meanwhile.
    """
    if member is None:
        context.keys.require_current(phase.name)  # else what the store has under the present key would pass for it
    training = context.keys.training_of(phase)
    make: _Make
    if phase.repeat is not None and member is None:
        scope, make = context.keys.merge_scope(phase), _merged
    else:
        scope = context.keys.training_scope(phase)
        make = _trained if training is None else partial(_finished, training=training)

    def commit(working: OpenRun, here: dict[str, Any]) -> StoredRun:
        # Weights are stored where somebody wants them, or the run had them before it was pruned.
        before = working.finished is not None and "weights" in working.finished.tensor_names
        weights = need == "weights" or context.keys.weights_wanted(phase) or before
        try:
            record, tensors = make(context, phase, member, working, here, weights)
        except RunFailed as error:
            record, tensors = {"phase": phase.name, "status": "failed", "error": str(error)}, {}
        record["environment"] = here
        tensors, files = without_encoder(context, phase, tensors)
        same = here["deterministic"] or record["status"] != "ok"
        return working.commit(record, tensors, files, require_same_tensors=same)

    run = made_once(
        context,
        context.keys.identity_of(phase, member),
        scope,
        f"phase '{phase.name}'",
        commit,
        current=None,
        serves=partial(_serves, need=need),
    )
    if key is not None and run.key != key:
        raise InputChanged(f"what {member_label(phase, member)} of {context.job.name} is trained with")
    return run


def _trained(
    context: Context, phase: Phase, member: int | None, working: OpenRun, here: dict[str, Any], weights: bool
) -> tuple[dict[str, Any], Tensors]:
    """Train a phase (one member of it); returns the record, and what is stored with it.

    Raises:
        ModelError: The method cannot train this model. A setting at fault is named with its file and line.
    """
    from regft_core.runs.training_run import outcome_tensors, train

    free_memory(context.device)  # of the phases, members and trials before, which would count in this one's peak
    label = member_label(phase, member)
    inputs = phase_inputs(context, phase, member)
    try:
        done = train(
            inputs,
            judge=_judge(context, phase, member),
            watch=_watch(context, phase),
            checkpointer=working,
            checkpoint_seconds=context.params.execution.checkpoint_seconds,
            progress=ProgressWriter(context.job.progress, context.job.run, label),
        )
    except ModelError as error:
        place = place_in(context.project, context.job.method, phase, error.text)
        if place is None:
            raise
        raise ModelError(error.code, f"{place}: {error.text}") from error
    tensors = outcome_tensors(inputs, done, weights=weights)
    record = {"phase": phase.name, "status": "ok", "error": None} | phase_record(label, done)
    record["numerics"] = numerics(done.trainee.model)
    return record | epoch_scores(label, done, phase.training.checkpoint, context.task["primary"]), tensors


def _finished(
    context: Context,
    phase: Phase,
    member: int | None,
    working: OpenRun,
    here: dict[str, Any],
    weights: bool,
    *,
    training: Phase,
) -> tuple[dict[str, Any], Tensors]:
    """Return what a phase makes of the weights of its ``training``, which other methods may share."""
    from regft_core.runs.training_run import finish

    done, tensors = _read(
        context, training, lambda: _made(context, training, None, "weights", working.identity["trained"])
    )
    record = dict(done.result)
    if record["status"] != "ok":
        return record, {}
    record["marks"] = record["marks"] + other_environments(here, [done])
    return record, finish(phase_inputs(context, phase, None), tensors["weights"], weights_wanted=weights)


def _merged(
    context: Context, phase: Phase, member: int | None, working: OpenRun, here: dict[str, Any], weights: bool
) -> tuple[dict[str, Any], Tensors]:
    """Produce every member of a repeated phase and merge them; failed from the first member that fails."""
    from regft_core.runs.merge import merge_greedily, merge_mean

    assert phase.repeat is not None
    keys, members = working.identity["members"], list[StoredRun]()
    for index, key in enumerate(keys):
        members.append(_made(context, phase, index, "result", key))
        if members[-1].result["status"] != "ok":
            break
    record = {"phase": phase.name} | merged_record(members)
    record["marks"] += other_environments(here, members)
    if members[-1].result["status"] != "ok":
        failed = f"{member_label(phase, len(members) - 1)}: {members[-1].result['error']}"
        return record | {"status": "failed", "error": failed}, {}
    need: Need = "weights" if weights or phase.repeat.merge == "greedy" else "state"
    tensors = [
        _read(context, phase, partial(_made, context, phase, index, need, key), weights=need == "weights")[1]
        for index, key in enumerate(keys)
    ]
    chosen = list(range(len(members)))
    if phase.repeat.merge == "greedy":
        inputs, task = phase_inputs(context, phase, 0), context.data(phase).task
        try:
            chosen, scores = merge_greedily(inputs, tensors, task, phase.repeat.variant)
        except RunFailed as error:
            return record | {"status": "failed", "error": f"merging: {error}"}, {}
        record["soup"] = {"scores": scores, "chosen": chosen}
    return record | {"status": "ok", "error": None}, merge_mean([tensors[index] for index in chosen])


def _read(
    context: Context, phase: Phase, ensure: Callable[[], StoredRun], *, weights: bool = True
) -> tuple[StoredRun, dict[str, dict[str, Tensor]]]:
    """Return a run of a phase with its tensors, ``weights`` among them or not; what is damaged is made again."""

    def load(stored: StoredRun) -> tuple[StoredRun, dict[str, dict[str, Tensor]]]:
        names = stored.tensor_names if stored.result["status"] == "ok" else []
        return stored, {
            name: load_whole(context, phase, stored, name) for name in names if weights or name != "weights"
        }

    return context.store.read_intact(ensure, load)


def _earlier(context: Context, name: str, need: Need) -> tuple[StoredRun, dict[str, dict[str, Tensor]]]:
    """Return an earlier phase and its tensors as far as they are needed; raises RunFailed when that phase failed."""
    phase = context.phase(name)
    stored, tensors = _read(context, phase, lambda: produce(context, phase, need), weights=need == "weights")
    if stored.result["status"] != "ok":
        raise RunFailed(
            "phase-failed",
            f"phase '{name}' failed: {stored.result['error']}\n    -> mend the cause, then run `dvc repro` again",
        )
    return stored, tensors


# --------------------------------------------------------------------------- inputs of a training


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
        start=None if phase.start == "checkpoint" else _earlier(context, phase.start, "weights")[1]["weights"],
        start_head=context.keys.start_head(phase),
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
    """Return the judge that chooses the epoch, where that is not the last."""
    if phase.training.checkpoint == "last":
        return None
    return _judge_on(context, phase, context.judging_rows(phase, member))


def _watch(context: Context, phase: Phase) -> Judge | None:
    """Return the judge that scores the dev set after every epoch, where that is asked for."""
    return _judge_on(context, phase, context.dev_rows) if phase.training.epoch_scores else None


def _judge_on(context: Context, phase: Phase, examples: list[Example]) -> Judge:
    from regft_core.runs.epoch_scores import judge

    return judge(context.encode(examples, phase), examples, context.task, context.tokenizer, context.device)


def handed(context: Context, phase: Phase) -> dict[str, Handed]:
    """Return the state of the earlier phases that the regularisers of ``phase`` name, by phase."""
    by_phase = {}
    for name, what in context.keys.needs(phase).items():
        earlier, tensors = _earlier(context, name, "weights" if what == "weights" else "state")
        by_phase[name] = Handed(earlier.key, tensors.get("state", {}), tensors.get("weights", {}))
    return by_phase
