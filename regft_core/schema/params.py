"""``params.yaml`` as a whole: the grid, and the sections that the files beside this one describe."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from regft_core.catalogue import TRACKERS
from regft_core.schema import Layer, Name, NameList, Seed, Size, StrictModel, named_in
from regft_core.schema.encoder import EncoderConfig, TaskModel
from regft_core.schema.execution import ExecutionConfig, StoreConfig
from regft_core.schema.report import ReportConfig
from regft_core.schema.training import TrainingConfig
from regft_core.schema.tuning import TuningConfig

#: A version of regft.
PATTERN = r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$"


class GridConfig(StrictModel):
    """The cells: every method on every task at every training size, with these seeds."""

    tasks: Annotated[tuple[Name, ...], Field(strict=False, min_length=1)]
    sizes: Annotated[tuple[Size, ...], Field(strict=False, min_length=1)]
    seeds: Annotated[tuple[Seed, ...], Field(strict=False, min_length=1)]


class SubsampleConfig(StrictModel):
    """How the training rows of (task, size, seed) are drawn."""

    stratified: bool = Field(False, description="keep the label proportions of the full set")


class SmallScale(StrictModel):
    """Changes of a preset by ``--scale small``: the mark of every result (``settings/small.py`` writes it)."""

    preset: Name
    rows: int = Field(ge=2, description="of each set that is read, at most")
    depth: float = Field(gt=0, description="layers of the encoder over those of the preset's")
    changes: Annotated[tuple[str, ...], Field(strict=False)] = Field(description="what differs from the preset")
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

    base: Name | None = Field(None, description="the method of pipelines/methods that this arm starts from")


class TaskSettings(StrictModel):
    """Changes on one task of the grid: for every method, and for single ones."""

    training: Layer = Field({})
    model: TaskModel = Field({})
    primary: str | None = Field(None, description="metric of the task that ranks methods and chooses trials and epochs")
    sizes: Annotated[tuple[Size, ...], Field(strict=False, min_length=1)] | None = Field(
        None, description="training sizes of this task in place of grid.sizes"
    )
    methods: dict[Name, Layer] = Field({})


class Params(StrictModel):
    """``params.yaml``.

    The sections without a default are those that DVC watches: it stops at one that is missing.
    """

    regft: Annotated[str, Field(pattern=PATTERN)] | None = Field(
        None, description="version of regft that the file was written for, such as 0.1.0; changing it trains nothing"
    )
    model: EncoderConfig
    grid: GridConfig
    methods: Annotated[tuple[Name, ...], Field(strict=False, min_length=1)]
    subsample: SubsampleConfig
    training: TrainingConfig
    ood: OodChoice = Field("all", description="declared OOD sets that judge the tasks: all, none, or a list of names")
    small_scale: SmallScale | None = Field(None, description="written by --scale small; marks every result")
    task_settings: dict[Name, TaskSettings] = Field({}, description="per task of the grid")
    method_settings: dict[Name, MethodSettings] = Field({}, description="per listed method; arms without a file")
    tuning: TuningConfig | None = Field(None, description="values to try, and what chooses among them")
    evaluations: Evaluations = Field({}, description="files of regft_core/evaluate/analyses, with their options")
    trackers: Annotated[tuple[Annotated[str, named_in(TRACKERS)], ...], Field(strict=False)] = Field(
        ("mlflow",), description="files of regft_core/tracking/trackers that finished runs are logged to"
    )
    execution: ExecutionConfig = ExecutionConfig()
    store: StoreConfig = StoreConfig()
    report: ReportConfig
