"""The shape of ``params.yaml``, ``pipelines/tasks/*.yaml`` and ``pipelines/methods/*.yaml``.

Unknown keys are refused at every level. Nothing here imports torch: the whole
configuration is validated in under a second, before any stage runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from regft_core.catalogue import EXECUTORS, OPTIMISERS, Catalogue
from regft_core.names import suggestion

#: Names become DVC stage names, command-line words and directories, so they are kept this plain and short.
NAME_LENGTH = 64
NAME_PATTERN = rf"^[a-z0-9][a-z0-9_-]{{0,{NAME_LENGTH - 1}}}$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
#: No part can be ``.`` or ``..``; ``datasets`` and ``huggingface_hub`` take no others either.
HUB_ID_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*(/[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*)?$"
Size = Annotated[int, Field(ge=2, le=1_000_000_000)] | Literal["full"]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
#: YAML has lists only; strict pydantic would refuse them for a tuple.
NameList = Annotated[tuple[Name, ...], Field(strict=False)]
#: One name may stand without its brackets.
OneOrMoreNames = Annotated[NameList, BeforeValidator(lambda given: [given] if isinstance(given, str) else given)]


class StrictModel(BaseModel):
    """Refuses unknown keys, wrong types, NaN and infinities, and cannot be changed once built."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    def known(self, *names: str) -> bool:
        """Whether all these fields are there; false only for wrong fields of an incomplete model (``parts``)."""
        return all(name in self.__dict__ for name in names)


Inconsistency = tuple[tuple[str, ...], str]


class ConsistentModel(StrictModel):
    """A model whose fields must also agree with each other."""

    def inconsistencies(self) -> Iterator[Inconsistency]:
        """What is wrong between fields: keys that lead to the place, and a sentence. Looks at ``known`` fields only."""
        yield from ()

    @model_validator(mode="after")
    def _consistent(self) -> ConsistentModel:
        if wrong := list(self.inconsistencies()):
            raise ValueError("; ".join(message for _, message in wrong))
        return self


# ----------------------------------------------------------------------------- params.yaml


MaxLength = Annotated[int, Field(ge=8, le=4096)]


class EncoderConfig(StrictModel):
    """Which pretrained encoder is fine-tuned."""

    name: str = Field(min_length=1, description="alias (minilm, mpnet), local directory, or hub id")
    revision: str | None = Field(None, description="commit of a hub id; required for hub ids")
    max_length: MaxLength = Field(128, description="tokens; longer inputs are truncated")
    pooling: Literal["head", "cls", "mean"] = Field(
        "head", description="the family's own head, or one linear on the summary token or on the mean of all tokens"
    )
    pairs: Literal["jointly", "separately"] = Field(
        "jointly", description="both texts of a pair in one input, or each in its own; separately needs cls or mean"
    )

    def rows_per_example(self, paired: bool) -> int:
        """Rows of tokens that one example is: 2 for pairs whose texts are encoded separately."""
        return 2 if paired and self.pairs == "separately" else 1

    @model_validator(mode="after")
    def _consistent(self) -> EncoderConfig:
        if self.pairs == "separately" and self.pooling == "head":
            raise ValueError(
                "pairs: separately compares two pooled vectors, which the family's own head (pooling: head) cannot; "
                "set pooling: mean or pooling: cls"
            )
        return self


class GridConfig(StrictModel):
    """The cells: every method on every task at every training size, with these seeds."""

    tasks: Annotated[tuple[Name, ...], Field(strict=False, min_length=1)]
    sizes: Annotated[tuple[Size, ...], Field(strict=False, min_length=1)]
    seeds: Annotated[tuple[Seed, ...], Field(strict=False, min_length=1)]


class SubsampleConfig(StrictModel):
    """How the training rows of (task, size, seed) are drawn."""

    stratified: bool = Field(False, description="keep the label proportions of the full set")


def _known(catalogue: Catalogue) -> AfterValidator:
    """Refuses names that no file of the catalogue has."""

    def check(name: str) -> str:
        known = catalogue.names()
        if name not in known:
            raise ValueError(f"unknown {catalogue.what} '{name}'; {suggestion(name, known)}")
        return name

    return AfterValidator(check)


#: The name of a file of ``regft_core/training/optimisers``, of ``regft_core/runs/executors``.
Optimiser = Annotated[str, _known(OPTIMISERS)]
Executor = Annotated[str, _known(EXECUTORS)]
Dropout = Literal["keep"] | Annotated[float, Field(ge=0, lt=1)]


