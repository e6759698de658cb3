"""The keys of a job's phases: the hash of everything that determines the result of each; and the code in each key.

A key is computed in the process that trains, from the code that this process has loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from regft_core import metrics
from regft_core.catalogue import KINDS, MERGES, METHODS, METRICS, OPTIMISERS, POOLINGS, SAMPLERS, SCHEDULES
from regft_core.data.examples import to_jsonl
from regft_core.disk.canonical import canonical_json, sha256_json, sha256_text
from regft_core.disk.reading import read_json
from regft_core.hooks.phase_entries import answers_without_encoder
from regft_core.models.source import ModelSource
from regft_core.runs.code import Scope, code_of
from regft_core.runs.rows import member_rows, member_streams
from regft_core.schema.method import FINETUNE, Phase

if TYPE_CHECKING:
    from regft_core.models.architectures import Architecture
    from regft_core.runs.context import Context

# ------------------------------------------------------------------------- the code of each kind of result

StageName = Literal[
    "dataset", "subsample", "lengths", "training", "merge", "scored_merge", "evaluate", "evaluation", "report"
]


#: What reads labels and groups rows (in keys by content), and what warns of finished predictions.
READING, JUDGING = "regft_core.kinds._reading", "regft_core.kinds._judging"
#: What turns texts into token ids, beside the tokenizer's files.
TOKENS = ("regft_core.data.encode", "regft_core.models.load")
_SCORES = ("regft_core.evaluate.evaluated", "regft_core.evaluate.logits", JUDGING)
#: Scores of epochs, to choose one or to show how the score went.
CHECKPOINT_RULE = "regft_core.runs.epoch_scores"
#: What gives an earlier phase's answers to the rows of a phase that learns from them.
ANSWERS = "regft_core.runs.encoder_tensors"
STAGES: Mapping[StageName, Scope] = {
    "dataset": Scope(("regft_core.data.prepare",), (JUDGING,)),
    "subsample": Scope(("regft_core.data.subsample",), (JUDGING,)),
    "lengths": Scope(
        ("regft_core.data.lengths", "regft_core.grid.measured_lengths"), ("regft_core.models", "regft_core.hooks")
    ),
    # What builds the model and the batches of one phase and runs its loop, and what makes its tokens.
    "training": Scope(("regft_core.runs.training_run", *TOKENS), (READING, JUDGING)),
    # The members of a phase become one, by a rule whose file is added: by the tensors alone, or by scores of members.
    "merge": Scope(("regft_core.training.merges",), ("regft_core",)),
    "scored_merge": Scope(
        ("regft_core.training.merges", CHECKPOINT_RULE, *_SCORES),
        (READING, "regft_core.training"),
    ),
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
    stage: StageName,
    own: Iterable[str] = (),
    *,
    kinds: Iterable[str] = (),
    metrics: Iterable[str] = (),
    source: ModelSource | None = None,
) -> Scope:
    """Return the code of a stage with ``own`` entries and the files that no import names.

    Those are kinds of task, metrics and the family of the encoder: the tasks and the configuration name them.
    """
    used = {*own, *map(KINDS.entry, kinds), *map(METRICS.entry, metrics)}
    if source is not None:
        used.add(family(source).module)
    return Scope((*STAGES[stage].entries, *sorted(used)), STAGES[stage].without)


def family(source: ModelSource) -> Architecture:
    """Return the encoder's family. Raises ModelError for one that is not known."""
    from regft_core.models.architectures import architecture_of

    model_type = read_json(source.path / "config.json").get("model_type")
    return architecture_of(model_type, where=f"model '{source.name}'")


# ------------------------------------------------------------------------------------- phases of a job

#: Raised when the meaning of anything in the store changes in a way that no fingerprint shows.
RUN_FORMAT = 5


