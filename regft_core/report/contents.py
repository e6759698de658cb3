"""Everything that a report shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from regft_core.report.answers import SetAnswers
from regft_core.report.averages import AcrossTasks, Average, MoreRows
from regft_core.report.evaluations import EvaluationSection
from regft_core.report.facts import TunedArm
from regft_core.report.model import Block
from regft_core.report.published.table import PublishedTable
from regft_core.report.sentences import Finding


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
    #: Task -> how many rows ``max_length`` cut; and, among the warnings too, where that is a tenth and more.
    truncated: Mapping[str, str] = field(default_factory=dict)
    cut_warnings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: What the evaluations beyond the scores found, in the order of their names.
    evaluations: tuple[EvaluationSection, ...] = ()
    #: Tables of papers that ``report.published`` names.
    published: tuple[PublishedTable, ...] = ()
    #: Average columns that the configuration asks for; the trials of each arm where anything was tuned.
    averages: tuple[Average, ...] = ()
    tuned: tuple[TunedArm, ...] = ()
    #: What more rows would bring, where a task has three sizes or more.
    more_rows: tuple[MoreRows, ...] = ()
    #: Block -> method to take, reference -> set -> answers, each row once.
    answers: Mapping[str, Mapping[str, Mapping[str, SetAnswers]]] = field(default_factory=dict)
    #: Content of ``results.json``.
    results: Mapping[str, Any] = field(default_factory=dict)
    html: str = field(default="", repr=False)