class DropoutConfig(StrictModel):
    """Dropout probabilities; ``keep`` leaves what the checkpoint's configuration says."""

    hidden: Dropout = "keep"
    attention: Dropout = "keep"


def _refuse_null(value: Any) -> Any:
    if value is None:
        raise ValueError("is null; give a value or leave the key out")
    return value


#: Marks a field whose None stands for a key that is not there: writing ``null`` is refused.
NOT_NULL = BeforeValidator(_refuse_null)
T = TypeVar("T")
Override = Annotated[T | None, NOT_NULL]

# The values of ``training``, each with its bounds; a method's overrides use the same ones.
MAX_EPOCHS, MAX_STEPS = 10_000, 100_000_000
Epochs = Annotated[int, Field(ge=1, le=MAX_EPOCHS)]
EpochsOrNone = Annotated[int, Field(ge=0, le=MAX_EPOCHS)]
Steps = Annotated[int, Field(ge=1, le=MAX_STEPS)]
BatchSize = Annotated[int, Field(ge=1, le=65_536)]
Accumulation = Annotated[int, Field(ge=1, le=65_536)]
#: One step of Adam moves a weight by about this much: a rate above 1 is a slip of the exponent.
LearningRate = Annotated[float, Field(gt=0, le=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]
Betas = Annotated[tuple[Beta, Beta], Field(strict=False)]
Epsilon = Annotated[float, Field(gt=0)]
WeightDecay = Annotated[float, Field(ge=0)]
Schedule = Literal["linear", "cosine", "constant"]
WarmupRatio = Annotated[float, Field(ge=0, lt=1)]
WarmupSteps = Annotated[int, Field(ge=0, le=MAX_STEPS)]
#: Which epoch's weights are the result. ``as_published``: the set that also judges the run chooses.
CheckpointRule = Literal["last", "best_on_split", "best_on_dev_as_published"]
CheckpointShare = Annotated[float, Field(gt=0, lt=1)]
ClipNorm = Annotated[float, Field(gt=0)]
Precision = Literal["fp32", "bf16", "fp16"]


class TrainingConfig(StrictModel):
    """The training protocol that every method shares unless its YAML overrides a value."""

    epochs: Epochs = 10
    max_steps: Steps | None = Field(None, description="optimiser steps; overrides epochs")
    batch_size: BatchSize = Field(16, description="examples per optimiser step / accumulation")
    accumulation: Accumulation = Field(1, description="batches whose gradients are averaged per step")
    learning_rate: LearningRate = 1e-4
    optimizer: Optimiser = Field("adamw", description="a file of regft_core/training/optimisers")
    betas: Betas = (0.9, 0.999)
    epsilon: Epsilon = 1e-8
    weight_decay: WeightDecay = Field(0.01, description="decoupled; not on biases and LayerNorm")
    schedule: Schedule = "linear"
    warmup_ratio: WarmupRatio = 0.1
    warmup_steps: WarmupSteps | None = Field(None, description="optimiser steps; overrides warmup_ratio")
    clip_norm: ClipNorm | None = Field(1.0, description="global gradient norm; null switches it off")
    dropout: DropoutConfig = DropoutConfig()
    precision: Precision = "fp32"
    allow_precision_loss: bool = Field(
        False, description="run a method in a precision that erases its effect; the result is marked"
    )
    bucket_batches: int = Field(
        50, ge=1, description="batches' worth of shuffled examples sorted by length together; 1: no bucketing"
    )
    checkpoint: CheckpointRule = Field(
        "last", description="which epoch's weights the last phase leaves; whatever is not last is marked"
    )
    checkpoint_share: CheckpointShare = Field(
        0.1, description="share of the training rows that best_on_split sets aside to choose the epoch"
    )

    def settled(self) -> dict[str, Any]:
        """The values as they stand in keys and facts: a later addition at its default is left out of them."""
        values = self.model_dump(mode="json")
        if self.checkpoint != "best_on_split":
            del values["checkpoint_share"]
        for name in ("warmup_steps", "checkpoint"):
            if values[name] == type(self).model_fields[name].default:
                del values[name]
        return values


class MatchConfig(StrictModel):
    """The factor that makes plain epochs cost what another method costs, search and all."""

    match: Name


class TrainingLayer(StrictModel):
    """Values of ``training`` that are laid over weaker ones (none by default).

    A field has the type of the same field of ``TrainingConfig``; null is allowed only where it is there.
    """

    max_steps: Steps | None = None
    batch_size: Override[BatchSize] = None
    accumulation: Override[Accumulation] = None
    learning_rate: Override[LearningRate] = None
    optimizer: Override[Optimiser] = None
    betas: Override[Betas] = None
    epsilon: Override[Epsilon] = None
    weight_decay: Override[WeightDecay] = None
    schedule: Override[Schedule] = None
    warmup_ratio: Override[WarmupRatio] = None
    warmup_steps: WarmupSteps | None = None
    clip_norm: ClipNorm | None = None
    dropout: Override[DropoutConfig] = None
    precision: Override[Precision] = None
    allow_precision_loss: Override[bool] = None
    checkpoint: Override[CheckpointRule] = None
    checkpoint_share: Override[CheckpointShare] = None


class TaskTraining(TrainingLayer):
    """What one task changes in ``training``, before any method does."""

    epochs: Override[Epochs] = None

    def over(self, training: TrainingConfig) -> TrainingConfig:
        """``training`` with the task's values. Who says ``epochs`` alone means epochs: ``max_steps`` goes."""
        changes = {name: getattr(self, name) for name in self.model_fields_set}
        if "epochs" in changes:
            changes.setdefault("max_steps", None)
        if "warmup_ratio" in changes:
            changes.setdefault("warmup_steps", None)
        if self.dropout is not None:
            sides = {side: getattr(self.dropout, side) for side in self.dropout.model_fields_set}
            changes["dropout"] = training.dropout.model_copy(update=sides)
        return training.model_copy(update=changes)


class TaskModel(StrictModel):
    """What one task changes in ``model``."""

    max_length: Override[MaxLength] = None

    def over(self, model: EncoderConfig) -> EncoderConfig:
        """The section ``model`` with the task's values."""
        return model if self.max_length is None else model.model_copy(update={"max_length": self.max_length})


class TrainingOverrides(TrainingLayer):
    """The values of ``training`` that one method changes."""

    epochs: Override[EpochsOrNone] = Field(None, description="0 trains nothing")
    steps_factor: Override[Annotated[float, Field(gt=0, le=1000)] | MatchConfig] = Field(
        None, description="multiplies the number of epochs; {match: method} gives the compute of that method"
    )

    def apply(self, training: TrainingConfig, factor: float | None = None) -> TrainingConfig:
        """Return ``training`` with this phase's overrides in place.

        ``factor`` is what ``steps_factor`` comes to where it names a method to match. Raises
        ValueError where :meth:`length_problem` has something to say.
        """
        if problem := self.length_problem(training, factor):
            raise ValueError(problem)
        training, factor = self._replaced(training), self._factor(factor)
        if factor is None:
            return training
        # With max_steps the epochs count for nothing, so they alone may be cut to what is allowed.
        least = min(1, training.epochs)  # no epochs stay none
        scaled = {"epochs": min(max(least, round(training.epochs * factor)), MAX_EPOCHS)}
        if training.max_steps is not None:
            scaled["max_steps"] = round(training.max_steps * factor)
        return training.model_copy(update=scaled)

    def length_problem(self, training: TrainingConfig, factor: float | None = None) -> str:
        """Why ``steps_factor`` makes these runs too short or too long; empty when it does not.

        ``factor`` as in :meth:`apply`.
        """
        training, factor = self._replaced(training), self._factor(factor)
        base, most, what = training.epochs, MAX_EPOCHS, "epochs"
        if training.max_steps is not None:
            base, most, what = training.max_steps, MAX_STEPS, "max_steps"
        if factor is None or base == 0:
            return ""
        length = round(base * factor)
        if 1 <= length <= most:
            return ""
        return f"steps_factor {factor:g} of {what} {base} makes {what} {length}; allowed: 1 to {most}"

    def _factor(self, matched: float | None) -> float | None:
        return self.steps_factor if isinstance(self.steps_factor, float) else matched

    def _replaced(self, training: TrainingConfig) -> TrainingConfig:
        # An explicit null switches clip_norm or max_steps off; for the other values it is refused.
        changes = {name: getattr(self, name) for name in self.model_fields_set if name != "steps_factor"}
        if "warmup_ratio" in changes:
            changes.setdefault("warmup_steps", None)
        return training.model_copy(update=changes)


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
    deadline_minutes: float = Field(
        1440, gt=0, description="a run that takes longer is given up where it is, as hung, and started elsewhere"
    )


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
    setup: tuple[str, ...] = Field((), description="shell lines of the job script before Python starts")


class ExecutionConfig(ConsistentModel):
    """Where and how runs execute.

    Nothing here is part of a run's key. Device and threads can change the last bits of a result: they are
    recorded with it, and one comparison mixes no two of them (``report.mixed_environments``).
    """

    device: str = Field("auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")
    executor: Executor = Field("serial", description="a file of regft_core/runs/executors")
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
            if getattr(self, name, False) and getattr(self, "device", "auto") in ("cpu", "mps"):
                yield (
                    (name,),
                    f"{name} is for CUDA devices, but device is {self.device}; remove it, or set device: cuda",
                )
        if self.known("executor"):
            for name in ("ray", "slurm"):
                if self.known(name) and getattr(self, name) is not None and self.executor != name:
                    yield (name,), f"has options of executor '{name}', but the executor is '{self.executor}'"

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
    remote: str | None = Field(
        None,
        pattern=r"^[a-z][a-z0-9+.-]*://\S+$",
        description="object storage for hosts that share no folder, for instance s3://bucket/regft",
    )
    budget_gb: float | None = Field(None, gt=0, description="weights of the least recently used runs go first")


#: ``task`` (its dev set) or ``task/set``.
PartName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*(/[a-z0-9][a-z0-9_-]*)?$")]
#: A part of an average: a set, or several whose mean counts as one.
Part = PartName | Annotated[list[PartName], Field(min_length=1)]


class ReportConfig(StrictModel):
    """What the report compares."""

    reference: Name = Field("vanilla", description="method that differences and cost ratios refer to")
    confidence: float = Field(0.95, gt=0.5, lt=1)
    bootstrap_samples: int = Field(4_000, ge=100, le=1_000_000)
    mixed_environments: Literal["refuse", "mark"] = Field(
        "refuse", description="runs of one comparison from different machines: no report, or one that says so"
    )
    looks: Literal["planned", "open"] = Field(
        "planned",
        description="open: seeds are added until it is clear; the first look already spends half of the error",
    )
    published: OneOrMoreNames = Field((), description="tables of published/ whose numbers are printed beside ours")
    averages: dict[Name, Annotated[list[Part], Field(min_length=1)]] = Field(
        {}, description="means over tasks (or task/set) of the primary metrics; a list inside counts as one part"
    )


def _by_name(value: Any) -> Any:
    """A list of names as a mapping from them to no options; ``check_evaluations`` finds names listed twice."""
    if not isinstance(value, list):
        return value
    if wrong := [item for item in value if not isinstance(item, str)]:
        raise ValueError(f"lists {wrong[0]!r}; list names, or write a mapping of names to their options")
    return {name: {} for name in value}


#: Options of one evaluation each; a list of names when none has options.
Evaluations = Annotated[dict[Name, dict[str, Any]], BeforeValidator(_by_name)]


#: Options of one regulariser each; a mapping, so that none is listed twice and ``dvc exp run -S`` can name an option.
#: Its order never counts: what must come first is declared by the regularisers themselves.
Regularisers = dict[Name, dict[str, Any]]


class ModelOverrides(StrictModel):
    """What a method changes in ``model``: its opponents need not share a pooling that suits nobody."""

    pooling: Override[Literal["head", "cls", "mean"]] = None
    pairs: Override[Literal["jointly", "separately"]] = None


class PhaseLayer(StrictModel):
    """What is laid over one phase of a method, key by key; the result is checked as if it stood in one file."""

    data: dict[str, Any] = {}
    repeat: dict[str, Any] = {}
    regularisers: Regularisers = {}
    training: TrainingOverrides = TrainingOverrides()


class MethodLayer(StrictModel):
    """What is laid over a method's file, key by key; ``phases`` for a method that has phases."""

    regularisers: Regularisers = {}
    training: TrainingOverrides = TrainingOverrides()
    phases: dict[Name, PhaseLayer] = {}


class MethodSettings(MethodLayer):
    """A listed method's layer on every task; with ``base`` a further arm that has no file of its own."""

    base: Name | None = Field(None, description="the method of pipelines/methods that this arm starts from")
    description: str = ""
    paper: str = ""
    control_for: OneOrMoreNames = ()
    differs_by: str = ""
    variant_of: OneOrMoreNames = ()
    model: ModelOverrides | None = None


class TaskSettings(StrictModel):
    """What one task of the grid changes: for every method, and for single ones."""

    training: TaskTraining = TaskTraining()
    model: TaskModel = TaskModel()
    methods: dict[Name, MethodLayer] = {}


#: Dotted keys of settings, each with the values to try.
Grid = dict[str, Annotated[list[Any], Field(min_length=1)]]
Selection = Literal["split", "dev_as_published"]


class TuningConfig(ConsistentModel):
    """Values that are tried before a run, and what chooses among them. The chosen value is the strongest setting."""

    selection: Selection = Field(
        "split", description="what judges a trial: rows set aside from the training rows, or (marked) the dev set"
    )
    split: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.8, description="share of a run's training rows that its trials train on; the rest judges them"
    )
    per: Override[Literal["seed", "cell"]] = Field(
        None, description="whether each seed chooses for itself (as with split when absent) or all by their mean"
    )
    trials: Override[Annotated[int, Field(ge=2, le=1000)]] = Field(
        None, description="trials of every arm, drawn from its grid; the whole grid when absent"
    )
    values: Grid = Field({}, description="for every arm that trains")
    methods: dict[Name, Grid | list[dict[str, Any]]] = Field(
        {}, description="an arm's own: a grid crossed with values, a list of trials in its place, or {} for none"
    )

    @property
    def judged_by_seed(self) -> bool:
        return (self.per or ("seed" if self.selection == "split" else "cell")) == "seed"

    def inconsistencies(self) -> Iterator[Inconsistency]:
        """A choice on the dev set is one per cell; nothing to try."""
        if self.known("selection", "per") and self.selection == "dev_as_published" and self.per == "seed":
            yield ("per",), "per: seed with selection: dev_as_published; papers choose once for all seeds (per: cell)"
        if self.known("values", "methods") and not self.values and not any(self.methods.values()):
            yield (), "tuning names no values; give tuning.values or tuning.methods, or remove the section"


