"""What one job needs, found once: configuration, paths, store, encoder, and the keys of its phases.

The key of a phase is the hash of everything that determines its result. It is computed in the
process that trains, from the code that this process has loaded; what an earlier stage has
produced is taken by the key that this stage wrote down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regft_core.config.load import Project
from regft_core.config.method import FINETUNE, Phase
from regft_core.config.schema import EncoderConfig
from regft_core.config.store import store_path
from regft_core.data.examples import Example
from regft_core.errors import ConfigError, DataError, Problem
from regft_core.hooks import compose
from regft_core.hooks.declare import Setting
from regft_core.hooks.registry import discover
from regft_core.io import read_json
from regft_core.names import suggestion
from regft_core.phases.facts import phase_fact
from regft_core.phases.phase_data import PhaseData, read_phase_data
from regft_core.phases.project import open_project
from regft_core.runs.store import RunStore

if TYPE_CHECKING:
    from regft_core.data.encode import Encoded
    from regft_core.models.source import ModelSource

#: Raised when the meaning of stored runs changes in a way that no fingerprint shows.
RUN_FORMAT = 2


@dataclass(frozen=True)
class Job:
    """One run to do, as plain values that can be sent to another process.

    Attributes:
        keys: phase -> key of its result, as the stages before wrote them down.
        progress: folder of the progress board, or None.
    """

    root: str
    method: str
    task: str
    size: str
    seed: int
    keys: Mapping[str, str] = field(default_factory=dict)
    progress: str | None = None

    @property
    def name(self) -> str:
        return f"{self.method} {self.task} {self.run}"

    @property
    def run(self) -> str:
        """The run among those of its stage: ``300 seed 1``."""
        return f"{self.size} seed {self.seed}"


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
        self._check_job()
        self.method = self.project.methods[job.method]
        self.task_config = self.project.tasks[job.task]
        self.registry = discover()
        self._data: dict[str, PhaseData] = {}

    def _check_job(self) -> None:
        grid = self.params.grid
        listed = {
            "method": list(self.project.methods),
            "task": list(grid.tasks),
            "size": [str(size) for size in grid.sizes],
            "seed": [str(seed) for seed in grid.seeds],
        }
        problems = []
        for what, names in listed.items():
            given = str(getattr(self.job, what))
            if given not in names:
                hint = suggestion(given, names, f"{what}s there")
                problems.append(Problem("params.yaml", 0, "", f"{what} '{given}' is not listed", hint))
        if problems:
            raise ConfigError(problems)

    # -------------------------------------------------------------------------------- paths

    @property
    def dataset(self) -> Path:
        return self.root / "work" / "datasets" / self.job.task

    @property
    def rows_file(self) -> Path:
        folder = self.root / "work" / "subsamples" / self.job.task / self.job.size
        return folder / f"seed-{self.job.seed}.jsonl"

    @cached_property
    def store(self) -> RunStore:
        return project_store(self.project)

    # ------------------------------------------------------------------------------ encoder

    @cached_property
    def encoder(self) -> EncoderConfig:
        """The encoder's section of ``params.yaml`` with what the method overrides."""
        return self.method.encoder(self.params.model)

    @cached_property
    def source(self) -> ModelSource:
        from regft_core.models.source import resolve_model

        return resolve_model(self.encoder, self.root)

    @cached_property
    def tokenizer(self) -> Any:
        from regft_core.models.load import load_tokenizer

        return load_tokenizer(self.source)

    def rows_per_example(self, examples: list[Example]) -> int:
        """Rows of the encoder's batch that one example takes: two where pairs go through it separately."""
        return self.encoder.rows_per_example(bool(examples) and examples[0].text_pair is not None)

    def encode(self, examples: list[Example]) -> Encoded:
        """Tokenise, or read the tokens from the cache beside the run store."""
        from regft_core.data.encode import encode

        return encode(
            examples,
            self.tokenizer,
            self.encoder.max_length,
            cache_dir=self.store.path / "tokens",
            tokenizer_hash=self.source.tokenizer_sha256,
            rows_per_example=self.rows_per_example(examples),
        )

    # --------------------------------------------------------------------------------- data

    @cached_property
    def task(self) -> dict[str, Any]:
        """``work/datasets/<task>/task.json``."""
        path = self.dataset / "task.json"
        if not path.is_file():
            raise DataError(f"{path} is missing; run `dvc repro` (stage dataset@{self.job.task}) first")
        return read_json(path)

    def data(self, phase: Phase) -> PhaseData:
        """The rows that a phase trains on."""
        if phase.name not in self._data:
            other = phase.data.task
            dataset = self.dataset if other is None else self._other_dataset(other)
            self._data[phase.name] = read_phase_data(
                phase.data,
                dataset,
                self.rows_file,
                task=other or self.job.task,
                seed=self.seed(phase),
                stratified=self.params.subsample.stratified,
            )
        return self._data[phase.name]

    def _other_dataset(self, task: str) -> Path:
        """Another task's rows, prepared once for all cells beside the run store."""
        from regft_core.data.prepare import prepare_dataset
        from regft_core.io import canonical_json, sha256_text
        from regft_core.phases.facts import task_fact

        fact = sha256_text(canonical_json(task_fact(self.project, task)))
        folder = self.store.path / "datasets" / f"{task}-{fact[:32]}"
        if not (folder / "task.json").is_file():
            prepare_dataset(self.root, task, self.project.tasks, folder)
        return folder

    # ------------------------------------------------------------------------------- phases

    def phase(self, name: str) -> Phase:
        """A phase with its settled protocol (dropout negotiated, optimiser owned)."""
        phase = self.method.phase(name)
        stack = compose.entries(self.registry, phase.regularisers)
        training, _ = compose.resolve_training(stack, phase, self.params.training)
        return replace(phase, training=training)

    def entries(self, phase: Phase) -> list[compose.Entry]:
        return compose.entries(self.registry, phase.regularisers)

    def seed(self, phase: Phase) -> int:
        return self.job.seed if phase.seed is None else phase.seed

    def setting(self, phase: Phase) -> Setting:
        """What the regularisers of the last phase know of the run, for rebuilding what they kept."""
        return Setting(
            kind=self.task["kind"],
            num_labels=len(self.task["labels"]) if self.task["labels"] else 1,
            seed=self.seed(phase),
            training=phase.training,
            phase=phase.name,
            keyword_segment=self.task.get("keyword_segment"),
        )

    def needs(self, phase: Phase) -> dict[str, str]:
        """Earlier phases that the active regularisers of ``phase`` take something from, and what."""
        needed: dict[str, str] = {}
        for cls, options in compose.active(self.entries(phase)):
            for name, what in cls.needs(options).items():
                needed[name] = "weights" if "weights" in (what, needed.get(name)) else what
        return needed

    def weights_wanted(self, phase: Phase) -> bool:
        """Whether anything starts from, or needs, the weights of ``phase``; the last one's are the result."""
        later = self.method.phases[[p.name for p in self.method.phases].index(phase.name) + 1 :]
        return phase.name == FINETUNE or any(
            other.start == phase.name or self.needs(other).get(phase.name) == "weights" for other in later
        )

    # --------------------------------------------------------------------------------- keys

    def identity(self, name: str, member: int | None = None) -> dict[str, Any]:
        """Everything that determines the result of a phase (of one member of it)."""
        phase = self.phase(name)
        fact = self.fact(phase)
        identity = {
            "format": RUN_FORMAT,
            **{key: fact[key] for key in ("phase", "data", "regularisers", "training", "model", "code", "packages")},
            "seed": self.seed(phase),
            "rows": self.data(phase).sha256,
            "task": {
                "kind": self.data(phase).kind,
                "labels": self.data(phase).labels,
                "keyword_segment": self.data(phase).task.get("keyword_segment"),
            },
            "start": None if phase.start == "checkpoint" else self.key(phase.start),
            "needs": {needed: self.key(needed) for needed in sorted(self.needs(phase))},
        }
        if phase.repeat is None:
            return identity
        if member is not None:
            # How many members there are, and how they are merged, is nothing to a member.
            return identity | {"member": member, "vary": sorted(phase.repeat.vary)}
        members = [self.store.run_key(self.identity(name, index)) for index in range(phase.repeat.times)]
        merged = {"format": RUN_FORMAT, "phase": name, "merge": phase.repeat.merge, "members": members}
        if phase.repeat.merge == "greedy":
            merged |= {"metric": self.data(phase).task["primary"], "code": fact["merge_code"]}
        return merged

    def key(self, name: str) -> str:
        """The key of a phase's result: as an earlier stage wrote it down, or computed."""
        if name in self.job.keys:
            return self.job.keys[name]
        return self.store.run_key(self.identity(name))

    def fact(self, phase: Phase) -> dict[str, Any]:
        """What determines a phase besides rows, seed and earlier phases."""
        return phase_fact(self.encoder, phase, self.entries(phase), self.source)


def project_store(project: Project) -> RunStore:
    """The run store that ``params.yaml`` names."""
    budget = project.params.store.budget_gb
    return RunStore(store_path(project.root, project.params), int(budget * 1e9) if budget else None)
