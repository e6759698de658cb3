"""``params.yaml`` as a whole: the grid, what is tuned, how runs execute, what is reported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from regft_core.catalogue import EXECUTORS, TRACKERS
from regft_core.schema import (
    ONE_OR_MORE,
    Inconsistency,
    Items,
    Layer,
    Name,
    NameList,
    OneOrMoreNames,
    Seed,
    Size,
    SomeItems,
    StrictModel,
    named_in,
)
from regft_core.schema.training import EncoderConfig, TrainingConfig

#: A version of regft.
PATTERN = r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$"


class GridConfig(StrictModel):
    """The cells: every method on every task at every training size, with these seeds."""

    tasks: SomeItems[Name]
    sizes: SomeItems[Size]
    seeds: SomeItems[Seed]


class SubsampleConfig(StrictModel):
    """How the training rows of (task, size, seed) are drawn."""

    stratified: bool = Field(False, description="keep the label proportions of the full set")


class SmallScale(StrictModel):
    """Changes of a preset by ``--scale small``: the mark of every result (``settings/preset.py`` writes it)."""

    preset: Name
    rows: int = Field(ge=2, description="of each set that is read, at most")
    depth: float = Field(gt=0, description="layers of the encoder over those of the preset's")
    changes: Items[str] = Field(description="what differs from the preset")
    cut: bool = Field(False, description="whether the files of methods and tasks are in small already")

    @property
    def mark(self) -> str:
        """The sentences that every result carries."""
        return f"Not the paper's experiment: preset {self.preset} at small scale. {' '.join(self.changes)}"


#: Which of the declared out-of-distribution sets judge the tasks of the grid.
OodChoice = Literal["all", "none"] | NameList


def _by_name(value: Any) -> Any:
    """A list of names as a mapping from them to no options; ``check_evaluations`` finds names listed twice."""
    if not isinstance(value, list):
        return value
    if wrong := [item for item in value if not isinstance(item, str)]:
        raise ValueError(f"lists {wrong[0]!r}; list names, or write a mapping of names to their options")
    return {name: {} for name in value}


#: Options of one evaluation each; a list of names when none has options.
Evaluations = Annotated[dict[Name, dict[str, Any]], BeforeValidator(_by_name)]


class MethodSettings(StrictModel):
    """A listed method's layer on every task; with ``base`` a further arm that has no file of its own."""

    model_config = ConfigDict(extra="allow")

    base: Name | None = Field(None, description="the method whose file this arm starts from, without its layers")


class TaskSettings(StrictModel):
    """Changes on one task of the grid: for every method, and for single ones."""

    training: Layer = Field({})
    model: Layer = Field({})
    primary: str | None = Field(None, description="metric of the task that ranks methods and chooses trials and epochs")
    sizes: SomeItems[Size] | None = Field(None, description="training sizes of this task in place of grid.sizes")
    methods: dict[Name, Layer] = Field({})


#: Dotted keys of settings, each with the values to try.
Grid = dict[str, Annotated[list[Any], Field(min_length=1)]]


class TuningConfig(StrictModel):
    """Values that are tried before a run, and what chooses among them. The chosen value is the strongest setting."""

    selection: Literal["split", "dev_as_published"] = Field(
        "split", description="what judges a trial: rows set aside from the training rows, or (marked) the dev set"
    )
    split: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.8, description="share of a run's training rows that its trials train on; the rest judges them"
    )
    folds: Annotated[int, Field(ge=2, le=20)] | None = Field(
        None, description="in the place of split: parts of a run's training rows, each judges a trial of the others"
    )
    trials: Annotated[int, Field(ge=2, le=1000)] | None = Field(
        None, description="trials of every arm, drawn from its grid; the whole grid when absent"
    )
    values: Grid = Field({}, description="for every arm that trains")
    methods: dict[Name, Grid | list[dict[str, Any]]] = Field(
        {}, description="an arm's own: a grid crossed with values, a list of trials in its place, or {} for none"
    )

    @property
    def share(self) -> float:
        """The share of a run's training rows that a trial trains on."""
        if self.selection == "dev_as_published":
            return 1.0
        return self.split if self.folds is None else 1 - 1 / self.folds

    @property
    def rounds(self) -> int:
        return self.folds or 1

    def inconsistencies(self) -> Iterator[Inconsistency]:
        on_dev = self.selection == "dev_as_published"
        if on_dev and self.folds is not None:
            yield ("folds",), "selection: dev_as_published sets no training rows aside; remove folds"
        if self.folds is not None and "split" in self.model_fields_set:
            yield ("split",), "split beside folds; keep one of the two"
        if not self.values and not any(self.methods.values()):
            yield (), "tuning names no values; give tuning.values or tuning.methods, or remove the section"


