"""The contents of a report: plain values, nothing read, computed or drawn here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from regft_core import metrics
from regft_core.report.costs import Cost
from regft_core.report.evaluations import EvaluationSection
from regft_core.report.facts import TunedArm
from regft_core.report.looks import Look
from regft_core.report.published.model import PublishedTable
from regft_core.report.read_grid import block_title
from regft_core.statistics.bootstrap import Estimate
from regft_core.statistics.decision import Belief
from regft_core.statistics.learning_curve import Gain
from regft_core.statistics.over_tasks import FailureRate, Interval, RankSet
from regft_core.statistics.verdict import Verdict

Role = Literal["reference", "control", "opponent"]
#: Metrics of a regression that see its unit.
SEE_SCALE = ("r2", "mse", "mae")
#: Relative difference of scores that is rounding.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Score:
    """One metric of one method on one set, over its seeds."""

    set: str
    metric: str
    estimate: Estimate
    #: Score of the best answer that ignores the input.
    majority: float

    @property
    def no_better(self) -> bool:
        """Whether the mean is no better than the score of a constant answer."""
        sign = 1.0 if metrics.higher_is_better(self.metric) else -1.0
        return self.estimate.n > 0 and sign * (self.estimate.mean - self.majority) <= ROUNDING * abs(self.majority)


@dataclass(frozen=True)
class Pair:
    """A method and what it is compared with."""

    method: str
    other: str
    role: Role
    #: What distinguishes the control from the method, in its YAML's words.
    differs_by: str = ""


@dataclass(frozen=True, kw_only=True)
class Comparison(Pair):
    """A method minus another on the primary metric of one set, paired by seed."""

    set: str
    metric: str
    estimate: Estimate
    #: Its interval holds together with those of its family; that of ``estimate`` is pointwise and has no word.
    verdict: Verdict
    #: Examples of the set, and whether both methods predict the same on all of them for every shared seed.
    n_examples: int
    identical: bool
    #: The difference in examples of the set, for accuracy.
    examples: float | None
    #: Declared compute of the method relative to the other's.
    compute_ratio: float | None
    #: The looks so far, which the family's error is shared among; None for the one that was planned.
    look: Look | None = None


@dataclass(frozen=True)
class Row:
    """One method in one block."""

    method: str
    #: The method that this arm controls for, when that is part of the block.
    control_for: str | None
    differs_by: str
    #: set -> metric -> score
    scores: Mapping[str, Mapping[str, Score]]
    #: (seed, error)
    failed: tuple[tuple[int, str], ...]
    #: (seed, "constant" or "majority") of the runs that are no better than a constant answer (``Kind.collapsed``)
    collapsed: tuple[tuple[int, str], ...]
    n_expected: int
    cost: Cost
    variants: tuple[str, ...]
    degraded: tuple[str, ...]
    #: value of the training protocol -> (shared, this method's)
    overrides: Mapping[str, tuple[Any, Any]]
    comparisons: tuple[Comparison, ...] = ()
    #: An arm above whose runs these are: they were trained once.
    same_runs_as: str | None = None
    #: Several seeds gave the same answers to every row of the validation set: they count as one answer.
    still: bool = False
    #: It answers without reading the input: a line of reference, about which nothing is claimed.
    constant: bool = False
    #: Phases and regularisers: how much there is to it.
    ingredients: int = 0

    @property
    def n_ok(self) -> int:
        """Seeds that ran to the end."""
        return self.n_expected - len(self.failed)

    def no_better(self, primary: str) -> dict[str, list[str]]:
        """Set -> metrics by which it is no better than a constant answer, of ``primary`` and those that see scale.

        A metric that only ranks (Spearman) cannot see that all values are far off.
        """
        if self.constant:
            return {}
        found = {
            name: [metric for metric, score in own.items() if metric in (primary, *SEE_SCALE) and score.no_better]
            for name, own in self.scores.items()
        }
        return {name: by for name, by in found.items() if by}

    def against(self, role: Role, set_name: str = "dev") -> list[Comparison]:
        """Comparisons with the reference (at most one) or with each control, on one set."""
        return [c for c in self.comparisons if c.role == role and c.set == set_name]


@dataclass(frozen=True)
class Opponents:
    """Arms that train the encoder against the best arm that does not."""

    #: The best by mean, and how many there are.
    best: str
    n: int
    #: One per set and arm that trains the encoder and finished a seed together with ``best``.
    comparisons: tuple[Comparison, ...]

    def on(self, set_name: str) -> list[Comparison]:
        """Those of one set."""
        return [c for c in self.comparisons if c.set == set_name]


@dataclass(frozen=True)
class Choice:
    """A method that may be taken."""

    method: str
    #: On the validation set, over its seeds.
    score: Estimate
    belief: Belief
    #: Declared passes, plain fine-tuning = 1. No measured seconds: a decision is the same on every machine.
    cost: float | None
    #: Other methods with the same scores under every seed: one choice, of which this is the simplest.
    same: tuple[str, ...] = ()


@dataclass(frozen=True)
class Decision:
    """Which method to take in one block, and what the choice rests on."""

    metric: str
    confidence: float
    #: Points that a cheaper method may be expected to lose and is still taken.
    tolerance: float
    #: Sets whose mean score decides.
    judges: tuple[str, ...]
    #: Methods that finished every seed, by expected score.
    choices: tuple[Choice, ...]
    #: (method, why it did not enter)
    left_out: tuple[tuple[str, str], ...]
    #: None when no method finished every seed.
    pick: Choice | None
    #: What claims are about: the best method that trains no encoder, or else the reference.
    baseline: str | None
    baseline_frozen: bool
    #: Methods whose verdict against it says so.
    beating: tuple[str, ...]
    sentences: tuple[str, ...] = ()
    #: What exports the pick.
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """All methods on one task at one size; the reference first, controls after their method."""

    task: str
    size: str
    kind: str
    primary: str
    metrics: tuple[str, ...]
    #: set -> number of examples, the validation set first
    sets: Mapping[str, int]
    rows: tuple[Row, ...]
    #: Whether each seed was judged on a fold of its own.
    folded: bool = False
    #: Methods of the grid that have no result here.
    absent: tuple[str, ...] = ()
    #: Who ran where, when the runs come from several environments; empty when they share one.
    mixed_environments: tuple[str, ...] = ()
    #: None when every arm trains the encoder.
    opponents: Opponents | None = None
    decision: Decision | None = None
    #: method -> the ranks by mean score that its runs leave possible, together with those of the other blocks.
    ranks: Mapping[str, RankSet] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """``task-size``."""
        return f"{self.task}-{self.size}"

    @property
    def title(self) -> str:
        """For headings and sentences."""
        return block_title(self.task, self.size)

    def row(self, method: str) -> Row | None:
        """The row of ``method``, or None."""
        return next((row for row in self.rows if row.method == method), None)


def by_size(blocks: Sequence[Block], rows: Mapping[str, float]) -> dict[str, list[Block]]:
    """Task -> its blocks, the smallest training set first; ``rows`` are the blocks' training rows by name."""
    tasks: dict[str, list[Block]] = {}
    for block in sorted(blocks, key=lambda block: rows[block.name]):
        tasks.setdefault(block.task, []).append(block)
    return {task: tasks[task] for task in dict.fromkeys(block.task for block in blocks)}