class Params(StrictModel):
    """``params.yaml``.

    The sections without a default are those that DVC watches: it stops at one that is missing.
    """

    model: EncoderConfig
    grid: GridConfig
    methods: Annotated[tuple[Name, ...], Field(strict=False, min_length=1)]
    subsample: SubsampleConfig
    training: TrainingConfig
    task_settings: dict[Name, TaskSettings] = Field({}, description="per task of the grid")
    method_settings: dict[Name, MethodSettings] = Field({}, description="per listed method; arms without a file")
    tuning: Override[TuningConfig] = Field(None, description="values to try, and what chooses among them")
    evaluations: Evaluations = Field({}, description="files of regft_core/evaluations, with their options")
    execution: ExecutionConfig = ExecutionConfig()
    store: StoreConfig = StoreConfig()
    report: ReportConfig


# ---------------------------------------------------------------------- pipelines/tasks/*.yaml


class HubSource(StrictModel):
    """A dataset on the Hugging Face hub, at a pinned revision; dataset scripts are refused."""

    kind: Literal["hub"]
    id: str = Field(pattern=HUB_ID_PATTERN, max_length=200)
    config: str | None = None
    revision: str = Field(min_length=1)


class FilesSource(StrictModel):
    """Files under ``data/``; the format is read off the name (.csv .tsv .jsonl .parquet, .gz)."""

    kind: Literal["files"]