class RayConfig(StrictModel):
    """``execution.ray``: how runs are spread over a Ray cluster."""

    address: str | None = Field(
        None, min_length=1, description="of a cluster that is there (host:port or ray://...); without one, a local one"
    )
    cpus: float | None = Field(None, gt=0, description="CPUs that a run takes; by default execution.threads")
    gpus: float | None = Field(
        None,
        ge=0,
        description="GPUs, or the share of one, that a run takes; by default 1 / execution.workers, 0 on a CPU",
    )
    retries: int = Field(3, ge=0, description="times that a run is started again after its machine failed it")


class SlurmConfig(StrictModel):
    """``execution.slurm``: how runs become jobs of a Slurm cluster, through submitit."""

    cluster: Literal["slurm", "local"] = Field("slurm", description="local: plain processes of this machine, to try it")
    partition: str | None = Field(None, min_length=1)
    account: str | None = Field(None, min_length=1)
    cpus: int | None = Field(None, ge=1, description="CPUs that a run takes; by default execution.threads")
    gpus: int | None = Field(None, ge=0, description="GPUs that a run takes; by default 1, 0 on execution.device cpu")
    memory_gb: float = Field(16, gt=0)
    minutes: int = Field(240, ge=1, description="time limit of a job; a run that is not done by then is queued again")
    at_once: int = Field(64, ge=1, description="jobs of one array that may run at the same time")
    requeues: int = Field(10, ge=0, description="times that a job is queued again after a time-out or a preemption")
    signal: str = Field("USR2", pattern=r"^[A-Z0-9]+$", description="what the cluster sends before it preempts a job")
    setup: Items[str] = Field((), description="shell lines of the job script before Python starts")


class ExecutionConfig(StrictModel):
    """Where and how runs execute; no part of a run's key (``report.mixed_environments``)."""

    device: str = Field("auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")
    executor: Annotated[str, named_in(EXECUTORS)] = Field("serial", description="a file of regft_core/grid/executors")
    workers: int = Field(1, ge=1, le=64, description="worker processes per device")
    threads: int = Field(
        1, ge=1, le=256, description="CPU threads of one run; another number can change the last bits of a result"
    )
    checkpoint_seconds: float = Field(60.0, ge=0, description="time between checkpoints inside a run")
    deterministic: bool = Field(True, description="deterministic GPU kernels")
    tf32: bool = Field(
        False,
        description="CUDA devices multiply in TF32, three digits of fp32's seven; refused where it erases a method",
    )
    cuda_graphs: bool = Field(False, description="CUDA devices replay the recorded step where it is one plain pass")
    ray: RayConfig | None = Field(None, description="options of executor: ray")
    slurm: SlurmConfig | None = Field(None, description="options of executor: slurm")

    def inconsistencies(self) -> Iterator[Inconsistency]:
        for name in ("tf32", "cuda_graphs"):
            if getattr(self, name) and self.device in ("cpu", "mps"):
                message = f"{name} is for CUDA devices, but device is {self.device}"
                yield (name,), f"{message}; remove it, or set device: cuda"
        for name in ("ray", "slurm"):
            if getattr(self, name) is not None and self.executor != name:
                message = f"has options of executor '{name}', but the executor is '{self.executor}'"
                yield (name,), f"{message}; remove them, or set executor: {name}"

    def settings(self) -> dict[str, Any]:
        """The options of the chosen executor, if it has a section of its own; defaults where that is left out."""
        sections: dict[str, type[StrictModel]] = {"ray": RayConfig, "slurm": SlurmConfig}
        if self.executor not in sections:
            return {}
        section = getattr(self, self.executor) or sections[self.executor]()
        return {**section.model_dump(mode="json"), "device": self.device}


