"""One run, one cell and the report as plain records: what the mirror is made of."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


class CellLike(Protocol):
    """A cell of the grid (``regft_core.config.grid.Cell``)."""

    @property
    def method(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def size(self) -> int | str: ...
    @property
    def directory(self) -> str: ...


@dataclass(frozen=True)
class Point:
    """One number: ``time`` is in milliseconds since 1970."""

    name: str
    value: float
    step: int
    time: int


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
    curves: tuple[str, ...]
    diagnostics: tuple[str, ...]
    scores: Mapping[str, float]
    start: int
    end: int
    search_seconds: float
    config: Mapping[str, Any]
    record: Mapping[str, Any]
    predictions: tuple[Path, ...]
    dataset: tuple[str, str, str] | None
    """Name, digest and JSON profile of the training rows."""
    evaluations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What each evaluation beyond the scores found about this run."""

    def points(self) -> list[Point]:
        """Curves, what the method logged and scores of epochs, by step; times are spread evenly over the run."""
        rows = list(csv.reader(self.curves))
        logged = list(csv.reader(self.diagnostics))
        last: dict[str, int] = {}
        for _, phase, step, *_ in (*rows, *logged):
            last[phase] = max(last.get(phase, 0), _step(step))
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

        points = []
        for _, phase, step, _, *values in rows:
            prefix = "" if phase == "finetune" else f"{phase}."
            for name, value in zip(("loss", "learning_rate", "gradient_norm"), values, strict=True):
                if value:
                    points.append(Point(prefix + name, float(value), _step(step), moment(phase, _step(step))))
        for _, phase, step, name, value in logged:
            prefix = "" if phase == "finetune" else f"{phase}."
            if value:
                points.append(Point(prefix + name, float(value), _step(step), moment(phase, _step(step))))
        scored = (self.record.get("training", {}).get("finetune") or {}).get("epoch_scores") or {"scores": []}
        for phase, taken_on, step, _, score in scored["scores"]:
            if score is not None:
                name = f"{'' if phase == 'finetune' else f'{phase}.'}epoch.{taken_on}.{scored['metric']}"
                points.append(Point(name, float(score), step, moment(phase, step)))
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


@dataclass(frozen=True)
class ReportRecord:
    """The report's files; one MLflow run holds them."""

    digest: str
    files: tuple[Path, ...]
    folder: Path
    time: int


def _step(text: str) -> int:
    return int(float(text))
