"""Figures of answers to the validation set, the method to take and the reference in one: how sure, how far off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from regft_core.report.answers import SetAnswers
from regft_core.report.figures.panels import LOOKS
from regft_core.report.figures.svg import ACCENT, INK, MUTED, PAPER, panels
from regft_core.report.formatting import factor
from regft_core.report.model import Block
from regft_core.statistics.calibration import equal_mass

#: Bins of the reliability figure, with equally many answers.
BINS = 10


def figures(block: Block, by_method: Mapping[str, SetAnswers]) -> Iterator[tuple[str, str, str]]:
    """Name, caption and SVG of each figure that the kind of task has."""
    if not by_method:
        return
    first = next(iter(by_method.values()))
    if not len(first.probability):
        caption = "Labels and values of the method to take; on the line they are equal."
        yield "values", caption, _scatter(block, by_method)
        yield "errors", "Value minus label of every row.", _residuals(block, by_method)
        return
    n = len(first.probability) // BINS
    yield (
        "calibration",
        f"Calibration: share of right answers against their mean probability, a dot for about {n} answers. "
        "Below the line the method is too sure.",
        _drawn(block, by_method, "calibration", "probability of the answer", "right answers (%)", _reliability),
    )
    yield (
        "abstention",
        f"Abstention: {block.primary} of the rows that are kept when the least confident ones are left to a person.",
        _drawn(block, by_method, "abstention", "rows kept (%)", block.primary, _kept(factor(block.primary))),
    )


def _drawn(
    block: Block, by_method: Mapping[str, SetAnswers], name: str, x: str, y: str,
    draw: Callable[[Any, SetAnswers, dict[str, Any]], None],
) -> str:  # fmt: skip
    """One panel with a line for each method, narrow enough for a phone."""

    def drawn(axis: Any, _: object) -> None:
        for (method, answers), (_, marker, dashes), color in zip(by_method.items(), LOOKS, (ACCENT, INK)):
            look = {"color": color, "marker": marker, "linestyle": dashes, "linewidth": 1.4, "markersize": 4}
            draw(axis, answers, look | {"label": method})
        axis.locator_params(nbins=5)
        axis.legend(frameon=False, fontsize=8, labelcolor=INK, loc="best")

    title = f"{name} on {block.title}"
    return panels(f"{name}-{block.name}", title, {"": None}, drawn, width=2.75, height=2.0, x=x, y=y, left=0.6, top=0.1)


def _reliability(axis: Any, answers: SetAnswers, look: dict[str, Any]) -> None:
    which = equal_mass(answers.probability, BINS)
    counts = np.maximum(np.bincount(which), 1)
    places, shares = (100 * np.bincount(which, weights=of) / counts for of in (answers.probability, answers.right))
    axis.plot(
        [min(places.min(), shares.min()), 100], [min(places.min(), shares.min()), 100], color=MUTED, linewidth=0.7
    )
    axis.plot(places, shares, **look)


def _kept(scale: float) -> Callable[[Any, SetAnswers, dict[str, Any]], None]:
    def draw(axis: Any, answers: SetAnswers, look: dict[str, Any]) -> None:
        shares, scores = np.array(answers.curve).T
        axis.plot(100 * shares, scale * scores, **(look | {"marker": ""}))

    return draw


def _scatter(block: Block, by_method: Mapping[str, SetAnswers]) -> str:
    def draw(axis: Any, answers: SetAnswers) -> None:
        ends = [float(end(answers.gold)) for end in (np.min, np.max)]
        axis.plot(ends, ends, color=MUTED, linewidth=0.8)
        look = {"marker": "o", "markersize": 3, "alpha": 0.5, "markeredgewidth": 0, "linestyle": "none"}
        axis.plot(answers.gold, answers.predicted, color=ACCENT, **look)

    shown = dict(list(by_method.items())[:1])
    title = f"Labels and values on {block.title}"
    return panels(f"scatter-{block.name}", title, shown, draw, width=2.75, height=2.0, x="label", y="value", left=0.6)


def _residuals(block: Block, by_method: Mapping[str, SetAnswers]) -> str:
    def draw(axis: Any, answers: SetAnswers) -> None:
        axis.hist(answers.predicted - answers.gold, bins=25, color=ACCENT, edgecolor=PAPER, linewidth=0.5)
        axis.axvline(0, color=INK, linewidth=0.8)

    shown = dict(list(by_method.items())[:1])
    title = f"Errors on {block.title}"
    return panels(
        f"residuals-{block.name}", title, shown, draw, width=2.75, height=2.0, x="value minus label", y="rows", left=0.6
    )
