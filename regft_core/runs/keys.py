"""The keys of a job's phases: the hash of everything that determines the result of each.

A key is computed in the process that trains, from the code that this process has loaded; what an
earlier stage has produced is taken by the key that this stage wrote down.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from regft_core.data.examples import to_jsonl
from regft_core.disk.canonical import sha256_json, sha256_text
from regft_core.errors import PlanOutdated
from regft_core.hooks import phase_entries
from regft_core.hooks.phase_entries import answers_without_encoder
from regft_core.runs.code import code_of
from regft_core.runs.hashed_code import Scope, phase_scope, scope_of
from regft_core.runs.row_splits import member_rows, member_streams
from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.method import FINETUNE, Phase
from regft_core.schema.methods import RepeatConfig

if TYPE_CHECKING:
    from regft_core.models.source import ModelSource
    from regft_core.runs.context import Context

#: Raised when the meaning of stored runs changes in a way that no fingerprint shows.
RUN_FORMAT = 4


class Keys:
    """Identities and keys of the phases of one job.

    Args:
        context: what the job has: rows, settings, encoder.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}

    def training_of(self, phase: Phase) -> Phase | None:
        """A phase without what only reads its finished weights, where it has nothing else; else None.

        It is trained under a key of its own, which is that of any method that is trained so.
        """
        acting = phase_entries.active(self._context.entries(phase))
        alone = phase.repeat is None and phase.training.checkpoint == "last"
        if not alone or not acting or not all(entry.declares.reads_finished for entry in acting):
            return None
        return replace(phase, regularisers=())

    def fits_to_checkpoint(self, phase: Phase) -> bool:
        """Whether a phase's fit reads the encoder as its checkpoint has it: nothing else acts, nothing came before."""
        acting = phase_entries.active(self._context.entries(phase))
        return phase.start == "checkpoint" and len(acting) == 1 and acting[0].declares.freezes_encoder

    def start_head(self, phase: Phase) -> bool:
        """Whether a phase takes over the head of the phase it starts from: the same labels, the same seed."""
        if phase.start == "checkpoint":
            return False
        before = self._context.method.phase(phase.start)
        return before.keeps_head and phase.data.task == before.data.task and phase.seed == before.seed

    def needs(self, phase: Phase) -> dict[str, str]:
        """Earlier phases that the active regularisers of ``phase`` take something from, and what."""
        needed: dict[str, str] = {}
        for entry in phase_entries.active(self._context.entries(phase)):
            for name, what in entry.declares.needs.items():
                needed[name] = "weights" if "weights" in (what, needed.get(name)) else what
        return needed

    def weights_wanted(self, phase: Phase) -> bool:
        """Whether anything starts from, or needs, the weights of ``phase``; the last one's are the result.

        What answers in place of the model and does not read the encoder leaves none.
        """
        if phase.name == FINETUNE:
            return answers_without_encoder(self._context.entries(phase)) is None
        later = self._context.method.phases[[p.name for p in self._context.method.phases].index(phase.name) + 1 :]
        return any(other.start == phase.name or self.needs(other).get(phase.name) == "weights" for other in later)

    def identity(self, name: str, member: int | None = None) -> dict[str, Any]:
        """Everything that determines the result of a phase (of one member of it)."""
        return self.identity_of(self._context.phase(name), member)

    def identity_of(self, phase: Phase, member: int | None = None) -> dict[str, Any]:
        """``identity`` of a settled phase, which may be the training of another (``training_of``)."""
        if phase.repeat is not None and member is None:
            return self._merged_identity(phase, phase.repeat)
        if (training := self.training_of(phase)) is not None:
            return self._finished_identity(phase, training)
        shared, data = self.shared_identity(phase), self._context.data(phase)
        rows, held_out = member_rows(phase, member, data, self._context.seed(phase))
        judged_by = self._judged_by(phase, member)
        return judged_by | {
            "format": RUN_FORMAT,
            **{key: shared[key] for key in ("phase", "data", "regularisers", "training", "model", "code", "packages")},
            "seed": self._context.seed(phase),
            "rows": data.sha256,
            "rows_per_example": self._context.encoder.rows_per_example(data.summary.pairs),
            "split": sha256_json([rows, held_out]) if held_out else None,
            # Folds of a solved head keep groups together.
            **({} if data.groups is None else {"groups": sha256_json(data.groups)}),
            "task": {
                "kind": data.kind,
                "labels": data.labels,
                "keyword_segment": data.task.get("keyword_segment"),
                "range": data.value_range,
            },
            **self._asked(phase),
            **({"rows_alone": True} if self._context.rows_alone and self.fits_to_checkpoint(phase) else {}),
            "start": None if phase.start == "checkpoint" else self.of(phase.start),
            "start_head": self.start_head(phase),
            "needs": {needed: self.of(needed) for needed in sorted(self.needs(phase))},
            # How many members there are, and how they are merged, is nothing to a member.
            "member": member,
            "streams": member_streams(phase, member),
        }

    def _asked(self, phase: Phase) -> dict[str, Any]:
        """The prompt of a phase for the identity; empty where it has none."""
        prompt = self._context.prompt(phase)
        return {} if prompt is None else {"prompt": {"template": prompt.template, "words": prompt.words}}

    def _judged_by(self, phase: Phase, member: int | None) -> dict[str, Any]:
        """Return the part of the identity about the scores of epochs; empty where none is scored."""
        judges = {}
        if phase.training.checkpoint != "last":
            judges["checkpoint"] = self._context.judging_rows(phase, member)
        if phase.training.epoch_scores:
            judges["epoch_scores"] = self._context.dev_rows
        metric = {name: self._context.task.get(name) for name in ("primary", "positive_label")} if judges else {}
        return {name: {"rows": sha256_text(to_jsonl(rows)), **metric} for name, rows in judges.items()}

    def _finished_identity(self, phase: Phase, training: Phase) -> dict[str, Any]:
        acting = phase_entries.active(self._context.entries(phase))
        return {
            "format": RUN_FORMAT,
            "phase": phase.name,
            "finished": {cls.name: options.model_dump(mode="json") for cls, options in acting},
            "trained": sha256_json(self.identity_of(training)),
            "code": code_of(self.training_scope(phase)).sha256,
        }

    def _merged_identity(self, phase: Phase, repeat: RepeatConfig) -> dict[str, Any]:
        members = [sha256_json(self.identity_of(phase, index)) for index in range(repeat.times)]
        identity = {
            "format": RUN_FORMAT,
            "phase": phase.name,
            "merge": repeat.merge,
            "members": members,
            "code": code_of(self.merge_scope(phase)).sha256,
        }
        if repeat.merge == "greedy":
            task = self._context.data(phase).task
            identity["metric"] = {name: task.get(name) for name in ("primary", "positive_label")}
            if repeat.variant != "paper":
                identity["variant"] = repeat.variant
        return identity

    def merge_scope(self, phase: Phase) -> Scope:
        """The code that merges the members of a phase."""
        assert phase.repeat is not None
        data = self._context.data(phase)
        if phase.repeat.merge == "mean":
            return scope_of("mean")
        return scope_of("merge", kinds=[data.kind], metrics=[data.task["primary"]], source=self._context.source)

    def training_scope(self, phase: Phase) -> Scope:
        """The code that trains a phase."""
        return phase_scope(
            self._context.entries(phase),
            phase,
            self._context.source,
            self._kinds(phase),
            [self._context.task["primary"]],
        )

    def _kinds(self, phase: Phase) -> list[str]:
        """The kind of the rows of a phase, and of the task where that judges its epochs."""
        return sorted(
            {self._context.data(phase).kind, *([self._context.task["kind"]] if phase.training.judges_epochs else [])}
        )

    def of(self, name: str) -> str:
        """The key of a phase's result: as an earlier stage wrote it down, or computed."""
        if name in self._context.job.keys:
            return self._context.job.keys[name]
        asked = name, tuple(sorted(self._context.job.keys.items()))
        if asked not in self._known:
            self._known[asked] = sha256_json(self.identity(name))
        return self._known[asked]

    def training_keys(self, name: str) -> list[str]:
        """The key of what a phase only reads the finished weights of; empty where it trains them itself."""
        training = self.training_of(self._context.phase(name))
        return [] if training is None else [sha256_json(self.identity_of(training))]

    def member_keys(self, name: str) -> list[str]:
        """The keys of all that a phase trains: of its training, or of each of its members."""
        phase = self._context.phase(name)
        if phase.repeat is None:
            return self.training_keys(name) or [self.of(name)]
        return [sha256_json(self.identity_of(phase, index)) for index in range(phase.repeat.times)]

    def require_current(self, name: str) -> None:
        """Raise PlanOutdated unless the key that an earlier stage wrote down for a phase is the one of what is here."""
        written_down = self._context.job.keys.get(name)
        if written_down is not None and written_down != sha256_json(self.identity(name)):
            raise PlanOutdated(
                "out-of-date",
                f"the encoder, configuration, code, data or packages of phase '{name}' of {self._context.job.name} "
                "are no longer those it was trained with\n    -> nothing was stored; run `dvc repro`",
            )

    def shared_identity(self, phase: Phase) -> dict[str, Any]:
        """Return the part of the identity besides rows, seed and earlier phases."""
        kinds, primary = self._kinds(phase), self._context.task["primary"]
        return self._context.project.once(
            (
                "shared identity",
                *self._context.settled_from,
                phase.name,
                bool(phase.regularisers),
                self._context.task["kind"],
                primary,
            ),
            lambda: phase_identity(
                self._context.encoder, phase, self._context.entries(phase), self._context.source, kinds, [primary]
            ),
        )


def phase_identity(
    encoder: EncoderConfig,
    phase: Phase,
    entries: Sequence[phase_entries.Entry],
    source: ModelSource,
    kinds: Iterable[str],
    metrics: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the part of a phase's identity besides its rows, its seed and the phases before it.

    ``phase`` has its settled protocol, ``encoder`` what the method overrides. Regularisers of
    strength 0 do nothing, so they and their code are left out. ``kinds``: of its rows' task. ``metrics`` may choose
    its epoch.
    """
    acting = phase_entries.active(entries)
    scope = phase_scope(acting, phase, source, kinds, metrics)
    code = code_of(scope)
    return {
        "phase": phase.name,
        "data": phase.data.model_dump(mode="json", exclude={"task", "size", "steps"}),
        "regularisers": {cls.name: options.model_dump(mode="json") for cls, options in acting},
        "training": phase.training.settled(),
        "model": {
            "content": source.content_sha256,
            "tokenizer": source.tokenizer_sha256,
            "max_length": encoder.max_length,
            "pooling": encoder.pooling,
            "pairs": encoder.pairs,
            **encoder.reading,
        },
        "code": code.sha256,
        "packages": code.packages,
    }
