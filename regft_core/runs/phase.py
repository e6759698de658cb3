"""One phase of one run: take it from the run store, or train, finish or merge it and put it there."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from regft_core.catalogue import MERGES
from regft_core.data.prompts import Reading
from regft_core.errors import ModelError, RunFailed
from regft_core.hooks.declare import Handed, Setting
from regft_core.kinds import find
from regft_core.lazy import Tensor
from regft_core.models.architectures import without_dropout
from regft_core.models.devices import free_memory
from regft_core.output import ProgressWriter
from regft_core.runs.encoder_tensors import earlier_answers, load_whole, without_encoder
from regft_core.runs.environment import other_environments
from regft_core.runs.epoch_scores import epoch_scores, judge, merged_epoch_scores, validation_score
from regft_core.runs.keys import family, scope_of_phase
from regft_core.runs.made_once import Made, made_once
from regft_core.runs.rows import member_label, member_streams
from regft_core.runs.run_folder import OpenRun, StoredRun
from regft_core.runs.run_phase import RunPhase
from regft_core.schema.method import FINETUNE
from regft_core.settings.layers import place_in

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from regft_core.runs.training_run import PhaseInputs, TrainedPhase
    from regft_core.training.loop import EpochScores
    from regft_core.training.merges import Outcome

#: What is stored of a run, by name: ``weights``, ``state``, ``kept`` -> named tensors.
Tensors = Mapping[str, Mapping[str, Tensor]]
#: What is asked of a finished run: that it was run, or that its tensors are there (with the weights, or
#: whatever else it left). Tensors may have been pruned; weights that nothing needed were never stored.
Need = Literal["result", "state", "weights"]
#: Families in whose code the host waits for a GPU in every pass (for end tokens, padding, a number for relative
#: positions). CUDA does not allow that while it records a step, so theirs run as usual.
WAITING_FAMILIES = ("bart", "gemma3_text", "qwen3", "deberta-v2")


def produce(phase: RunPhase, need: Need = "result", member: int | None = None) -> StoredRun:
    """Return the result of ``phase``, or of one member of it, from the store; trained first where that lacks it."""
    merges = phase.repeat is not None and member is None

    def make(working: OpenRun, here: Mapping[str, Any]) -> Made:
        # Weights are stored where somebody wants them, or the run had them before it was pruned.
        before = working.finished is not None and "weights" in working.finished.tensor_names
        weights = need == "weights" or phase.weights_wanted or before
        made = _merged(phase, here, weights) if merges else _trained(phase, member, working, weights)
        return made[0], *without_encoder(phase, made[1])

    def serves(stored: StoredRun) -> bool:
        if need == "result" or stored.result["status"] != "ok":
            return True  # a failed one has nothing to give
        if need == "weights":
            return stored.has_weights and "weights" in stored.tensor_names
        return not stored.pruned

    return made_once(
        phase.run,
        lambda now: now.phase(phase.name).identity(member),
        lambda _: scope_of_phase(phase, member),
        f"phase '{member_label(phase.declared.run_name, member)}'",
        make,
        key=phase.key(member),
        serves=serves,
    )


def _trained(phase: RunPhase, member: int | None, working: OpenRun, weights: bool) -> tuple[dict[str, Any], Tensors]:
    """Return the record, and what is stored with it; raises ModelError with file and line of a setting at fault."""
    from regft_core.runs.training_run import outcome_tensors, train

    run, training = phase.run, phase.training
    free_memory(run.device)  # of phases, members and trials before, which would count in this one's peak
    inputs, label = phase_inputs(phase, member), member_label(phase.declared.run_name, member)
    if reason := phase.dropped_head:
        log.info("%s: phase '%s' draws a new head, for %s", run.job.name, phase.name, reason)
    try:
        done = train(
            inputs,
            looks=_looks(phase, member),
            checkpointer=working,
            checkpoint_seconds=run.params.execution.checkpoint_seconds,
            progress=ProgressWriter(run.job.progress, run.job.name, member_label(phase.name, member)),
        )
    except ModelError as error:
        place = place_in(run.project, run.job.method, phase.settled, error.text)
        if place is None:
            raise
        raise ModelError(error.code, f"{place}: {error.text}") from error
    tensors = outcome_tensors(inputs, done, weights=weights)
    record = phase_record(label, done) | ({"new_head": reason} if reason else {})
    return record | epoch_scores(label, done, training.checkpoint, run.task["primary"]), tensors


def _merged(phase: RunPhase, here: Mapping[str, Any], weights: bool) -> tuple[dict[str, Any], Tensors]:
    """Produce every member of a merged phase and merge them; failed from the first member that fails."""
    repeat = phase.repeat
    assert repeat is not None
    results: list[dict[str, Any]] = []
    for one in phase.members:
        results.append(produce(one[0], member=one[1]).result)
        if results[-1]["status"] != "ok":
            break
    record = merged_record(results)
    record["marks"] += other_environments(here, ((phase.declared.run_name, result) for result in results))
    if results[-1]["status"] != "ok":
        failed = f"{member_label(one[0].declared.run_name, one[1])}: {results[-1]['error']}"
        return record | {"status": "failed", "error": failed}, {}
    need: Need = "weights" if weights or repeat.scores else "state"
    tensors = [_read(of, need, member)[1] for of, member in phase.members]
    inputs = cache(lambda: phase_inputs(phase, 0))

    def score(member: Outcome) -> float:
        if not repeat.scores:  # its key has no metric
            where = MERGES.path(repeat.merge)
            raise RunFailed("scores-undeclared", f"{where} asks for scores; add SCORES = True to it")
        return validation_score(inputs(), member, phase.rows.task)

    try:
        merged, choice = MERGES.load(repeat.merge).merge(tensors, score)
    except RunFailed as error:
        return record | {"status": "failed", "error": f"merging: {error}"}, {}
    return record | ({"soup": choice} if choice else {}), merged


def _read(phase: RunPhase, need: Need, member: int | None = None) -> tuple[StoredRun, dict[str, dict[str, Tensor]]]:
    """Return a run of a phase with its whole tensors, weights only where ``need`` says so; a failed one has none."""

    def load(stored: StoredRun) -> tuple[StoredRun, dict[str, dict[str, Tensor]]]:
        names = stored.tensor_names if stored.result["status"] == "ok" else []
        wanted = (name for name in names if need == "weights" or name != "weights")
        return stored, {name: load_whole(phase, stored, name) for name in wanted}

    return phase.run.store.read_intact(lambda: produce(phase, need, member), load)


def _earlier(phase: RunPhase, need: Need) -> tuple[StoredRun, dict[str, dict[str, Tensor]]]:
    """Return an earlier phase and its tensors as far as they are needed; raises RunFailed when that phase failed."""
    stored, tensors = _read(phase, need)
    if stored.result["status"] != "ok":
        what = f"phase '{phase.name}' failed: {stored.result['error']}"
        raise RunFailed("phase-failed", f"{what}\n    -> mend the cause, then run `dvc repro` again")
    return stored, tensors


def _handed(phase: RunPhase) -> dict[str, Handed]:
    """Return what the regularisers of ``phase`` take of the earlier phases that they name, by phase."""
    by_phase = {}
    for name, what in phase.needs.items():
        earlier = phase.run.phase(name)
        stored, tensors = _earlier(earlier, "state" if what == {"state"} else "weights")
        given = Handed(stored.key, tensors.get("state", {}), tensors.get("weights", {}))
        if what & {"answers", "hidden"}:
            given = earlier_answers(earlier, given, phase, hidden="hidden" in what)
        by_phase[phase.declared.there(name)] = given
    return by_phase


def setting_of(phase: RunPhase) -> Setting:
    """Return what regularisers know of a phase before its model is built, but for what they fit to."""
    rows, name = phase.rows, phase.declared.run_name
    return Setting(
        kind=rows.kind,
        num_labels=len(find(rows.kind).output_names(rows.labels)),
        seed=phase.seed,
        training=phase.training,
        phase=name,
        final=name == FINETUNE,
        keyword_segment=rows.task.get("keyword_segment"),
        max_length=phase.encoder.max_length,
        reading=Reading.of(phase.encoder),
        value_range=rows.value_range,
        prompt=phase.prompt,
    )


def phase_inputs(phase: RunPhase, member: int | None) -> PhaseInputs:
    """Rows, start and handed state of a phase as plain values; raises RunFailed when a phase before it failed."""
    from regft_core.evaluate.evaluated import positive_index
    from regft_core.runs.training_run import PhaseInputs

    rows, execution, setting = phase.rows, phase.run.params.execution, setting_of(phase)
    if decided := phase.decision_metric:
        positive = positive_index({**decided, "labels": rows.labels}, range(len(rows.labels or ())))
        setting = replace(setting, metric=decided["primary"], positive=positive)
    texts, (train_rows, validation_rows, _) = phase.unlabelled, phase.drawn(member)
    return PhaseInputs(
        entries=phase.entries,
        setting=setting,
        streams=member_streams(phase.declared, member),
        source=phase.source,
        tokenizer=phase.tokenizer,
        encoded=phase.encode(rows.examples),
        unlabelled=None if texts is None else phase.encode(texts.examples),
        train_rows=train_rows,
        validation_rows=validation_rows,
        labels=rows.labels,
        labelled=phase.declared.data.labels,
        device=phase.run.device,
        pooling=phase.encoder.pooling,
        deterministic=execution.deterministic,
        tf32=execution.tf32,
        cuda_graphs=execution.cuda_graphs and family(phase.source).name not in WAITING_FAMILIES,
        start=None if phase.before is None else _earlier(phase.before, "weights")[1]["weights"],
        start_head=phase.start_head,
        handed=_handed(phase),
        examples=rows.examples,
        groups=rows.groups,
        features=phase.features() if phase.fits_to_checkpoint else None,
    )


def _looks(phase: RunPhase, member: int | None) -> list[EpochScores]:
    """The scores of every epoch: those that choose one, and those that are only looked at."""
    from regft_core.training.loop import EpochScores

    looks, rule = list[EpochScores](), phase.training.checkpoint
    if rule != "last":
        held_out = [phase.rows.examples[row] for row in phase.drawn(member)[2]]
        chosen_on = phase.run.dev_rows if rule == "best_on_dev_as_published" else held_out
        looks.append(EpochScores("best", judge(phase, chosen_on), keeps_best=True))
    if phase.training.epoch_scores:
        looks.append(EpochScores("watched", judge(phase, phase.run.dev_rows)))
    return looks


_SUMMED = ("train_seconds", "fit_seconds", "real_tokens", "padded_tokens")


def phase_record(label: str, trained: TrainedPhase) -> dict[str, Any]:
    """Steps, cost, curve ([phase, step, epoch, loss, learning rate, gradient norm or None]) and diagnostics."""
    done = trained.progression
    batches = max(1, done.batches)
    best = next((scores for scores in trained.looks if scores.keeps_best), None)
    chosen = {} if best is None else {"checkpoint": {"step": best.step, "scores": best.scores}}
    return chosen | {
        "steps": done.step,
        "seconds": done.seconds + trained.fit_seconds,
        "skipped": trained.skipped,
        "marks": phase_marks(trained) if trained.skipped is None else [],
        "cost": {
            # Passes are per batch of the step, in units of the batch.
            "forward_passes_per_step": done.forward_passes / batches,
            "backward_passes_per_step": done.backward_passes / batches,
            "batches_per_step": batches / max(1, done.step),
            "train_seconds": done.seconds,
            "fit_seconds": trained.fit_seconds,
            "seconds_per_step": done.seconds / max(1, done.step),
            "real_tokens": done.real_tokens,
            "padded_tokens": done.padded_tokens,
            "peak_memory_bytes": trained.peak_memory_bytes,
        },
        "final_loss": done.curve[-1][2] if done.curve else None,
        "curve": [[label, *values] for values in done.curve],
        "diagnostics": [[label, s, n, v] for n, s, v in trained.stack.diagnostics().values],
    }


def phase_marks(trained: TrainedPhase) -> list[str]:
    """Marks that only training shows: those of regularisers, passes that no dropout tells apart, steps not taken."""
    comparing = [r for r in trained.stack.regularisers if r.declares.dropout.either and not r.marks]
    if comparing and not without_dropout(trained.trainee.model.config):
        comparing = []
    why = "this encoder runs without dropout, so its passes differ by the noise of others or not at all"
    marks, curve = [f"{regulariser.name}: {why}" for regulariser in comparing], trained.progression.curve
    if skipped := sum(norm is None for *_, norm in curve):
        marks.append(f"the gradient overflowed fp16 in {skipped} of {len(curve)} steps, which changed nothing")
    return trained.stack.marks() + marks


def merged_record(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Costs, curves and diagnostics of several phases, or of all members of one, as one record."""
    done = [result for result in results if result["status"] == "ok"]
    steps = sum(result["steps"] for result in done)
    cost: dict[str, Any] = {name: sum(result["cost"][name] for result in done) for name in _SUMMED}
    for name in ("forward_passes_per_step", "backward_passes_per_step", "batches_per_step"):
        cost[name] = sum(r["cost"][name] * r["steps"] for r in done) / max(1, steps)
    cost["seconds_per_step"] = cost["train_seconds"] / max(1, steps)
    cost["peak_memory_bytes"] = max((r["cost"]["peak_memory_bytes"] or 0 for r in done), default=0) or None
    skipped = [result["skipped"] for result in done if result["skipped"]]
    return merged_epoch_scores(done) | {
        "steps": steps,
        "seconds": sum(result["seconds"] for result in done),
        "skipped": "; ".join(skipped) if skipped and len(skipped) == len(done) else None,
        "marks": list(dict.fromkeys(mark for result in done for mark in result["marks"])),
        "cost": cost,
        "final_loss": next((r["final_loss"] for r in reversed(done) if r["final_loss"] is not None), None),
        "curve": [row for result in done for row in result["curve"]],
        "diagnostics": [row for result in done for row in result["diagnostics"]],
    }