class BuiltinSource(StrictModel):
    """Generated text with a controlled spurious cue (``regft_core/data/builtin.py``)."""

    kind: Literal["builtin"]
    generator: Literal["cue_sentence", "cue_pair", "cue_regression"]
    options: dict[str, Any] = {}


Source = Annotated[HubSource | FilesSource | BuiltinSource, Field(discriminator="kind")]


class ColumnsConfig(StrictModel):
    """Column names in the source."""

    text: str
    text_pair: str | None = None
    label: str = "label"
    id: str | None = Field(None, description="identifier column; the row number when absent")


class SplitsConfig(StrictModel):
    """Split names of a hub set or generator, or file paths for ``files``."""

    train: str | None = Field(None, description="absent for a set that is only evaluated on")
    dev: str = Field(description="the split that judges runs")


class OodConfig(StrictModel):
    """One out-of-distribution set that judges a task.

    Without ``source`` the set is ``pipelines/tasks/<name>.yaml``; with it, the set is
    defined in place (own data) and ``columns`` and ``labels`` describe it.
    """

    split: str | None = Field(None, description="split or path; the other task's dev by default")
    label_map: dict[str, str] | None = Field(
        None, description="this task's label -> the OOD set's label, by name; identity when names agree"
    )
    # Not in dumps: a set that is left out is gone, and one that is there is the same either way.
    if_present: bool = Field(False, exclude=True, description="left out, with a warning, while its file is not there")
    source: Source | None = None
    columns: ColumnsConfig | None = None
    labels: Annotated[tuple[str, ...], Field(strict=False)] | None = None
    label_values: dict[str, str] | None = None
    drop_labels: Annotated[tuple[str, ...], Field(strict=False)] = ()
    drop_empty: bool = False


