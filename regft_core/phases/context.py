"""What one run needs: configuration, data, encoder, tokenizer; and the key that names it.

The key is the hash of everything that determines the run. Whatever it left out would become
silent staleness, so everything that enters a run passes through :meth:`Context.identity`.
"""

from __future__ import annotations

import importlib.metadata
import platform
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regft_core import __version__
from regft_core.config.load import Builtin, Method, Project, load_project
from regft_core.config.names import suggestion
from regft_core.config.schema import TaskConfig, TrainingConfig
from regft_core.data.builtin import SPLITS, BuiltinOptions
from regft_core.data.examples import Example, read_jsonl
from regft_core.errors import ConfigError, DataError, Problem
from regft_core.io import read_json, sha256_file
from regft_core.methods import compose
from regft_core.methods.base import Setting
from regft_core.methods.registry import discover
from regft_core.models.source import encoder_problems
from regft_core.rng import derive
from regft_core.runs.store import RunStore

if TYPE_CHECKING:
    from regft_core.data.batches import Padding
    from regft_core.data.encode import Encoded
    from regft_core.models.source import ModelSource
    from regft_core.training.trainee import Trainee

#: Raised when the meaning of stored runs changes in a way that no fingerprint shows.
RUN_FORMAT = 1
#: Packages whose release can change the bits of a run.
NUMERIC_PACKAGES = ("torch", "transformers", "tokenizers", "numpy")
REPORTED_PACKAGES = (*NUMERIC_PACKAGES, "datasets", "dvc", "mlflow", "pydantic", "safetensors", "scipy")


@dataclass(frozen=True)
class Job:
    """One run to do: a cell and a seed, as plain values that can be sent to another process."""

    root: str
    method: str
    task: str
    size: str
    seed: int
    progress: str | None = None


def compose_check(method: Method, task: TaskConfig, task_name: str, params: Any) -> list[str]:
    """Composition problems of one method on one task, for the validator."""
    registry = discover()
    stack = compose.entries(registry, method.regularisers)
    return compose.check_method(stack, params.training, method.config.training, task, method.search)


def open_project(root: Path, params_file: str = "params.yaml", params_text: str | None = None) -> Project:
    """Load and validate the whole project, without torch.

    Args:
        root: project root.
        params_file: another file in the place of ``params.yaml``, for instance a preset.
        params_text: content to check in place of that file's.

    Raises:
        ConfigError: all problems of all files, together.
    """
    return load_project(
        root,
        discover(),
        compose_check,
        builtin=Builtin(BuiltinOptions, SPLITS),
        encoder_check=encoder_problems,
        params_file=params_file,
        params_text=params_text,
    )


def installed(packages: tuple[str, ...]) -> dict[str, str]:
    """Versions of the packages that are installed."""
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def versions() -> dict[str, str]:
    """What ran, for the result record."""
    return {"python": platform.python_version(), "regft": __version__, **installed(REPORTED_PACKAGES)}


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
        self.entries = compose.entries(discover(), self.method.regularisers)
        self.training, _ = compose.resolve_training(self.entries, self.params.training, self.method.config.training)

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
        return self.root / "work" / "subsamples" / f"{self.job.task}-{self.job.size}" / f"seed-{self.job.seed}.jsonl"

    @cached_property
    def store(self) -> RunStore:
        path = Path(self.params.store.path)
        budget = self.params.store.budget_gb
        return RunStore(path if path.is_absolute() else self.root / path, int(budget * 1e9) if budget else None)

    # --------------------------------------------------------------------------------- data

    @cached_property
    def task(self) -> dict[str, Any]:
        """``work/datasets/<task>/task.json``."""
        path = self.dataset / "task.json"
        if not path.is_file():
            raise DataError(f"{path} is missing; run `dvc repro` (stage dataset@{self.job.task}) first")
        return read_json(path)

    def examples(self) -> list[Example]:
        if not self.rows_file.is_file():
            stage = f"subsample@{self.job.task}-{self.job.size}"
            raise DataError(f"{self.rows_file} is missing; run `dvc repro` (stage {stage}) first")
        return read_jsonl(self.rows_file)

    @cached_property
    def source(self) -> ModelSource:
        from regft_core.models.source import resolve_model

        return resolve_model(self.params.model, self.root)

    @cached_property
    def tokenizer(self) -> Any:
        from regft_core.models.load import load_tokenizer

        return load_tokenizer(self.source)

    @cached_property
    def padding(self) -> Padding:
        from regft_core.data.batches import padding_of

        return padding_of(self.tokenizer)

    def encode(self, examples: list[Example]) -> Encoded:
        """Tokenise, or read the tokens from the cache beside the run store."""
        from regft_core.data.encode import encode

        return encode(
            examples,
            self.tokenizer,
            self.params.model.max_length,
            cache_dir=self.store.path / "tokens",
            tokenizer_hash=self.source.tokenizer_sha256,
        )

    # -------------------------------------------------------------------------------- model

    def setting(self, phase: str, training: TrainingConfig) -> Setting:
        return Setting(
            kind=self.task["kind"],
            num_labels=len(self.task["labels"]) if self.task["labels"] else 1,
            seed=self.job.seed,
            training=training,
            keyword_segment=self.task.get("keyword_segment"),
            phase=phase,
        )

    def plain_model(self, training: TrainingConfig) -> Any:
        """The pretrained encoder with the head that every method of this seed starts from."""
        from regft_core.models.load import load_classifier

        return load_classifier(
            self.source,
            kind=self.task["kind"],
            labels=self.task["labels"],
            dropout=training.dropout,
            head_seed=derive(self.job.seed, "head"),
        )

    def trainee(self, phase: str, training: TrainingConfig) -> Trainee:
        import torch

        from regft_core.training.trainee import Trainee

        model = self.plain_model(training).to(self.device)
        return Trainee(model, self.tokenizer, self.source, self.job.seed, phase, torch.device(self.device))

    # ------------------------------------------------------------------------------ identity

    def identity(self, phase: str, **more: Any) -> dict[str, Any]:
        """Everything that determines this run; ``RunStore.run_key`` hashes it."""
        code = read_json(self.root / "work" / "code" / f"method-{self.job.method}.json")
        search = self.method.search
        return {
            "format": RUN_FORMAT,
            "phase": phase,
            "seed": self.job.seed,
            "rows": sha256_file(self.rows_file),
            "task": {key: self.task.get(key) for key in ("kind", "labels", "keyword_segment")},
            "model": {
                "content": self.source.content_sha256,
                "tokenizer": self.source.tokenizer_sha256,
                "max_length": self.params.model.max_length,
            },
            "regularisers": [[name, options.model_dump(mode="json")] for name, options in self.method.regularisers],
            "search": search.model_dump(mode="json") if search is not None else None,
            "training": self.training.model_dump(mode="json"),
            "code": code["sha256"],
            "packages": installed(NUMERIC_PACKAGES),
            **more,
        }

    def record(self, key: str) -> dict[str, Any]:
        """What the record of any run of this job says, whatever becomes of the run."""
        return {
            "seed": self.job.seed,
            "key": key,
            "variant": compose.variants(compose.active(self.entries)),
            "degraded": self.degraded(),
            "device": self.device,
            "precision": self.training.precision,
            "deterministic": self.params.execution.deterministic,
        }

    def degraded(self) -> list[str]:
        return compose.degradations(self.entries, self.training, self.task_config)
