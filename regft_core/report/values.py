"""The contents of a report: plain values, nothing read, computed or drawn here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from regft_core.report.facts import Cost, TunedArm
from regft_core.report.formatting import listed, score, sign
from regft_core.report.looks import Look
from regft_core.report.read_grid import BlockData, CellData
from regft_core.settings.controls import Control
from regft_core.statistics.arms import RankSet
from regft_core.statistics.bootstrap import Estimate
from regft_core.statistics.decision import Belief
from regft_core.statistics.verdict import BELOW, Sample, Verdict

if TYPE_CHECKING:
    from regft_core.report.averages import AcrossTasks, Average
    from regft_core.report.evaluations import EvaluationSection
    from regft_core.report.published_table import PublishedTable
    from regft_core.report.wrong_answers import SetAnswers

#: A control is the method at strength 0; a replacement has something else, or less, in the ingredient's place.
Role = Literal["reference", "control", "replacement", "opponent"]
ROLES: tuple[Role, ...] = ("reference", "control", "replacement")
#: Metrics of a regression that see its unit.
SEE_SCALE = ("r2", "mse", "mae")
#: Relative difference of scores that is rounding.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Score:
    set: str
    metric: str
    estimate: Estimate
    #: Score of the best answer that ignores the input.
    majority: float

    @property
    def no_better(self) -> bool:
        gain = sign(self.metric) * (self.estimate.mean - self.majority)
        return self.estimate.n > 0 and gain <= ROUNDING * abs(self.majority)


@dataclass(frozen=True)
class Pair:
    """A method and what it is compared with; ``differs_by``: what distinguishes a control, in its YAML's words."""

    method: str
    other: str
    role: Role
    differs_by: str = ""
    #: Whether ``other`` is the method at strength 0, which the reference may be too: the difference is then a gain.
    gain: bool = False

    def plays(self, role: Role) -> bool:
        """Whether ``other`` has this role: a reference that is the method at strength 0 is its control, too."""
        return self.gain if role == "control" else self.role == role


@dataclass(frozen=True, kw_only=True)
class Comparison(Pair):
    set: str
    metric: str
    estimate: Estimate
    #: Its interval holds together with those of its family; that of ``estimate`` is pointwise.
    verdict: Verdict
    n_examples: int
    #: Declared compute of the method relative to the other's.
    compute_ratio: float | None
    #: The looks so far, which the family's error is shared among; None for the only one.
    look: Look | None = None
    sample: Sample = field(repr=False, compare=False)

    @property
    def detectable(self) -> str:
        """The true difference that these seeds and rows detect 80% of the time, or why there is no such number."""
        if self.sample.identical:
            return f"identical answers to all {self.n_examples} rows"
        return score(self.verdict.detectable, self.metric)


@dataclass(frozen=True, kw_only=True)
class Row(CellData):
    """One method in one block: what was read, and what follows from it."""

    #: Its part as a control of methods of the block; empty for the reference.
    control_for: tuple[Control, ...]
    scores: Mapping[str, Mapping[str, Score]]
    cost: Cost
    #: value of the training protocol -> (shared, this method's)
    overrides: Mapping[str, tuple[Any, Any]]
    comparisons: tuple[Comparison, ...] = ()
    #: With the best frozen encoder, unless ``comparisons`` has that one; of arms that train the encoder.
    opposed: tuple[Comparison, ...] = ()
    #: An arm above whose runs these are.
    same_runs_as: str | None = None
    #: Several seeds gave the same answers to every row of the validation set: they count as one answer.
    still: bool = False

    @property
    def failed(self) -> dict[int, str]:
        return {run.seed: run.error or "no error recorded" for run in self.runs if not run.ok}

    @property
    def collapsed(self) -> dict[int, str]:
        """Seed -> ``constant`` or ``majority``, of runs no better than a constant answer (``Kind.collapsed``)."""
        return {run.seed: run.collapsed for run in self.runs if run.collapsed}

    @property
    def n_ok(self) -> int:
        return len(self.runs) - len(self.failed)

    def no_better(self, primary: str) -> dict[str, list[str]]:
        """Set -> metrics by which it is no better than a constant answer, of ``primary`` and those that see scale.

        A metric that only ranks (Spearman) cannot see that all values are far off.
        """
        if self.constant:
            return {}
        found = {
            name: [metric for metric, score in scores.items() if metric in (primary, *SEE_SCALE) and score.no_better]
            for name, scores in self.scores.items()
        }
        return {name: by for name, by in found.items() if by}

    def below(self, primary: str) -> dict[str, str]:
        """Set -> that it is no better than a constant answer there, by which metrics."""
        low = self.no_better(primary).items()
        return {name: BELOW + ("" if primary in by else f" (by {listed(by)})") for name, by in low}

    def against(self, role: Role, set_name: str = "dev") -> list[Comparison]:
        """Comparisons with the reference (at most one), or with each control or replacement, on one set."""
        return [c for c in self.comparisons if c.plays(role) and c.set == set_name]