class SubmissionConfig(StrictModel):
    """Prediction files for a benchmark's server, of splits whose labels are hidden."""

    format: Literal["glue", "clue"] = Field(description="glue: tab-separated index and prediction; clue: JSON lines")
    files: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")], str] = Field(
        min_length=1, description="name of each file -> the split that it predicts"
    )
    labels: dict[str, str] = Field({}, description="label -> how the benchmark writes it; as it is when absent")


class TaskConfig(ConsistentModel):
    """One dataset: where it comes from, its labels, its metrics, what judges it out of distribution."""

    description: str = ""
    kind: Literal["classification", "regression"] = "classification"
    source: Source
    splits: SplitsConfig
    columns: ColumnsConfig
    labels: Annotated[tuple[str, ...], Field(strict=False)] | None = Field(
        None, description="names in the order of the model's outputs; integer values in the source index this list"
    )
    label_values: dict[str, str] | None = Field(None, description="value in the source (as text) -> label name")
    drop_labels: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        (), description="values in the source (as text) that mean unlabelled; their rows are dropped and counted"
    )
    drop_empty: bool = Field(False, description="drop and count rows without text instead of refusing the set")
    range: Annotated[tuple[float, float], Field(strict=False)] | None = Field(
        None, description="smallest and largest value of a regression target"
    )
    metrics: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    primary: str = Field(description="the metric that ranks methods, one of ``metrics``")
    positive_label: str | None = Field(None, description="the class that F1 counts; F1 needs it")
    keyword_segment: Literal["text", "text_pair"] | None = Field(
        None, description="segment that token-level perturbations leave untouched (keywords in CSL)"
    )
    ood: dict[Name, OodConfig] = {}
    submission: Override[SubmissionConfig] = Field(None, description="prediction files for a benchmark's server")
    training: TaskTraining = Field(TaskTraining(), description="what this task changes in the shared protocol")
    model: TaskModel = Field(TaskModel(), description="what this task changes in the section model: max_length")

    def inconsistencies(self) -> Iterator[Inconsistency]:
        """Labels that do not fit the kind; names that are not among metrics or labels."""
        if self.known("kind", "labels"):
            if self.kind == "classification" and (self.labels is None or len(self.labels) < 2):
                yield ("labels",), "a classification task needs 'labels' with at least two names"
            if self.kind == "regression" and self.labels is not None:
                yield ("labels",), "a regression task has no 'labels'; use 'range'"
        if self.known("labels") and self.labels is not None and len(set(self.labels)) != len(self.labels):
            yield ("labels",), "'labels' names a label twice"
        if self.known("primary", "metrics") and self.primary not in self.metrics:
            yield ("primary",), f"primary '{self.primary}' is not one of metrics {list(self.metrics)}"
        if self.known("positive_label", "labels") and self.positive_label not in (None, *(self.labels or ())):
            message = f"positive_label '{self.positive_label}' is not one of labels {list(self.labels or ())}"
            yield ("positive_label",), message
        if self.known("submission", "labels") and self.submission is not None and self.submission.known("labels"):
            own, given = set(self.labels or ()), set(self.submission.labels)
            if given and own != given:
                message = f"submission.labels writes {sorted(given)}, but the task's labels are {sorted(own)}"
                yield ("submission", "labels"), message


