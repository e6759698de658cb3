"""Everything that one job needs, found once: configuration, paths, store, encoder, rows, phases, keys."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from regft_core.data.encode import token_memory, vector_memory
from regft_core.data.examples import Example, read_jsonl
from regft_core.data.prompts import Prompt
from regft_core.data.splits import of_refit, of_seed, rows_file, set_files
from regft_core.disk.canonical import canonical_json
from regft_core.disk.paths import content_sha256
from regft_core.disk.reading import read_json
from regft_core.hooks import compose, phase_entries
from regft_core.hooks.registry import Registry
from regft_core.models.source import ModelSource, resolve_model
from regft_core.runs.environment import environment
from regft_core.runs.keys import Keys
from regft_core.runs.opened_project import Job, check_listed, open_project
from regft_core.runs.rows import (
    PhaseData,
    groups_of,
    read_phase_data,
    run_rows,
    trial_rows,
    with_more_rows,
    without_texts,
    without_units,
)
from regft_core.runs.store import RunStore
from regft_core.runs.work import dataset_folder, described_task
from regft_core.schema.method import Phase, optimiser_steps
from regft_core.schema.methods import DataConfig
from regft_core.schema.params import TuningConfig
from regft_core.schema.training import EncoderConfig
from regft_core.settings.project import Project
from regft_core.settings.yaml_paths import store_path

if TYPE_CHECKING:
    from regft_core.data.encode import Encoded
    from regft_core.models.features import Features


class Context:
    """Everything one job needs, loaded when first asked for.

    Args:
        job: the cell and seed.
        device: where tensors live, e.g. ``cpu`` or ``cuda:0``.
        project: the loaded project, if the caller has it.
    """

    def __init__(self, job: Job, device: str = "cpu", project: Project | None = None) -> None:
        self.job = job
        self.device = device
        self.root = Path(job.root)
        self.project = open_project(self.root) if project is None else project
        self.params = self.project.params
        check_listed(self.project, method=job.method, task=job.task, size=job.size, seed=job.seed)
        self.method, self.shared = self.project.method(job.method, job.task), self.project.shared(job.task)
        if job.values is not None:
            self.method, self._start = self.project.tuned(job.method, job.task, job.values)
        else:
            self._start = self.shared
        self.task_config = self.project.tasks[job.task]
        self.registry = cast(Registry, self.project.builder.registry)
        self._data: dict[str, PhaseData] = {}
        self._phases: dict[str, Phase] = {}
        self._sources: dict[EncoderConfig, ModelSource] = {}

    def anew(self) -> Context:
        """Return the context of the same job under the same configuration, which reads all inputs again.

        Phases keep the keys under which this one has taken them from the store, or put them there.
        """
        again = Context(self.job, self.device, self.project)
        again.keys.take(self.keys.of_phases)
        return again

    @cached_property
    def settled_from(self) -> tuple[Any, ...]:
        """The inputs of settling phases: equal for the jobs of one project that have the same ones."""
        values = None if self.job.values is None else canonical_json(self.job.values)
        # How many rows there are sets the steps of a refit, and those of a phase that takes as many as on all rows.
        counted = self.job.refit or any(phase.data.steps == "full" for phase in self.method.phases)
        rows = (self.job.refit, self.job.size, self.task["counts"]["train"]) if counted else None
        return self.job.method, self.job.task, values, self.without_dev, rows

    # -------------------------------------------------------------------------------- paths

    @property
    def dataset(self) -> Path:
        """Folder of the task's prepared rows."""
        return dataset_folder(self.root, self.job.task)

    @property
    def rows_file(self) -> Path:
        """The training rows of the run."""
        if self.job.refit:
            return self.dataset / rows_file(self.task, "train")
        folder = self.root / "work" / "subsamples" / self.job.task / self.job.size
        return folder / f"seed-{self.job.seed}.jsonl"

    @cached_property
    def store(self) -> RunStore:
        """The run store."""
        return project_store(self.project, stored_only=self.job.stored_only, path=self.job.store)

    # ------------------------------------------------------------------------------ encoder

    @cached_property
    def encoder(self) -> EncoderConfig:
        """The encoder's section of ``params.yaml`` with what the task and the method override."""
        return self.method.encoder(self.project.model(self.job.task))

    @cached_property
    def source(self) -> ModelSource:
        """The encoder."""
        return self._resolved(self.encoder)

    @property
    def tokenizer(self) -> Any:
        """The encoder's tokenizer."""
        return kept_tokenizer(self.source)

    def encoder_of(self, phase: Phase) -> EncoderConfig:
        """The encoder's section for a phase, which may name another encoder."""
        return self.method.encoder(self.project.model(self.job.task), phase) if phase.own_encoder else self.encoder

    def source_of(self, phase: Phase) -> ModelSource:
        """The encoder of a phase."""
        return self._resolved(self.encoder_of(phase)) if phase.own_encoder else self.source

    def reading_of(self, phase: Phase) -> dict[str, Any]:
        """Return how a phase's texts reach its encoder, for a key."""
        encoder, tokenizer = self.encoder_of(phase), self.source_of(phase).tokenizer_sha256
        names = ("max_length", "pooling", "pairs", "prompt", "windows", "stride")
        return {"tokenizer": tokenizer, **{name: getattr(encoder, name) for name in names}}

    def tokenizer_of(self, phase: Phase) -> Any:
        """The tokenizer of a phase's encoder."""
        return kept_tokenizer(self.source_of(phase))

    @property
    def sources(self) -> list[ModelSource]:
        """The encoders of all phases, each once."""
        return list(dict.fromkeys(map(self.source_of, self.method.phases)))

    def _resolved(self, encoder: EncoderConfig) -> ModelSource:
        if encoder not in self._sources:
            source = self.project.once(("encoder", encoder), lambda: resolve_model(encoder, self.root))
            self._sources[encoder] = source
        return self._sources[encoder]

    def rows_per_example(self, examples: list[Example], phase: Phase) -> int:
        """Rows of the encoder's batch that one example takes: two where pairs go through it separately."""
        return self.encoder_of(phase).rows_per_example(bool(examples) and examples[0].text_pair is not None)

    def prompt(self, phase: Phase) -> Prompt | None:
        """The prompt of the task whose labels a phase learns, where the phase answers at a mask; else None."""
        if self.encoder_of(phase).pooling != "mask" or not phase.data.labels:
            return None
        name = phase.data.task or self.job.task
        prompt, labels = self.project.tasks[name].prompt, self.data(phase).labels or ()
        assert prompt is not None  # the configuration is refused without
        demonstrated = any(entry.declares.demonstration_sets for entry in self.acting(phase))
        return Prompt(prompt.template, tuple(prompt.words[label] for label in labels), demonstrated)

    def encode(self, examples: list[Example], phase: Phase) -> Encoded:
        """Tokenise as ``phase`` reads texts; the same texts of another run of this process are not tokenised again."""
        from regft_core.data.encode import encode
        from regft_core.data.prompts import Reading

        encoder = self.encoder_of(phase)
        return encode(
            examples,
            self.tokenizer_of(phase),
            encoder.max_length,
            token_memory(self.source_of(phase).tokenizer_sha256),
            rows_per_example=self.rows_per_example(examples, phase),
            prompt=self.prompt(phase),
            reading=Reading.of(encoder),
        )

    def features(self, phase: Phase) -> Features:
        """Return this process's vectors of a phase's encoder, which must have the weights of its checkpoint."""
        from regft_core.models.features import Features

        about = {"encoder": self.source_of(phase).content_sha256, "environment": environment(self.device)}
        return Features(vector_memory(), about, self.rows_alone)

    # --------------------------------------------------------------------------------- data

    @cached_property
    def task(self) -> dict[str, Any]:
        """``work/datasets/<task>/task.json``, as this run sees it: its fold, or all rows.

        Raises DataError where the stage subsample has not written it.
        """
        return of_refit(self._described) if self.job.refit else of_seed(self._described, self.job.seed)

    @cached_property
    def _described(self) -> dict[str, Any]:
        return described_task(self.root, self.job.task)

    @property
    def rows_alone(self) -> bool:
        """Whether a frozen encoder reads every row by itself: rows of folds, which are those of one file."""
        return "folds" in (self._described.get("drawn") or {})

    def data(self, phase: Phase) -> PhaseData:
        """The rows that a phase trains on."""
        if phase.name not in self._data:
            other = phase.data.task
            is_own = other in (None, self.job.task)
            task = other or self.job.task
            rows = read_phase_data(
                phase.data,
                dataset_folder(self.root, task),
                self.task if is_own else described_task(self.root, task),
                self.rows_file,
                task=task,
                seed=self.seed(phase),
                stratified=self.params.subsample.stratified,
            )
            if not is_own and self.task.get("drawn"):
                rows = without_texts(rows, self.dataset / rows_file(self.task, "dev"))
            if is_own and self.held_out:
                rule = self.tuning.split, self.tuning.folds, self.job.fold, self.job.seed
                rows = without_units(rows, self.held_out, ("tuning", *rule))
            self._data[phase.name] = replace(rows, taught=bool(phase.teachers(self.registry)))
        return self._data[phase.name]

    def unlabelled(self, phase: Phase) -> PhaseData | None:
        """The texts that a phase reads beside its rows; None where none of its regularisers reads any."""
        if not any(entry.declares.unlabelled for entry in self.acting(phase)):
            return None
        every = DataConfig(task=phase.data.task, size="full", labels=False)
        return self.data(replace(phase, name=f"{phase.name}-unlabelled", data=every))

    @property
    def tuning(self) -> TuningConfig:
        """The section ``tuning``, which a trial has."""
        assert self.params.tuning is not None
        return self.params.tuning

    @property
    def without_dev(self) -> bool:
        """Whether this is a trial that is scored on rows of its own, not on the dev set."""
        return self.job.trial is not None and self.tuning.selection == "split"

    @cached_property
    def held_out(self) -> list[Example]:
        """Rows of the cell that a trial is scored on, so it must not see them, by its weights or by its choices.

        Raises DataError where the stage subsample has not written the rows.
        """
        if not self.without_dev:
            return []
        rows = read_jsonl(self.rows_file)
        groups, kind, job = groups_of(self.dataset, rows), self.task["kind"], self.job
        return [rows[row] for row in trial_rows(rows, groups, kind, self.tuning, job.task, job.seed, job.fold)]

    # ------------------------------------------------------------------------------- phases

    def phase(self, name: str) -> Phase:
        """A phase with its settled protocol (dropout negotiated, optimiser owned)."""

        def settled() -> Phase:
            phase = self.method.phase(name)
            stack = phase_entries.entries(self.registry, phase.regularisers)
            rows = phase.data.task
            shared = self._start if rows is None else self.project.shared(rows)
            training = compose.resolve_training(stack, phase, shared)[0]
            if training.epoch_scores and (self.without_dev or "whole" in self.task):
                training = training.model_copy(update={"epoch_scores": False})
            if phase.data.steps == "full" and training.epochs:
                steps = optimiser_steps(training, int(self.task["counts"]["train"]))
                training = training.model_copy(update={"max_steps": steps})
            elif self.job.refit:
                judged = read_json(self.dataset / "task.json")["counts"]
                now = self.task["counts"]
                training = with_more_rows(phase, training, self.job.task, self.job.size, judged, now)
            return replace(phase, training=training)

        if name not in self._phases:
            self._phases[name] = self.project.once(("phase", *self.settled_from, name), settled)
        return self._phases[name]

    def entries(self, phase: Phase) -> list[phase_entries.Entry]:
        """Regularisers of a phase with their options."""
        return phase_entries.entries(self.registry, phase.regularisers)

    def acting(self, phase: Phase) -> list[phase_entries.Entry]:
        """Those of its regularisers that do something: their strength is not 0."""
        return phase_entries.active(self.entries(phase))

    def seed(self, phase: Phase) -> int:
        """Seed of a phase: its own, else the run's."""
        return self.job.seed if phase.seed is None else phase.seed

    # ------------------------------------------------------------------- rows that runs are scored on

    @cached_property
    def dev_sha256(self) -> str:
        """The hash of the development set, as it was when this was first asked."""
        return content_sha256(self.dataset / rows_file(self.task, "dev"))

    @cached_property
    def sets_sha256(self) -> dict[str, str]:
        """Set -> the hash of the rows that runs are evaluated on, as it was when this was first asked."""
        return {name: content_sha256(self.dataset / file) for name, file in set_files(self.task).items()}

    @cached_property
    def dev_rows(self) -> list[Example]:
        """The development set."""
        return read_jsonl(self.dataset / rows_file(self.task, "dev"))

    def judging_rows(self, phase: Phase, member: int | None) -> list[Example]:
        """The rows that choose the epoch of a phase: of its own, set aside, or the dev set."""
        if phase.training.checkpoint == "best_on_dev_as_published":
            return self.dev_rows
        data = self.data(phase)
        return [data.examples[row] for row in run_rows(phase, member, data, self.seed(phase))[2]]

    # --------------------------------------------------------------------------------- keys

    @cached_property
    def keys(self) -> Keys:
        """Identities and keys of the phases."""
        return Keys(self)


@lru_cache(maxsize=4)
def kept_tokenizer(source: ModelSource) -> Any:
    """The tokenizer with these bytes, for all runs of a process: making it takes as long as 200 rows."""
    from regft_core.models.load import load_tokenizer

    return load_tokenizer(source)


def project_store(project: Project, *, stored_only: bool = False, path: str | None = None) -> RunStore:
    """The run store that ``params.yaml`` names; ``stored_only``: to look runs up in; ``path``: in another folder."""
    budget = project.params.store.budget_gb
    folder = store_path(project.root, project.params) if path is None else Path(path)
    return RunStore(folder, int(budget * 1e9) if budget else None, stored_only=stored_only)