@dataclass(frozen=True)
class Choice:
    method: str
    score: Estimate
    belief: Belief
    #: Declared passes, plain fine-tuning = 1. No measured seconds: a decision is the same on every machine.
    cost: float | None
    #: Other methods whose runs these are.
    same: tuple[str, ...] = ()
    #: Of the mean over out-of-distribution sets; None without any, and where ``report.decide_by`` names what decides.
    elsewhere: Belief | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of the expected score, allowing for the choice; None below two seeds."""
        return (self.belief.low, self.belief.high) if self.score.n > 1 else None


@dataclass(frozen=True)
class Decision:
    sentences: tuple[str, ...]
    choices: tuple[Choice, ...] = ()
    pick: Choice | None = None
    #: What claims are about: the best method that trains no encoder, or else the reference.
    baseline: str | None = None
    beating: tuple[str, ...] = ()
    #: What exports the pick; empty where nothing can.
    command: str = ""

    def choice(self, method: str) -> Choice | None:
        """The choice that ``method`` is, or has the scores of."""
        return next((c for c in self.choices if method in (c.method, *c.same)), None)


@dataclass(frozen=True, kw_only=True)
class Block(BlockData):
    """All methods on one task at one size; the reference first, controls after their method."""

    rows: tuple[Row, ...]
    decision: Decision
    #: Who ran where, when the runs come from several environments; empty when they share one.
    mixed_environments: tuple[str, ...] = ()
    #: The best by mean of the methods that do not train the encoder, constants left out; None when there is none.
    frozen: str | None = None
    #: method -> the ranks by mean score that its runs leave possible, together with those of the other blocks.
    ranks: Mapping[str, RankSet] = field(default_factory=dict)

    @property
    def taken(self) -> str:
        return self.decision.pick.method if self.decision.pick is not None else ""

    def row(self, method: str) -> Row | None:
        return next((row for row in self.rows if row.method == method), None)

    def estimate(self, method: str, name: str = "dev") -> Estimate | None:
        """The primary metric of ``method`` on one set; None where no seed has it."""
        row = self.row(method)
        score = row.scores.get(name, {}).get(self.primary) if row is not None else None
        return score.estimate if score is not None and score.estimate.n else None


@dataclass(frozen=True)
class Report:
    """Everything that ``report.html``, ``results.json``, ``metrics/`` and the plots show."""

    reference: str | None
    confidence: float
    seeds: tuple[int, ...]
    blocks: tuple[Block, ...]
    across: tuple[AcrossTasks, ...]
    warnings: tuple[str, ...]
    #: What says that this is not the experiment of the paper that its preset is named after; empty otherwise.
    mark: str = ""
    #: Declared out-of-distribution sets that are not evaluated on, in sentences.
    left_out: tuple[str, ...] = ()
    evaluations: tuple[EvaluationSection, ...] = ()
    published: tuple[PublishedTable, ...] = ()
    averages: tuple[Average, ...] = ()
    tuned: tuple[TunedArm, ...] = ()
    more_rows: tuple[str, ...] = ()
    #: Block -> set -> answers of the method to take, each row once.
    answers: Mapping[str, Mapping[str, SetAnswers]] = field(default_factory=dict)
    results: Mapping[str, Any] = field(default_factory=dict)
    html: str = field(default="", repr=False)


def smaller(blocks: Sequence[Block]) -> list[str]:
    """Names of blocks whose task has one with more training rows; a report lists the largest of a task first."""
    return [block.name for place, block in enumerate(blocks) if block.task in {b.task for b in blocks[:place]}]


def by_size(blocks: Sequence[Block]) -> dict[str, list[Block]]:
    rising = sorted(blocks, key=lambda block: block.subsample.n)
    return {task: [b for b in rising if b.task == task] for task in dict.fromkeys(block.task for block in blocks)}