# -------------------------------------------------------------------- pipelines/methods/*.yaml


class DataConfig(StrictModel):
    """What a phase trains on; the rows of the cell when nothing is said."""

    task: Name | None = Field(None, description="another task's training rows")
    size: Size | None = Field(None, description="rows; those of the cell when absent, of another task all")
    labels: bool = Field(True, description="false: the text alone; its labels are neither read nor learned")
    split: float = Field(1.0, gt=0, le=1, description="share that is trained on; the rest is the validation share")


class RepeatConfig(StrictModel):
    """A phase that is run several times; its members are stored one by one, then merged."""

    times: int = Field(ge=1, le=100)
    merge: Literal["mean", "greedy"] = Field("mean", description="greedy: keep what the validation share likes")
    vary: Annotated[tuple[Literal["split", "order", "noise", "head"], ...], Field(strict=False)] = (
        "split",
        "order",
        "noise",
    )

    @model_validator(mode="after")
    def _judged_alike(self) -> RepeatConfig:
        if self.merge == "greedy" and "split" in self.vary:
            raise ValueError("merge: greedy compares members on one validation share; take split out of vary")
        return self


class PhaseConfig(StrictModel):
    """One phase of a method: its data, its start, its regularisers and what it changes in the protocol."""

    data: DataConfig = DataConfig()
    start: Name = Field("previous", description="previous, checkpoint, or the name of an earlier phase")
    repeat: RepeatConfig | None = None
    seed: Seed | None = Field(None, description="a number: the phase is trained once for all seeds of the grid")
    regularisers: Regularisers = {}
    training: TrainingOverrides = TrainingOverrides()