class StoreConfig(StrictModel):
    """The run store, which keeps finished runs and resumes killed ones."""

    path: str = Field(".regft", min_length=1, description="may be shared storage outside the project")
    budget_gb: float | None = Field(None, gt=0, description="weights of the least recently used runs go first")


#: ``task`` (its dev set) or ``task/set``.
PartName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*(/[a-z0-9][a-z0-9_-]*)?$")]
PartNames = Annotated[Items[PartName], ONE_OR_MORE]
#: A part of an average: a set, or several whose mean counts as one.
Part = PartName | Annotated[list[PartName], Field(min_length=1)]


def split_part(part: str) -> tuple[str, str]:
    """``mnli/mnli_mm`` as (task, set); a task alone stands for its dev set."""
    task, _, name = part.partition("/")
    return task, name or "dev"


def weights_of(parts: Sequence[Part]) -> dict[tuple[str, str], float]:
    """(task, set) -> weight; a nested list weighs as one part. Weights add up to 1."""
    weights: dict[tuple[str, str], float] = {}
    for part in parts:
        names = [part] if isinstance(part, str) else part
        for name in names:
            key = split_part(name)
            weights[key] = weights.get(key, 0.0) + 1 / len(parts) / len(names)
    return weights


class ReportConfig(StrictModel):
    """Comparisons of the report."""

    reference: Name = Field("vanilla", description="method that differences and cost ratios refer to")
    confidence: float = Field(0.95, gt=0.5, lt=1)
    bootstrap_samples: int = Field(4_000, ge=100, le=1_000_000)
    mixed_environments: Literal["refuse", "mark"] = Field(
        "refuse", description="runs of one comparison from different machines: no report, or one that says so"
    )
    tolerance: float = Field(
        0.5, ge=0, le=100, description="points that a cheaper method may be expected to lose and is still taken"
    )
    prefer: OneOrMoreNames = Field(
        (), description="methods in order: the first within the tolerance is taken in place of the cheapest"
    )
    decide_by: OneOrMoreNames = Field(
        (), description="sets whose mean score decides which method to take; the development set (dev) when absent"
    )
    not_run: Items[str] = Field((), description="what `regft fit` had no time for, methods by name; the report says so")
    published: OneOrMoreNames = Field((), description="tables of published/ whose numbers are printed beside ours")
    averages: dict[Name, Annotated[list[Part], Field(min_length=1)]] = Field(
        {}, description="means over tasks (or task/set) of the primary metrics; a list inside counts as one part"
    )


class Params(StrictModel):
    """``params.yaml``. DVC watches the sections without a default, and stops at one that is missing."""

    regft: Annotated[str, Field(pattern=PATTERN)] | None = Field(
        None, description="version of regft that the file was written for, such as 0.1.0; changing it trains nothing"
    )
    model: EncoderConfig
    grid: GridConfig
    methods: SomeItems[Name]
    subsample: SubsampleConfig
    training: TrainingConfig
    ood: OodChoice = Field("all", description="declared OOD sets that judge the tasks: all, none, or a list of names")
    small_scale: SmallScale | None = Field(None, description="written by --scale small; marks every result")
    task_settings: dict[Name, TaskSettings] = Field({}, description="per task of the grid")
    method_settings: dict[Name, MethodSettings] = Field({}, description="per listed method; arms without a file")
    tuning: TuningConfig | None = Field(None, description="values to try, and what chooses among them")
    evaluations: Evaluations = Field({}, description="files of regft_core/evaluate/analyses, with their options")
    trackers: Items[Annotated[str, named_in(TRACKERS)]] = Field(
        ("mlflow",), description="files of regft_core/tracking/trackers that finished runs are logged to"
    )
    execution: ExecutionConfig = ExecutionConfig()
    store: StoreConfig = StoreConfig()
    report: ReportConfig
