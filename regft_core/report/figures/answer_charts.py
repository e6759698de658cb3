"""Figures of the answers to the validation set: calibration and abstention, or values and errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from regft_core.report.figures.charts import LOOKS, NONE, Marks, panels
from regft_core.report.figures.svg import ACCENT, INK, MUTED
from regft_core.report.formatting import factor
from regft_core.report.values import Block
from regft_core.report.wrong_answers import SetAnswers
from regft_core.statistics.reliability import equal_mass

#: Bins of the reliability figure, with equally many answers; and of the histogram of errors.
BINS, ERRORS = 10, 25


def answer_figures(block: Block, answered: Mapping[str, Mapping[str, SetAnswers]]) -> Iterator[tuple[str, str, str]]:
    """Name, caption and SVG of each figure that the kind of task has, the method to take and the reference in one.

    ``answered``: method -> set -> its answers; those to the validation set are drawn.
    """
    if not answered:
        return
    by_method = {method: sets["dev"] for method, sets in answered.items()}

    def drawn(name: str, marks: Sequence[Marks], x: str, y: str) -> str:
        """One panel, narrow enough for a phone."""
        name, title = f"{name}-{block.name}", f"{name} on {block.title}"
        return panels(name, title, {"": marks}, width=2.75, height=2.0, x=x, y=y)

    first = next(iter(by_method.values()))
    if not len(first.probability):
        caption = "Labels and values of the method to take; on the line they are equal."
        points = Marks(first.gold, first.predicted, marker="o", dashes=NONE, size=3, alpha=0.5)
        yield "values", caption, drawn("values", [_equal(first.gold), points], "label", "value")
        counts, edges = np.histogram(first.predicted - first.gold, bins=ERRORS)
        centres, tallest = (edges[:-1] + edges[1:]) / 2, float(counts.max())
        bars = Marks(centres, counts, dashes=NONE, bounds=[(0, n) for n in counts.tolist()], reach=5)
        zero = Marks([0, 0], [0, tallest], INK, width=0.8)
        yield "errors", "Value minus label of every row.", drawn("errors", [bars, zero], "value minus label", "rows")
        return
    looks = [replace(look, color=color, size=4) for look, color in zip(LOOKS, (ACCENT, INK))]
    diagram, curves = [], []
    for look, (method, answers) in zip(looks, by_method.items()):
        which = equal_mass(answers.probability, BINS)
        rows = np.maximum(np.bincount(which), 1)
        means = [100 * np.bincount(which, weights=of) / rows for of in (answers.probability, answers.right)]
        diagram += [_equal(np.append(np.concatenate(means), 100)), replace(look, x=means[0], y=means[1], label=method)]
        shares, scores = np.array(answers.curve).T
        curves.append(replace(look, x=100 * shares, y=factor(block.primary) * scores, marker="", label=method))
    yield (
        "calibration",
        "Calibration: share of right answers against their mean probability, a dot for about "
        f"{len(first.probability) // BINS} answers. Below the line the method is too sure.",
        drawn("calibration", diagram, "probability of the answer", "right answers (%)"),
    )
    yield (
        "abstention",
        f"Abstention: {block.primary} of the rows that are kept when the least confident ones are left to a person.",
        drawn("abstention", curves, "rows kept (%)", block.primary),
    )


def _equal(values: np.ndarray) -> Marks:
    """The line on which both axes are equal, over the range of ``values``."""
    ends = [float(values.min()), float(values.max())]
    return Marks(ends, ends, MUTED, width=0.8)