class MethodConfig(ConsistentModel):
    """One method: either one phase (``regularisers``, ``training``) or an ordered mapping of ``phases``.

    The options of a regulariser are checked against the ``Config`` of
    ``regft_core/methods/<name>.py``.
    """

    description: str = ""
    paper: str = ""
    control_for: OneOrMoreNames = Field((), description="the methods that this arm controls for")
    differs_by: str = Field("", description="the one ingredient in which the control differs")
    variant_of: OneOrMoreNames = Field((), description="methods whose controls are also those of this one")
    combines: OneOrMoreNames = Field((), description="methods that this one puts together; each alone is a control")
    model: ModelOverrides | None = Field(None, description="how this method reads the encoder, shown in the report")
    regularisers: Regularisers = {}
    training: TrainingOverrides = TrainingOverrides()
    phases: dict[Name, PhaseConfig] | None = Field(
        None, description="in the order in which they run; the last is called finetune"
    )

    def inconsistencies(self) -> Iterator[Inconsistency]:
        """Keys beside ``phases``, phases that cannot run in their order, a control that does not say what differs."""
        if self.known("phases") and self.phases is not None:
            for key in ("regularisers", "training"):
                if key in self.model_fields_set:
                    yield (key,), f"{key} stands beside phases; move it into the phase that it belongs to"
            names = list(self.phases)
            if not names or names[-1] != "finetune":
                last = f"the last is '{names[-1]}'" if names else "there is none"
                yield ("phases",), f"phases must end with the phase 'finetune', {last}"
            for i, name in enumerate(names):
                yield from self._phase_inconsistencies(name, self.phases[name], names[:i])
        if self.known("control_for", "differs_by") and self.control_for and not self.differs_by:
            yield ("control_for",), "control_for needs 'differs_by', which says in which one ingredient they differ"

    def _phase_inconsistencies(self, name: str, phase: PhaseConfig, earlier: list[str]) -> Iterator[Inconsistency]:
        at = ("phases", name)
        if name in ("previous", "checkpoint"):
            yield at, f"'{name}' is a word of 'start'; give the phase another name"
        starts = ("previous", "checkpoint", *earlier)
        if phase.known("start") and phase.start not in starts:
            known = ", ".join(starts)
            message = f"'{name}' starts from '{phase.start}', which is no earlier phase; allowed: {known}"
            yield (*at, "start"), message
        if not phase.known("data"):
            return
        data, merge = phase.data, phase.repeat.merge if phase.known("repeat") and phase.repeat is not None else None
        if merge == "greedy" and data.known("split") and data.split == 1.0:
            message = f"'{name}' merges greedily but has no validation share; set data.split below 1"
            yield (*at, "repeat", "merge"), message
        seeded = phase.known("seed") and phase.seed is not None
        if seeded and data.known("task", "size") and data.task is None and data.size != "full":
            message = f"'{name}' has one seed for all, but the rows of a cell differ by seed; "
            yield (*at, "seed"), message + "set data.size: full or another data.task, or remove seed"
