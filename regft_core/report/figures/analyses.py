"""Figures of what evaluations found, as a table says how it is drawn, and of numbers over training sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from regft_core.evaluate.analysis_result import RUN, Plot
from regft_core.report.evaluations import EvaluationSection, ShownTable
from regft_core.report.figures.charts import NONE, POINT, Marks, limits, lines, named, panels, width_of
from regft_core.report.figures.svg import ACCENT, BETTER, INK, MUTED, WORSE
from regft_core.report.formatting import factor
from regft_core.report.model import Block

#: Most panels of a figure with a panel per method.
MOST_PANELS = 12
#: Lines or points of one panel, the validation set first.
_LOOKS = (
    Marks((), (), ACCENT, "o", "-"),
    Marks((), (), WORSE, "^", "--"),
    Marks((), (), MUTED, "s", ":"),
    Marks((), (), INK, "v", "-."),
    Marks((), (), BETTER, "D", "-"),
    Marks((), (), INK, "P", ":"),
)
#: Colours of classes among points, the most frequent first; the others share a grey.
_CLASSES = (ACCENT, WORSE, BETTER, INK)


def plotted(name: str, title: str, tables: Mapping[str, Sequence[ShownTable]], methods: Sequence[str]) -> str:
    """Return the tables of one name (set -> one per method) as one figure; nothing when none says how it is drawn.

    Args:
        methods: those that are drawn where there are many.
    """
    shown = [(place, table, table.table.plot) for place, own in tables.items() for table in own if table.table.plot]
    if not shown:
        return ""
    plot = shown[0][2]
    rows = [row for place, table, plot in shown for row in _points(place, table, plot)]
    points = pd.DataFrame(rows, columns=["place", "method", "group", "colour", "baseline", *POINT[2:]], dtype=object)
    if plot.panels == "arms":
        return _by_method(name, title, points, plot, methods)
    points["panel"] = [_label(*names) for names in zip(points["place"].replace(RUN, ""), points["group"])]
    zero, dotted = plot.y == "difference", plot.baseline or ""
    return lines(name, title, points, methods, x=plot.x, y=plot.y, baseline=dotted, zero=zero)


def _points(place: str, shown: ShownTable, plot: Plot) -> Iterator[tuple[Any, ...]]:
    """What is drawn of a table: the rows that have both coordinates."""
    for i, cells in enumerate(shown.table.rows):
        row = dict(zip(shown.table.columns, cells, strict=True))
        x, y, *names = (row[column] if column else "" for column in (plot.x, plot.y, plot.group, plot.colour))
        if x is not None and y is not None:
            baseline, bounds = row[plot.baseline] if plot.baseline else None, shown.bands.get(i, (None, None))
            yield (place, shown.method, *map(str, names), baseline, x, y, *bounds)


def _label(*names: str) -> str:
    return ", ".join(filter(None, names)) or "all"


def scores_over_sizes(task: str, blocks: Sequence[Block], reference: str | None) -> str:
    """Primary metric over the training rows of a task's ``blocks``, a panel per set."""
    primary = blocks[-1].primary
    scale, points = factor(primary), []
    for name in blocks[-1].sets:
        for block, row in ((b, row) for b in blocks for row in b.rows if row.n_ok and name in row.scores):
            score = row.scores[name][primary].estimate
            bounds = (bound * scale for bound in score.interval) if score.interval else (None, None)
            points.append((name, row.method, block.subsample.n, score.mean * scale, *bounds))
    label = primary + (" × 100" if scale == 100 else "")
    return _over_sizes(f"sizes-{task}", f"{primary} of {task} over the training rows", points, blocks, reference, label)


def numbers_over_sizes(
    section: EvaluationSection, task: str, blocks: Sequence[Block], reference: str | None
) -> Iterator[str]:
    """The same of the numbers that an evaluation asks to be drawn over sizes."""
    by_block = {entry.block.name: entry for entry in section.found}
    own = [(block.subsample.n, by_block[block.name]) for block in blocks if block.name in by_block]
    for name in dict.fromkeys(name for _, entry in own for name in entry.over_sizes):
        points = [
            (task if place == RUN else f"{task}, {place}", method, n, number.mean, *(number.interval or (None, None)))
            for n, entry in own
            for (method, place, other), number in entry.numbers.items()
            if other == name
        ]
        title = f"{name} of {section.name} on {task} over the training rows"
        yield _over_sizes(f"sizes-{section.name}-{name}-{task}", title, points, blocks, reference, name)


def _over_sizes(
    key: str, title: str, points: Iterable[tuple[Any, ...]], blocks: Sequence[Block], reference: str | None, y: str
) -> str:
    frame = pd.DataFrame(points, columns=list(POINT))
    methods = named(blocks[-1], reference, frame["method"])
    return lines(key, title, frame, methods, x="training rows", y=y, log=True)


# --------------------------------------------------------------------------------- a panel per method


def _by_method(name: str, title: str, points: pd.DataFrame, plot: Plot, picked: Sequence[str]) -> str:
    """Lines or points of each method, by set and group; points also by class. The first panel has the legend."""
    by_method = dict(list(points.groupby("method", sort=False)))
    if len(by_method) > MOST_PANELS:
        by_method = {method: own for method, own in by_method.items() if method in picked}
    several, shown = points["place"].nunique() > 1, dict[str, list[Marks]]()
    for method, own in by_method.items():
        marks = [Marks([0, 1], [0, 1], MUTED, width=0.7)] if plot.diagonal else []
        classes = [name for name, _ in Counter(own["colour"]).most_common(len(_CLASSES))] if plot.colour else []
        groups = own.groupby(["place", "group"], sort=False)
        for ((place, group), part), look in zip(groups, _LOOKS * 20):
            named_group = (place if several else "", group)
            if not plot.colour:
                points_look: dict[str, Any] = {"dashes": NONE, "alpha": 0.65} if plot.points else {}
                marks.append(replace(look, **_at(part), label=_label(*named_group), size=3, width=1.1, **points_look))
            for name_of_class, color in [*zip(classes, _CLASSES), (None, MUTED)] if plot.colour else []:
                others = ~part["colour"].isin(classes)
                chosen = part[others if name_of_class is None else part["colour"] == name_of_class]
                label = _label(*named_group, f"{plot.colour} {name_of_class}" if name_of_class else "others")
                if len(chosen):
                    marks.append(
                        Marks(**_at(chosen), color=color, marker=look.marker, dashes=NONE, label=label, alpha=0.65)
                    )
        shown[method] = marks if not shown or plot.group else [replace(one, label="") for one in marks]
    values = [value for marks in shown.values() for one in marks for value in one.y]

    def finish(axis: Any, _: str) -> None:
        if plot.diagonal:
            axis.set_xlim(0, 1)
            axis.set_ylim(0, 1)
        elif plot.one_scale and values:
            axis.set_ylim(*limits(values))

    width = width_of(len(shown), (2.6, 2.6, 2.6, 2.15))
    return panels(name, title, shown, width=width, height=1.9, x=plot.x, y=plot.y, finish=finish)


def _at(points: pd.DataFrame) -> dict[str, Any]:
    return {"x": list(points["x"]), "y": list(points["y"])}
