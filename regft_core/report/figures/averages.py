"""Average scores as bars, a group per training size (weight mixup, Somayajula et al. 2024, figure 2).

The paper shows the averages of its table 9: CoLA, RTE, STS-B and MRPC at 500 and 1,000 rows, for plain fine-tuning,
prompt tuning, prefix tuning, LoRA and weight mixup. ``report.averages`` names such an average. Where the paper is
silent: whiskers are the intervals of the report's table, and bars begin at 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regft_core import metrics
from regft_core.report.figures.svg import INK, MUTED, panels, style, text_width, to_svg
from regft_core.report.model import Average
from regft_core.report.page.emphasis import HATCHES, LOOKS, MOST
from regft_core.report.page.formatting import factor


def average_bars(averages: Sequence[Average], reference: str) -> str:
    """The columns of one average at all training sizes as SVG; nothing where no arm has a mean.

    With more arms than looks, the reference and those with the best means at the last size are drawn.
    """
    shown = [average for average in averages if average.metric is not None]
    if not any(line.value for average in shown for line in average.lines):
        return ""
    metric = shown[0].metric
    assert metric is not None
    arms = _picked(shown, reference, metrics.find(metric).lower_is_better)
    scale, name = factor(metric), f"average-{shown[0].name}"
    width, right = 0.84 / len(arms), text_width(arms) + 0.6
    with style(name):
        figure, (axis,) = panels(
            1, 1, width=max(2.4, 0.24 * len(arms) * len(shown) + 0.6), height=2.4, left=0.85, right=right
        )
        for i, arm in enumerate(arms):
            found = [(at, line.value) for at, one in enumerate(shown) for line in one.lines if line.method == arm]
            places = [at - 0.42 + (i + 0.5) * width for at, value in found if value is not None]
            values = [value for _, value in found if value is not None]
            bars: dict[str, Any] = {
                "facecolor": LOOKS[i].color,
                "edgecolor": INK,
                "alpha": 0.55,
                "hatch": HATCHES[i],
                "label": arm,
            }
            axis.bar(places, [value.value * scale for value in values], width=0.92 * width, linewidth=0.5, **bars)
            bounded = [(x, v.low * scale, v.high * scale) for x, v in zip(places, values) if v.low == v.low]
            if bounded:
                axis.vlines(*zip(*bounded), color=INK, linewidth=0.9)
        axis.set_xticks(range(len(shown)), ["all rows" if one.size == "full" else f"{one.size} rows" for one in shown])
        axis.axhline(0, color=MUTED, linewidth=0.7)
        axis.grid(axis="y")
        axis.tick_params(length=0)
        axis.set_ylabel(f"mean{' × 100' if scale == 100 else ''}")
        axis.legend(
            frameon=False, fontsize=8, labelcolor=INK, loc="upper left", bbox_to_anchor=(1.02, 1), borderaxespad=0
        )
        return to_svg(figure, name, f"{shown[0].name}: averages by training size")


def _picked(shown: Sequence[Average], reference: str, lower_is_better: bool) -> list[str]:
    """Arms in the order of the tables; of many the reference and the best at the last size that has them."""
    lines = [line for average in shown for line in average.lines]
    means = {line.method: line.value.value for line in lines if line.value is not None}
    if len(means) <= MOST:
        return list(means)
    best = sorted((arm for arm in means if arm != reference), key=means.__getitem__, reverse=not lower_is_better)
    kept = {reference, *best[: MOST - 1]}
    return [arm for arm in means if arm in kept]
