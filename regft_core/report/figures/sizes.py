"""Scores, and numbers of evaluations, over the size of the training set: a line per arm, a panel per set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from regft_core.evaluate.findings import RUN
from regft_core.report.evaluations import EvaluationSection, Found, Number
from regft_core.report.figures.lines import Panel, Point, drawn
from regft_core.report.model import Block, Report, by_size
from regft_core.report.page.emphasis import chosen
from regft_core.report.page.formatting import factor
from regft_core.report.read_grid import BlockData


@dataclass(frozen=True)
class SizeFigures:
    """``scores``: task -> figure; ``numbers``: evaluation -> figures. Both empty for a grid with one size per task."""

    scores: Mapping[str, Markup] = field(default_factory=dict)
    numbers: Mapping[str, Sequence[Markup]] = field(default_factory=dict)


def size_figures(report: Report, data: Sequence[BlockData]) -> SizeFigures:
    """All figures over sizes of a report; ``data`` are its blocks as they were read."""
    rows = {block.name: float(block.subsample.n) for block in data}
    several = {task: own for task, own in by_size(report.blocks, rows).items() if len(own) > 1}
    scores = {}
    for task, own in several.items():
        svg = _scores(task, own, rows, report.reference)
        if svg:
            scores[task] = Markup(svg)
    numbers: dict[str, list[Markup]] = {}
    for section in report.evaluations:
        for task, own in several.items():
            for svg in _numbers(section, task, own, rows, report.reference):
                numbers.setdefault(section.name, []).append(Markup(svg))
    return SizeFigures(scores, numbers)


def _scores(task: str, blocks: Sequence[Block], rows: Mapping[str, float], reference: str | None) -> str:
    primary = blocks[-1].primary
    scale = factor(primary)
    shown = []
    for name in blocks[-1].sets:
        lines: dict[str, list[Point]] = {}
        for block in blocks:
            for row in block.rows:
                score = row.scores.get(name, {}).get(primary)
                if score is not None and score.estimate.n:
                    low, high = (bound * scale for bound in score.interval) if score.interval else (None, None)
                    point = Point(rows[block.name], score.estimate.mean * scale, low, high)
                    lines.setdefault(row.method, []).append(point)
        shown.append(Panel(name, lines))
    present = [method for panel in shown for method in panel.lines]
    picked = chosen(blocks[-1], reference, present)
    label = primary + (" × 100" if scale == 100 else "")
    title = f"{primary} of {task} over the training rows"
    return drawn(f"sizes-{task}", title, shown, picked, x="training rows", y=label, log_x=True)


def _numbers(
    section: EvaluationSection, task: str, blocks: Sequence[Block], rows: Mapping[str, float], reference: str | None
) -> Iterator[str]:
    found = {entry.block: entry for entry in section.found}
    own = [(block, found[block.name]) for block in blocks if block.name in found]
    for name in dict.fromkeys(name for _, entry in own for name in entry.over_sizes):
        panels = []
        for place in dict.fromkeys(place for _, entry in own for place, other in entry.places if other == name):
            lines: dict[str, list[Point]] = {}
            for block, entry in own:
                for method, number in _of(entry, place, name):
                    low, high = number.interval or (None, None)
                    lines.setdefault(method, []).append(Point(rows[block.name], number.mean, low, high))
            panels.append(Panel(task if place == RUN else f"{task}, {place}", lines))
        picked = chosen(blocks[-1], reference, [method for panel in panels for method in panel.lines])
        key = f"sizes-{section.name}-{name}-{task}"
        title = f"{name} of {section.name} on {task} over the training rows"
        yield drawn(key, title, panels, picked, x="training rows", y=name, log_x=True)


def _of(entry: Found, place: str, name: str) -> Iterator[tuple[str, Number]]:
    if (place, name) in entry.places:
        at = entry.places.index((place, name))
        for method, numbers in entry.rows:
            number = numbers[at]
            if number is not None:
                yield method, number
