"""The records in ``work/``, as they are written and as they are read; a run keeps fields that nobody here reads."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from regft_core.evaluate.analysis_result import Table

#: Where a result says that it is not its paper's experiment: in ``results.json``, and as a tag in MLflow.
MARK = "not_the_papers_experiment"


class Record(BaseModel):
    """Base of all records; they do not change once they are read."""

    model_config = ConfigDict(frozen=True, protected_namespaces=())

    def plain(self) -> dict[str, Any]:
        """As JSON values, without what the file did not say."""
        return self.model_dump(mode="json", exclude_unset=True)


class Cost(Record):
    """Time, passes and memory of a run; passes are per batch of a step, in units of the batch."""

    train_seconds: float | None = None
    fit_seconds: float | None = None
    #: Of the phases before fine-tuning; the evaluate stage adds it.
    search_seconds: float | None = None
    seconds_per_step: float | None = None
    forward_passes_per_step: float | None = None
    backward_passes_per_step: float | None = None
    batches_per_step: float | None = None
    real_tokens: int | None = None
    padded_tokens: int | None = None
    peak_memory_bytes: int | None = None
    #: Passes of all phases relative to plain fine-tuning.
    declared_ratio: float | None = None
    #: Of the phases before fine-tuning.
    steps: int | None = None


class Trial(Record):
    """One trial of a tuned run; its score is None when it failed."""

    trial: int
    values: dict[str, Any]
    key: str
    status: Literal["ok", "failed"]
    error: str | None
    score: float | None
    seconds: float
    steps: int | None


class Tuned(Record):
    """The trials before a run, and the choice."""

    values: dict[str, Any]
    chosen: int
    selection: str
    split: float | None = None
    metric: str
    seconds: float
    trials: list[Trial]


class EpochScore(NamedTuple):
    """The score of one epoch on ``rows`` (``dev``, ``held_out``); None where it is no number."""

    phase: str
    rows: str
    step: int
    epoch: float
    score: float | None


class EpochScores(Record):
    metric: str
    scores: list[EpochScore]


class SetScores(Record):
    n: int
    metrics: dict[str, float]
    #: Of the best answer that ignores the input.
    majority: dict[str, float] = {}
    warning: str | None = None
    positive_label_index: int | None = None


class RunRecord(Record):
    """One run of a cell, as every stage writes it; a stage leaves out what it does not know."""

    model_config = ConfigDict(frozen=True, protected_namespaces=(), extra="allow")

    size: str
    seed: int
    status: Literal["ok", "failed"]
    error: str | None
    #: Of the fine-tuned run; the stage search has none.
    key: str = ""
    #: Where it ran, as ``environment.py`` describes it.
    environment: dict[str, Any] | None = None
    cost: Cost = Cost()
    #: Of the phases before fine-tuning: their keys, and what they cost.
    phases: dict[str, str] = {}
    search_cost: Cost | None = None
    tuned: Tuned | None = None
    steps: int | None = None
    seconds: float | None = None
    epoch_scores: EpochScores | None = None
    precision: str | None = None
    variant: str | None = None
    degraded: list[str] = []
    #: Of the evaluation: "constant" or "majority" where it did no better than that on the validation set.
    collapsed: str | None = None
    #: Empty where it failed.
    sets: dict[str, SetScores] = {}

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def keys(self) -> dict[str, str]:
        """Phase -> key, of all phases."""
        return {**self.phases, "finetune": self.key}


class SearchManifest(Record):
    """``work/search/<method>/<task>/<size>/manifest.json``."""

    runs: list[RunRecord]


class Manifest(SearchManifest):
    """``work/finetune/<method>/<task>/<size>/manifest.json``: the settings of a cell, too."""

    #: In their order.
    phases: list[str]
    trains_encoder: bool = True
    reads_encoder: bool = True
    #: False for a constant answer, which is a line of reference.
    reads_text: bool = True
    #: What the encoder's config.json says of its origin (``settings/encoders.py``).
    encoder: dict[str, Any] = {}
    #: Every setting that acts, by its path.
    settings: dict[str, Any]
    #: What ``regft run --config`` reads, as YAML: the order of phases counts.
    config: str = ""
    versions: dict[str, str | None]

    @property
    def model(self) -> dict[str, Any]:
        """The encoder that the runs are evaluated with: the section ``model``, ``revision`` and ``sha256``."""
        return dict(self.settings["model"])

    @property
    def training(self) -> dict[str, Any]:
        """The protocol of the last phase."""
        return dict(self.settings["phases"]["finetune"]["training"])

    @property
    def regularisers(self) -> dict[str, dict[str, Any]]:
        """Phase -> regulariser -> options, defaults included."""
        return {name: self.settings["phases"][name]["regularisers"] for name in self.phases}


class Evaluation(Record):
    """``work/evaluate/<method>/<task>/<size>/result.json``."""

    primary: str
    runs: list[RunRecord]


class FindingRecord(Record):
    """Findings of an evaluation beyond the scores about one run."""

    seed: int
    key: str
    status: Literal["ok", "failed"]
    error: str | None = None
    environment: dict[str, Any] | None = None
    #: set or ``run`` -> name -> number, table
    scalars: dict[str, dict[str, float]]
    tables: dict[str, dict[str, Table]]
    ranges: dict[str, list[float | None]] = {}
    remarks: list[str] = []
    over_sizes: list[str] = []


class Finding(Record):
    """``work/evaluate/<method>/<task>/<size>/evaluations/<name>.json``."""

    description: str
    options: dict[str, Any]
    runs: list[FindingRecord]


class PreparedSet(Record):
    """One evaluation set, as it was prepared; labels are its own where they differ from the task's."""

    n: int
    labels: list[str] | None = None
    label_map: dict[str, str] | None = None


class PreparedTask(Record):
    """``work/datasets/<task>/task.json``, as far as results are read with it."""

    task: str
    kind: str
    labels: list[str] | None
    metrics: list[str]
    primary: str
    positive_label: str | None = None
    range: list[float] | None = None
    counts: dict[str, int] = {}
    dropped: dict[str, dict[str, int]] = {}
    duplicates: dict[str, int] = {}
    #: How dev was drawn from the training rows (``data.drawn``), and rows that leak (``data.checks``).
    drawn: dict[str, Any] = {}
    leaks: dict[str, Any] = {}
    sets: dict[str, PreparedSet]
    source: dict[str, Any] = {}
    #: Hashes of the rows by set; ``folds``: of all rows of the folds.
    content: dict[str, str] = {}

    @property
    def folded(self) -> bool:
        """Whether each seed is evaluated on a fold of its own."""
        return "folds" in self.drawn


class Draw(Record):
    sha256: str
    label_counts: dict[str, int] | None = None
    #: set -> its rows that have the text of a training row
    duplicates_with: dict[str, int] = {}


class Subsample(Record):
    """``work/subsamples/<task>/<size>/manifest.json``; ``n`` rows for each seed."""

    n: int
    stratified: bool = False
    seeds: dict[str, Draw]