class Keys:
    """Identities and keys of the phases of one job.

    Args:
        context: what the job has: rows, settings, encoder.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[tuple[str, int | None], str] = {}

    # --------------------------------------------------------------------- what phases have from each other

    def fits_to_checkpoint(self, phase: Phase) -> bool:
        """Whether a phase's fit reads the encoder as its checkpoint has it: nothing else acts, nothing came before."""
        acting = self._context.acting(phase)
        return phase.start == "checkpoint" and len(acting) == 1 and acting[0].declares.freezes_encoder

    def start_head(self, phase: Phase) -> bool:
        """Whether a phase takes over the head of the phase it starts from: the same labels, the same seed."""
        return self._learned_head_before(phase) is not None and not self.dropped_head(phase)

    def dropped_head(self, phase: Phase) -> str:
        """Return why a phase draws a new head though the one that it starts from has learned one; else nothing."""
        context, before = self._context, self._learned_head_before(phase)
        if before is None:
            return ""
        if before.seed is not None or phase.seed is not None:
            return f"the one of phase '{before.name}' is of another seed"
        if before.data.task == phase.data.task:
            return ""
        one, other = ((data.kind, data.labels, data.value_range) for data in map(context.data, (before, phase)))
        return "" if one == other else f"the one of phase '{before.name}' answers for other labels"

    def _learned_head_before(self, phase: Phase) -> Phase | None:
        """Return the phase that ``phase`` starts from, if that learns a head."""
        if phase.start == "checkpoint":
            return None
        before = self._context.method.phase(phase.start)
        return before if before.data.labels or before.teachers(self._context.registry) else None

    def needs(self, phase: Phase) -> dict[str, set[str]]:
        """Earlier phases that the active regularisers of ``phase`` take something from, and what."""
        needed: dict[str, set[str]] = {}
        for entry in self._context.acting(phase):
            for name, what in entry.declares.needs.items():
                needed.setdefault(phase.here(name), set()).add(what)
        return needed

    def weights_wanted(self, phase: Phase) -> bool:
        """Whether anything starts from, or needs, the weights of ``phase``; the last one's are the result.

        What answers in place of the model and does not read the encoder leaves none.
        """
        if phase.name == FINETUNE:
            return answers_without_encoder(self._context.entries(phase)) is None
        phases = self._context.method.phases
        later = phases[[other.name for other in phases].index(phase.name) + 1 :]
        needed = [self.needs(other).get(phase.name, set()) for other in later]
        return any(other.start == phase.name for other in later) or bool(set().union(*needed) - {"state"})

    # ----------------------------------------------------------------------------------------------- identities

    def identity(self, name: str, member: int | None = None) -> dict[str, Any]:
        """Everything that determines the result of a phase (of one member of it)."""
        phase = self._context.phase(name)
        if phase.repeat is not None and member is None:
            return self._merged_identity(phase)
        context, data, seed = self._context, self._context.data(phase), self._context.seed(phase)
        _, held_out = rows = member_rows(phase, member, data, seed)
        prompt, texts = context.prompt(phase), context.unlabelled(phase)
        return {
            "format": RUN_FORMAT,
            **self.shared_identity(phase),
            "seed": seed,
            "rows": data.sha256,
            "rows_per_example": context.encoder_of(phase).rows_per_example(data.summary.pairs),
            "split": sha256_text(canonical_json(rows)) if held_out else None,
            "task": {
                "kind": data.kind,
                "labels": data.labels,
                "keyword_segment": data.task.get("keyword_segment"),
                "range": data.value_range,
            },
            "start": None if phase.start == "checkpoint" else self.of(phase.start),
            "start_head": self.start_head(phase),
            "needs": {phase.there(needed): self.of(needed) for needed in sorted(self.needs(phase))},
            # How many members there are, and how they are merged, is nothing to a member.
            "member": member,
            "streams": member_streams(phase, member),
            "groups": None if data.groups is None else sha256_json(data.groups),  # folds of a solved head keep them
            "unlabelled": texts and texts.sha256,
            "prompt": prompt and {"template": prompt.template, "words": prompt.words},
            "rows_alone": context.rows_alone and self.fits_to_checkpoint(phase),
            **self._judging_rows(phase, member),
            "decision": self.decision_metric(phase),
        }

    def shared_identity(self, phase: Phase) -> dict[str, Any]:
        """Return the part of the identity besides rows, seed and earlier phases.

        Regularisers of strength 0 do nothing, so they and their code are left out.
        """

        def settled() -> dict[str, Any]:
            context, code = self._context, code_of(self.training_scope(phase))
            return {
                "phase": phase.run_name,
                "data": phase.data.model_dump(mode="json", exclude={"task", "size", "steps"}),
                "regularisers": {cls.name: options.model_dump(mode="json") for cls, options in context.acting(phase)},
                "training": phase.training.settled(),
                "model": {"content": context.source_of(phase).content_sha256, **context.reading_of(phase)},
                "code": code.sha256,
                "packages": code.packages,
            }

        what = "shared identity", *self._context.settled_from, phase.name
        return self._context.project.once(what, settled)

    def decision_metric(self, phase: Phase) -> dict[str, Any]:
        """The metric, by name, to which a phase fits its decisions, and what it counts; empty where it fits to none."""
        context, task = self._context, self._context.task
        declared = [entry.declares for entry in context.acting(phase)]
        by_offsets = metrics.find(task["primary"]).by_offsets
        fits = any(one.reads_metric or (one.fits_decision and by_offsets) for one in declared)
        own_rows = phase.data.task in (None, context.job.task) and phase.training.epochs == 0
        if not fits or not own_rows:
            return {}
        return {name: task.get(name) for name in ("primary", "positive_label")}

    def _judging_rows(self, phase: Phase, member: int | None) -> dict[str, Any]:
        """Return the part of the identity about the scores of epochs; None where none is scored."""
        context, rule = self._context, phase.training.checkpoint
        rows: dict[str, str | None] = {"checkpoint": None, "epoch_scores": None}
        if rule == "best_on_split":
            rows["checkpoint"] = sha256_text(to_jsonl(context.judging_rows(phase, member)))
        elif rule != "last":
            rows["checkpoint"] = context.dev_sha256
        if phase.training.epoch_scores:
            rows["epoch_scores"] = context.dev_sha256
        metric = {name: context.task.get(name) for name in ("primary", "positive_label")}
        return {name: sha256 and {"rows": sha256, **metric} for name, sha256 in rows.items()}

    def _merged_identity(self, phase: Phase) -> dict[str, Any]:
        assert phase.repeat is not None
        identity = {
            "format": RUN_FORMAT,
            "phase": phase.run_name,
            "merge": phase.repeat.merge,
            "members": [self.of(phase.name, index) for index in range(phase.repeat.times)],
            "code": code_of(self.merge_scope(phase)).sha256,
        }
        if phase.repeat.scores:
            task = self._context.data(phase).task
            identity["metric"] = {name: task.get(name) for name in ("primary", "positive_label")}
        return identity

    # ---------------------------------------------------------------------------------------------------- code

    def merge_scope(self, phase: Phase) -> Scope:
        """The code that merges the members of a phase."""
        assert phase.repeat is not None
        rule = [MERGES.entry(phase.repeat.merge)]
        if not phase.repeat.scores:
            return scope_of("merge", rule)
        data = self._context.data(phase)
        source = self._context.source_of(phase)
        return scope_of("scored_merge", rule, kinds=[data.kind], metrics=[data.task["primary"]], source=source)

    def training_scope(self, phase: Phase) -> Scope:
        """The code that trains a phase: the shared part, and what this phase uses and another may not.

        That is its active regularisers, and the kind of its rows' task, the encoder's family and the optimiser. Where
        epochs are scored, the code that scores them counts too.
        """
        context = self._context
        own, kinds, judging = (
            {METHODS.entry(cls.name) for cls, _ in context.acting(phase)},
            {context.data(phase).kind},
            list[str](),
        )
        if phase.teachers(context.registry):
            own.add(ANSWERS)
        if phase.training.optimizer in OPTIMISERS.names():  # else a regulariser brings its own
            own.add(OPTIMISERS.entry(phase.training.optimizer))
        if (pooling := context.encoder_of(phase).pooling) in POOLINGS.names():
            own.add(POOLINGS.entry(pooling))
        # Rows set aside and texts without labels come by length, whatever sampler the phase has.
        samplers = {SAMPLERS.entry(name) for name in (phase.training.sampler, "by_length")}
        own |= {SCHEDULES.entry(phase.training.schedule), *samplers}
        if phase.training.judges_epochs:
            own |= {CHECKPOINT_RULE, JUDGING}
            kinds.add(context.task["kind"])
            judging.append(context.task["primary"])
        if decided := self.decision_metric(phase):
            judging.append(decided["primary"])
        return scope_of("training", own, kinds=kinds, metrics=judging, source=context.source_of(phase))

    # ---------------------------------------------------------------------------------------------------- keys

    def of(self, name: str, member: int | None = None) -> str:
        """The key of the result of a phase, or of one member of it, as it was when this was first asked."""
        if (name, member) not in self._known:
            self._known[name, member] = sha256_json(self.identity(name, member))
        return self._known[name, member]

    @property
    def of_phases(self) -> dict[str, str]:
        """Phase -> key, of those that were asked for; without members, which are not taken for what is here."""
        return {name: key for (name, member), key in self._known.items() if member is None}

    def take(self, recorded: Mapping[str, str]) -> None:
        """Take the keys (by phase) of a finished run for those of what is here: what the store has of them is read."""
        self._known |= {(name, None): key for name, key in recorded.items()}
