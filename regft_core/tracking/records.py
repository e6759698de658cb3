"""One run, one cell and the report as plain records: what the mirror is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regft_core.runs.results.logs import CurvePoint, Log, Logged
from regft_core.runs.results.records import EpochScores


@dataclass(frozen=True)
class Point:
    """One number: ``time`` is in milliseconds since 1970."""

    name: str
    value: float
    step: int
    time: int


@dataclass(frozen=True)
class DatasetRecord:
    """Rows that a run or the runs of a cell read; ``profile`` is JSON."""

    name: str
    digest: str
    #: ``training`` or ``evaluation``.
    context: str
    #: Folder or file, relative to the project.
    source: str
    profile: str


@dataclass(frozen=True)
class RunRecord:
    """One seed of one cell.

    ``training`` and ``evaluation`` are digests of what the two kinds of stages wrote about it;
    ``evaluation`` is empty before the run was evaluated.
    """

    cell: str
    seed: int
    key: str
    name: str
    ok: bool
    training: str
    evaluation: str
    tags: Mapping[str, str]
    params: Mapping[str, str]
    #: Of all seeds of the cell, by stage.
    curves: Sequence[Log]
    diagnostics: Sequence[Log]
    epoch_scores: EpochScores | None
    scores: Mapping[str, float]
    start: int
    end: int
    search_seconds: float
    config: Mapping[str, Any]
    record: Mapping[str, Any]
    predictions: tuple[Path, ...]
    datasets: tuple[DatasetRecord, ...] = ()
    evaluations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What each evaluation beyond the scores found about this run."""

    def points(self) -> list[Point]:
        """Curves, what the method logged and scores of epochs, by step; times are spread evenly over the run."""
        steps = [point for log in self.curves for point in log.curve([self.seed])]
        logged = [one for log in self.diagnostics for one in log.logged([self.seed])]
        last: dict[str, int] = {}
        rows: list[CurvePoint | Logged] = [*steps, *logged]
        for one in rows:
            last[one.phase] = max(last.get(one.phase, 0), one.step)
        boundary = self.start + int(self.search_seconds * 1000)
        searches = [phase for phase in last if phase != "finetune"]

        def moment(phase: str, step: int) -> int:
            begin, end = (boundary, self.end) if phase not in searches else (self.start, boundary)
            if phase in searches:
                width = (end - begin) / len(searches)
                begin, end = (
                    begin + int(width * searches.index(phase)),
                    begin + int(width * (searches.index(phase) + 1)),
                )
            return begin + int((end - begin) * step / max(1, last.get(phase, 1)))

        def point(phase: str, name: str, value: float, step: int) -> Point:
            return Point(name if phase == "finetune" else f"{phase}.{name}", value, step, moment(phase, step))

        points = [
            point(one.phase, name, value, one.step)
            for one in steps
            for name in ("loss", "learning_rate", "gradient_norm")
            if (value := getattr(one, name)) is not None
        ]
        points += [point(one.phase, one.name, one.value, one.step) for one in logged]
        if self.epoch_scores is not None:
            points += [
                point(phase, f"epoch.{rows}.{self.epoch_scores.metric}", score, step)
                for phase, rows, step, _, score in self.epoch_scores.scores
                if score is not None
            ]
        return points


@dataclass(frozen=True)
class CellRecord:
    """One cell with those of its seeds that the grid names and the files know."""

    cell: str
    name: str
    tags: Mapping[str, str]
    params: Mapping[str, str]
    scores: Mapping[str, float]
    config: Mapping[str, Any]
    runs: tuple[RunRecord, ...] = field(default=())
    datasets: tuple[DatasetRecord, ...] = ()


@dataclass(frozen=True)
class ReportRecord:
    """The report's files; one MLflow run holds them."""

    digest: str
    files: tuple[Path, ...]
    folder: Path
    time: int
