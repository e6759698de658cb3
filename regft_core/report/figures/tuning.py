"""Expected best of k trials, one panel per tuned arm, the reference's curve beside it."""

from __future__ import annotations

from collections.abc import Sequence

from regft_core.report.figures.scores import grid, panel_width
from regft_core.report.figures.svg import ACCENT, INK, MUTED, panels, style, to_svg
from regft_core.report.model import TunedArm
from regft_core.report.page.formatting import factor


def best_of_k(arms: Sequence[TunedArm], reference: str | None) -> str:
    """The curves of one block's arms; nothing when no arm has two trials that finished for every seed."""
    drawn = [arm for arm in arms if len(arm.curve) > 1]
    if not drawn:
        return ""
    base = next((arm for arm in drawn if arm.method == reference), None)
    columns, rows = grid(len(drawn))
    name = f"tuning-{drawn[0].block}"
    with style(name):
        width = min(2.6, panel_width(columns))
        figure, axes = panels(columns, rows, width=width, height=width * 0.7, left=0.6, gap=0.6, bottom=0.6)
        for axis, arm in zip(axes, drawn):
            axis.set_title(arm.method, loc="left")
            axis.set_xlabel("trials")
            axis.grid()
            axis.tick_params(length=0)
            scale = factor(arm.metric)
            if base is not None and base is not arm:
                label = f"{base.method} (reference)"
                axis.plot(*zip(*_scaled(base, scale)), color=MUTED, linestyle="--", linewidth=1.0, label=label)
            axis.plot(*zip(*_scaled(arm, scale)), color=ACCENT, marker="o", markersize=3, label=arm.method)
            axis.locator_params(axis="x", integer=True, nbins=5)
        for axis in axes[len(drawn) :]:
            axis.set_visible(False)
        axes[min(1, len(drawn) - 1)].legend(frameon=False, fontsize=7, labelcolor=INK)
        return to_svg(figure, name, f"Expected best of k trials on {drawn[0].block}")


def _scaled(arm: TunedArm, scale: float) -> list[tuple[int, float]]:
    return [(k, value * scale) for k, value in arm.curve]
