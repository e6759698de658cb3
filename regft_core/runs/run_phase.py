"""One phase of one run: what it reads, settled when it is first asked for, and its key, the hash of all that acts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from regft_core import metrics
from regft_core.data.encode import Encoded, encode, token_memory, vector_memory
from regft_core.data.examples import UNLABELLED, Example, text_key
from regft_core.data.prompts import Prompt, Reading
from regft_core.data.splits import rows_file
from regft_core.disk.canonical import canonical_json, sha256_json, sha256_text
from regft_core.errors import DataError
from regft_core.hooks import compose
from regft_core.models.source import ModelSource, resolve_model
from regft_core.runs.code import code_of
from regft_core.runs.environment import environment
from regft_core.runs.keys import RUN_FORMAT, scope_of_phase
from regft_core.runs.rows import PhaseRows, member_streams, run_rows, with_more_rows
from regft_core.runs.work import dataset_folder, described_task
from regft_core.schema.method import FINETUNE, Phase, optimiser_steps
from regft_core.schema.methods import DataConfig, RepeatConfig
from regft_core.schema.training import TrainingConfig

if TYPE_CHECKING:
    from regft_core.models.features import Features
    from regft_core.runs.context import Context


class RunPhase:
    """One phase of one ``run``, as ``declared`` by the method; ``acting`` entries are those whose strength is not 0."""

    def __init__(self, run: Context, declared: Phase) -> None:
        self.run, self.name, self.declared = run, declared.name, declared
        self.seed = run.job.seed if self.declared.seed is None else self.declared.seed
        self.entries = compose.entries(run.registry, self.declared.regularisers)
        self.acting = compose.active(self.entries)
        self.encoder = run.method.encoder(run.project.model(run.job.task), self.declared)

    @cached_property
    def settled(self) -> Phase:
        """The phase with its settled protocol: dropout negotiated, optimiser owned, steps counted."""
        return self.run.project.once(("phase", *self._settled_from), self._settle)

    @property
    def training(self) -> TrainingConfig:
        return self.settled.training

    @property
    def _settled_from(self) -> tuple[Any, ...]:
        """The inputs of settling the phase: equal for the jobs of one project that have the same ones."""
        run, job = self.run, self.run.job
        cell = job.method, job.task, job.size, job.refit, canonical_json(job.values)
        return *cell, run.without_dev, run.task["counts"]["train"], self.name

    def _settle(self) -> Phase:
        run, phase = self.run, self.declared
        # Its protocol is the shared one of the task that its rows are of, with tuned values.
        training, counts = compose.resolve_training(self.entries, phase)[0], run.task["counts"]
        if training.epoch_scores and (run.without_dev or "whole" in run.task):
            training = training.model_copy(update={"epoch_scores": False})
        if run.job.refit:
            training = with_more_rows(phase, training, run.job.task, run.job.size, run.described["counts"], counts)
        if phase.data.steps == "full" and training.epochs:
            training = training.model_copy(update={"max_steps": optimiser_steps(training, int(counts["train"]))})
        return replace(phase, training=training)

    @cached_property
    def source(self) -> ModelSource:
        """The encoder, as it was when this was first asked."""
        return self.run.project.once(("encoder", self.encoder), lambda: resolve_model(self.encoder, self.run.root))

    @property
    def tokenizer(self) -> Any:
        return kept_tokenizer(self.source)

    @property
    def reading(self) -> dict[str, Any]:
        """How texts reach the encoder, for a key."""
        names = ("max_length", "pooling", "pairs", "prompt", "windows", "stride")
        return {"tokenizer": self.source.tokenizer_sha256, **{name: getattr(self.encoder, name) for name in names}}

    @property
    def rows_per_example(self) -> int:
        """Rows of the encoder's batch that one example takes: two where pairs go through it separately."""
        return self.encoder.rows_per_example(self.rows.summary.pairs)

    @cached_property
    def prompt(self) -> Prompt | None:
        """The prompt of the task whose labels the phase learns, where it answers at a mask; else None."""
        if self.encoder.pooling != "mask" or not self.declared.data.labels:
            return None
        prompt = self.run.project.tasks[self.declared.data.task or self.run.job.task].prompt
        assert prompt is not None  # the configuration is refused without
        demonstrated = any(entry.declares.demonstration_sets for entry in self.acting)
        return Prompt(prompt.template, tuple(prompt.words[label] for label in self.rows.labels or ()), demonstrated)

    def encode(self, examples: list[Example]) -> Encoded:
        """Tokenise as the phase reads texts; the same texts of another run of this process are not tokenised again."""
        return encode(
            examples,
            self.tokenizer,
            self.encoder.max_length,
            token_memory(self.source.tokenizer_sha256),
            rows_per_example=self.encoder.rows_per_example(bool(examples) and examples[0].text_pair is not None),
            prompt=self.prompt,
            reading=Reading.of(self.encoder),
        )

    def features(self) -> Features:
        """Return this process's vectors of the encoder, which must have the weights of its checkpoint."""
        from regft_core.models.features import Features

        about = {"encoder": self.source.content_sha256, "environment": environment(self.run.device)}
        return Features(vector_memory(), about, self.run.rows_alone)

    @cached_property
    def rows(self) -> PhaseRows:
        """The rows that the phase trains on. Raises DataError where the stage subsample has not written them."""
        return self._rows(self.declared.data)

    @cached_property
    def unlabelled(self) -> PhaseRows | None:
        """The texts that the phase reads beside its rows; None where none of its regularisers reads any."""
        if not any(entry.declares.unlabelled for entry in self.acting):
            return None
        return self._rows(DataConfig(task=self.declared.data.task, size="full", labels=False))

    def _rows(self, data: DataConfig) -> PhaseRows:
        """The cell's own rows, or rows drawn of a task with its ``unlabelled`` texts; none that is evaluated on."""
        run, task = self.run, data.task or self.run.job.task
        own = task == run.job.task
        described, dataset = run.task if own else described_task(run.root, task), dataset_folder(run.root, task)
        of_cell, draw = data.task is None and data.size is None, None
        files = [run.rows_file if of_cell else dataset / rows_file(described, "train")]
        if not files[0].is_file():
            code = "rows-missing" if of_cell else "not-prepared"
            raise DataError(code, f"{files[0]} is missing; run `dvc repro`, whose stage subsample writes it")
        if not of_cell:
            stratified = run.params.subsample.stratified and data.labels
            draw = ("full" if data.size is None else data.size, self.seed, task, stratified)
            if not data.labels and (more := dataset / UNLABELLED).is_file():
                files.append(more)
        return PhaseRows(
            described,
            dataset,
            tuple(files),
            draw,
            labelled=data.labels,
            taught=bool(self.declared.teachers(run.registry)),
            judging=run.dataset / rows_file(run.task, "dev") if not own and run.task.get("drawn") else None,
            held_out=tuple(row.idx for row in run.held_out) if own else (),
            texts=() if own else tuple(map(text_key, run.held_out)),
        )

    def drawn(self, member: int | None = None) -> tuple[list[int], list[int], list[int]]:
        """Numbers of the rows to train on, of those set aside for the method, and of those that choose the epoch."""
        return run_rows(self.settled, member, self.rows, self.seed)

    @property
    def fits_to_checkpoint(self) -> bool:
        """Whether its fit reads the encoder as its checkpoint has it: nothing else acts, nothing came before."""
        freezes = [entry.declares.freezes_encoder for entry in self.acting]
        return self.declared.start == "checkpoint" and freezes == [True]

    @cached_property
    def before(self) -> RunPhase | None:
        """The phase that it starts from; None for the encoder's checkpoint."""
        return None if self.declared.start == "checkpoint" else self.run.phase(self.declared.start)

    @property
    def learns_head(self) -> bool:
        """Whether it learns a head: by labels, or by the answers of another phase."""
        return self.declared.data.labels or bool(self.declared.teachers(self.run.registry))

    @property
    def start_head(self) -> bool:
        """Whether it takes over the head of the phase it starts from: the same labels, the same seed."""
        return self.before is not None and self.before.learns_head and not self.dropped_head

    @property
    def dropped_head(self) -> str:
        """Why it draws a new head though the phase that it starts from has learned one; else nothing."""
        before, own = self.before, self.declared
        if before is None or not before.learns_head:
            return ""
        if before.declared.seed is not None or own.seed is not None:
            return f"the one of phase '{before.name}' is of another seed"
        if before.declared.data.task == own.data.task:
            return ""
        one, other = ((rows.kind, rows.labels, rows.value_range) for rows in (before.rows, self.rows))
        return "" if one == other else f"the one of phase '{before.name}' answers for other labels"

    @cached_property
    def needs(self) -> dict[str, set[str]]:
        """Earlier phases that its active regularisers take something from, and what."""
        needed: dict[str, set[str]] = {}
        for entry in self.acting:
            for name, what in entry.declares.needs.items():
                needed.setdefault(self.declared.here(name), set()).add(what)
        return needed

    @property
    def weights_wanted(self) -> bool:
        """Whether anything starts from, or needs, its weights; the last phase's are the result, if it reads them."""
        if self.name == FINETUNE:
            return compose.answers_without_encoder(self.entries) is None
        return any(p.declared.start == self.name or p.needs.get(self.name, set()) - {"state"} for p in self.run.phases)

    @cached_property
    def decision_metric(self) -> dict[str, Any]:
        """The metric, by name, to which it fits its decisions, and what that counts; empty where it fits to none."""
        task, data = self.run.task, self.declared.data
        by_offsets = metrics.find(task["primary"]).by_offsets
        fits = any(e.declares.reads_metric or (e.declares.fits_decision and by_offsets) for e in self.acting)
        if not fits or data.task not in (None, self.run.job.task) or self.training.epochs:
            return {}
        return {name: task.get(name) for name in ("primary", "positive_label")}

    @property
    def averaged(self) -> Sequence[Context]:
        """The evaluated runs whose mean it has in a final model; empty where it is trained."""
        return self.run.evaluated if self.declared.refit == "mean_of_runs" else ()

    @cached_property
    def repeat(self) -> RepeatConfig | None:
        """How it is merged: as declared, or the mean of the evaluated runs; None where it is trained once."""
        return RepeatConfig.model_construct(times=len(self.averaged)) if self.averaged else self.declared.repeat

    @property
    def members(self) -> Sequence[tuple[RunPhase, int | None]]:
        """Its own members, or the same phase in the evaluated runs; empty where it is trained once."""
        own = range(self.repeat.times if self.repeat else 0)
        return [(run.phase(self.name), None) for run in self.averaged] or [(self, member) for member in own]

    def key(self, member: int | None = None) -> str:
        """The key of its result, or of that of one member, as it was when this was first asked."""
        return self.run.key(self.name, member)

    def identity(self, member: int | None = None) -> dict[str, Any]:
        """Everything that determines the result of the phase (of one member of it)."""
        if member is None and self.repeat is not None:
            return {
                "format": RUN_FORMAT,
                "phase": self.declared.run_name,
                "merge": self.repeat.merge,
                "members": [phase.key(index) for phase, index in self.members],
                "code": code_of(scope_of_phase(self)).sha256,
                "metric": _counted(self.rows.task) if self.repeat.scores else None,
            }
        rows, texts, run, training = self.rows, self.unlabelled, self.run, self.training
        drawn = self.drawn(member)
        reads_dev = training.checkpoint == "best_on_dev_as_published" or training.epoch_scores
        return {
            "format": RUN_FORMAT,
            **run.project.once(("identity", *self._settled_from), self._shared_identity),
            "seed": self.seed,
            "rows": rows.summary.sha256,
            "split": sha256_text(canonical_json(drawn)) if drawn[1] or drawn[2] else None,
            "task": {
                "kind": rows.kind,
                "labels": rows.labels,
                "keyword_segment": rows.task.get("keyword_segment"),
                "range": rows.value_range,
            },
            "start": None if self.before is None else self.before.key(),
            "start_head": self.start_head,
            "needs": {self.declared.there(needed): run.key(needed) for needed in sorted(self.needs)},
            # How many members there are, and how they are merged, is nothing to a member.
            "member": member,
            "streams": member_streams(self.declared, member),
            "groups": None if rows.groups is None else sha256_json(rows.groups),  # folds of a solved head keep them
            "unlabelled": texts and texts.summary.sha256,
            "prompt": self.prompt and {"template": self.prompt.template, "words": self.prompt.words},
            "rows_alone": run.rows_alone and self.fits_to_checkpoint,
            "epochs_scored": _counted(run.task) if training.judges_epochs else None,
            "dev": run.dev_sha256 if reads_dev else None,
            "decision": self.decision_metric,
        }

    def _shared_identity(self) -> dict[str, Any]:
        """Return the part besides rows, seed and earlier phases; regularisers of strength 0 do nothing, so none."""
        code = code_of(scope_of_phase(self, 0))
        return {
            "phase": self.declared.run_name,
            "data": self.declared.data.model_dump(mode="json", exclude={"task", "size", "steps"}),
            "regularisers": {entry.name: entry.options.model_dump(mode="json") for entry in self.acting},
            "training": self.training.settled(),
            "model": {"content": self.source.content_sha256, **self.reading},
            "code": code.sha256,
            "packages": code.packages,
        }


def _counted(task: dict[str, Any]) -> dict[str, Any]:
    """The metric of a task, and the label that it counts."""
    return {name: task.get(name) for name in ("primary", "positive_label")}


@lru_cache(maxsize=4)
def kept_tokenizer(source: ModelSource) -> Any:
    """The tokenizer with these bytes, for all runs of a process: making it takes as long as 200 rows."""
    from regft_core.models.load import load_tokenizer

    return load_tokenizer(source)
