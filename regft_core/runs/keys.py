"""The code in the key of each kind of result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from regft_core.catalogue import KINDS, MERGES, METHODS, METRICS, OPTIMISERS, POOLINGS, SAMPLERS, SCHEDULES
from regft_core.disk.reading import read_json
from regft_core.models.architectures import Architecture, architecture_of
from regft_core.models.source import ModelSource
from regft_core.runs.code import Scope

if TYPE_CHECKING:
    from regft_core.runs.run_phase import RunPhase

#: Raised when the meaning of anything in the store changes in a way that no hash shows.
RUN_FORMAT = 6

#: What reads labels and groups rows (in keys by content), and what warns of finished predictions.
READING, JUDGING = "regft_core.kinds._reading", "regft_core.kinds._judging"
#: What turns texts into token ids, beside the tokenizer's files.
TOKENS = ("regft_core.data.encode", "regft_core.models.load")
_SCORES = ("regft_core.evaluate.evaluated", "regft_core.evaluate.logits", JUDGING)
#: Scores of epochs, to choose one or to show how the score went.
CHECKPOINT_RULE = "regft_core.runs.epoch_scores"

STAGES: Mapping[str, Scope] = {
    "dataset": Scope(("regft_core.data.prepare",), (JUDGING,)),
    "subsample": Scope(("regft_core.data.subsample",), (JUDGING,)),
    "lengths": Scope(
        ("regft_core.data.lengths", "regft_core.grid.measured_lengths"), ("regft_core.models", "regft_core.hooks")
    ),
    # What builds the model and the batches of one phase and runs its loop, and what makes its tokens.
    "training": Scope(("regft_core.runs.training_run", *TOKENS), (READING, JUDGING)),
    # The members of a phase become one, by a rule whose file is added: by the tensors alone, or by scores of members.
    "merge": Scope(("regft_core.training.merges",), ("regft_core",)),
    "scored_merge": Scope(("regft_core.training.merges", CHECKPOINT_RULE, *_SCORES), (READING, "regft_core.training")),
    # The weights that training leaves are hashed by content.
    "evaluate": Scope(
        ("regft_core.runs.evaluate", "regft_core.runs.finished_model", "regft_core.data.batches", *TOKENS, *_SCORES),
        (READING, "regft_core.training", "regft_core.data.splits"),
    ),
    # One evaluation beyond the scores; its own file is added.
    "evaluation": Scope(("regft_core.evaluate.evaluated", "regft_core.evaluate.analysis_result", JUDGING)),
    "report": Scope(("regft_core.report", "regft_core.schema.params")),
}


def scope_of(
    stage: str,
    own: Iterable[str] = (),
    kinds: Iterable[str] = (),
    metrics: Iterable[str] = (),
    source: ModelSource | None = None,
) -> Scope:
    """Return the code of a stage with ``own`` entries and files that tasks and configuration name, not imports."""
    used = {*own, *map(KINDS.entry, kinds), *map(METRICS.entry, metrics)}
    if source is not None:
        used.add(family(source).module)
    return Scope((*STAGES[stage].entries, *sorted(used)), STAGES[stage].without)


def scope_of_phase(phase: RunPhase, member: int | None = None) -> Scope:
    """The code that trains a phase or a member of it, or that merges the members, with the plug-ins in use."""
    repeat, training, task = phase.repeat, phase.training, phase.run.task
    kinds, scored = {phase.rows.kind}, set[str]()
    if repeat is not None and member is None:
        rule = [MERGES.entry(repeat.merge)]
        if not repeat.scores:
            return scope_of("merge", rule)
        return scope_of("scored_merge", rule, kinds, [phase.rows.task["primary"]], phase.source)
    own = {METHODS.entry(entry.name) for entry in phase.acting} | {SCHEDULES.entry(training.schedule)}
    # Rows set aside and texts without labels come by length, whatever sampler the phase has.
    own |= set(map(SAMPLERS.entry, (training.sampler, "by_length")))
    if phase.declared.teachers(phase.run.registry):
        own.add("regft_core.runs.encoder_tensors")  # which gives it the answers of the earlier phase
    if training.optimizer in OPTIMISERS.names():  # else a regulariser brings its own
        own.add(OPTIMISERS.entry(training.optimizer))
    if phase.encoder.pooling in POOLINGS.names():
        own.add(POOLINGS.entry(phase.encoder.pooling))
    if training.judges_epochs:
        own |= {CHECKPOINT_RULE, JUDGING}
        kinds.add(task["kind"])
    if training.judges_epochs or phase.decision_metric:
        scored.add(task["primary"])
    return scope_of("training", own, kinds, scored, phase.source)


def family(source: ModelSource) -> Architecture:
    """Return the encoder's family. Raises ModelError for one that is not known."""
    model_type = read_json(source.path / "config.json").get("model_type")
    return architecture_of(model_type, where=f"model '{source.name}'")