@dataclass(frozen=True)
class AcrossTasks:
    """One method over all blocks, on the primary metric of the validation sets."""

    method: str
    #: Mean over blocks of its rank by mean score (1 is the best), and what its possible ranks leave of it;
    #: None when a block has no score of it.
    mean_rank: Interval | None
    #: Mean difference to the reference, when all blocks have the same primary metric.
    difference: Interval | None
    failures: FailureRate
    #: role -> verdict word -> number of development-set comparisons
    words: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class MoreRows:
    """Forecast for more training rows of one method on one task's validation set."""

    task: str
    method: str
    metric: str
    #: Training rows at the largest size, and the number of sizes that were fitted.
    rows: int
    sizes: int
    gains: tuple[Gain, ...]
    #: Whether the decision at the largest size takes this method.
    taken: bool


@dataclass(frozen=True)
class Finding:
    """Summary of one method in one block, in words."""

    block: str
    method: str
    #: Against every control where there is one, else against the reference; None without comparison.
    word: str | None
    judged_by: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class AverageLine:
    """One method in an average column; None where a part of it has no score."""

    method: str
    value: Interval | None
    #: To the reference, paired by seed in every part; None for the reference itself.
    difference: Interval | None
    #: Parts of which seeds are missing, hence the mean of the runs that survived.
    incomplete: tuple[str, ...]


@dataclass(frozen=True)
class Average:
    """One average column at one training size."""

    name: str
    size: str
    parts: tuple[str, ...]
    #: A metric that is shown as all of them are; None when their scales differ.
    metric: str | None
    #: Metric of each part.
    metrics: tuple[str, ...]
    lines: tuple[AverageLine, ...]


@dataclass(frozen=True)
class Report:
    """Everything that ``report.html``, ``results.json``, ``metrics/`` and the plots show."""

    reference: str | None
    confidence: float
    seeds: tuple[int, ...]
    blocks: tuple[Block, ...]
    across: tuple[AcrossTasks, ...]
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]
    #: What says that this is not the experiment of the paper that its preset is named after; empty otherwise.
    mark: str = ""
    #: Declared out-of-distribution sets that are not evaluated on, in sentences.
    left_out: tuple[str, ...] = ()
    #: Per task: how many rows ``max_length`` cut; and, among the warnings too, where that is a tenth and more.
    truncated: tuple[str, ...] = ()
    cut_warnings: tuple[str, ...] = ()
    #: What the evaluations beyond the scores found, in the order of their names.
    evaluations: tuple[EvaluationSection, ...] = ()
    #: Tables of papers that ``report.published`` names.
    published: tuple[PublishedTable, ...] = ()
    #: Average columns that the configuration asks for; the trials of each arm where anything was tuned.
    averages: tuple[Average, ...] = ()
    tuned: tuple[TunedArm, ...] = ()
    #: What more rows would bring, where a task has three sizes or more.
    more_rows: tuple[MoreRows, ...] = ()
    #: Content of ``results.json`` and of the files in ``metrics/``.
    results: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    html: str = field(default="", repr=False)
