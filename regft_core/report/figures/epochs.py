"""The score after every epoch of fine-tuning, where it was taken, one panel per arm; and what it was taken for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core.report.figures.scores import CURVE_POINTS, grid
from regft_core.report.figures.svg import ACCENT, INK, WORSE, panels, style, to_svg
from regft_core.report.model import Block
from regft_core.report.page.formatting import factor, listed
from regft_core.report.read_grid import BlockData, CellData

Array = npt.NDArray[np.float64]
#: Epochs and scores of one run, or of one member of it.
Line = tuple[Array, Array]
#: Rows that were scored, as runs record them -> their name, and how seeds and mean are drawn.
_DRAWN: dict[str, tuple[str, Any, Any, Any]] = {
    "dev": ("dev", ACCENT, INK, "-"),
    "held_out": ("set aside", WORSE, WORSE, (0, (4, 1.5))),
}


def epoch_curves(block: Block, data: BlockData) -> str:
    """Primary metric by epoch on one scale: seeds thin, their mean thick; nothing where no run took it."""
    found = {row.method: _lines(data.cells[row.method], block.primary) for row in block.rows}
    shown = {method: lines for method, lines in found.items() if lines}
    if not shown:
        return ""
    scale, (columns, rows) = factor(block.primary), grid(len(shown))
    every = np.concatenate([scores for lines in shown.values() for own in lines.values() for _, scores in own]) * scale
    margin = 0.05 * float(np.ptp(every)) or 1.0
    name = f"epochs-{block.name}"
    with style(name):
        figure, axes = panels(columns, rows, width=2.15, height=1.25, left=0.55, gap=0.3, row_gap=0.55, bottom=0.45)
        for i, (axis, (method, lines)) in enumerate(zip(axes, shown.items())):
            axis.set_title(method, loc="left")
            axis.grid(axis="y")
            axis.tick_params(length=0)
            axis.locator_params(axis="y", nbins=4)
            axis.locator_params(axis="x", nbins=4, integer=True)
            axis.set_ylim(float(every.min()) - margin, float(every.max()) + margin)
            if i % columns:
                axis.set_yticklabels([])
            else:
                axis.set_ylabel(block.primary)
            if i >= len(shown) - columns:
                axis.set_xlabel("epoch")
            for taken, own in lines.items():
                label, thin, thick, dashes = _DRAWN[taken]
                for epochs, scores in own:
                    axis.plot(epochs, scores * scale, color=thin, alpha=0.3, linewidth=0.7)
                epochs, mean = _mean(own)
                marker = "o" if len(epochs) == 1 else ""  # a line of one point would not be seen
                axis.plot(
                    epochs, mean * scale, color=thick, linewidth=1.4, linestyle=dashes, marker=marker, markersize=4,
                    label=label,
                )  # fmt: skip
            if "held_out" in lines:
                axis.legend(frameon=False, fontsize=7, labelcolor=INK)
        for axis in axes[len(shown) :]:
            axis.set_visible(False)
        return to_svg(figure, name, f"Score by epoch on {block.title}")


def epoch_note(block: Block, data: BlockData) -> str:
    """What the figure shows, on which rows the scores were taken, and whether an epoch was chosen by them."""
    lines = {row.method: _lines(data.cells[row.method], block.primary) for row in block.rows}
    rules = {name: data.cells[name].finetune.training.get("checkpoint", "last") for name in lines}
    chose_on_dev = [name for name, own in lines.items() if own and rules[name] == "best_on_dev_as_published"]
    held_out = [name for name, own in lines.items() if "held_out" in own]
    looked = [name for name, own in lines.items() if "dev" in own and name not in chose_on_dev]
    said = [
        f"Score ({block.primary}) after every epoch of fine-tuning, before what a method makes of its weights after "
        "the last step; thin lines are seeds, the thick line is their mean."
    ]
    if looked:
        whose = f" of {listed(looked)}" if chose_on_dev else ""
        said.append(f"Scores on the development set{whose} are shown only: no epoch was chosen by them.")
    if chose_on_dev:
        said.append(f"The development set chose the epoch of {listed(chose_on_dev)}, as published.")
    if held_out:
        said.append(f"Dashed: training rows set aside, which chose the epoch of {listed(held_out)}.")
    return " ".join(said)


def _lines(cell: CellData, metric: str) -> dict[str, list[Line]]:
    """Rows that were scored -> a line per run (per member of it) with at least one score."""
    found: dict[str, dict[tuple[int, str], list[tuple[float, float]]]] = {}
    for run in cell.finetune.runs:
        if run.epoch_scores is None or run.epoch_scores.metric != metric:
            continue
        for phase, rows, _, epoch, score in run.epoch_scores.scores:
            if score is not None and math.isfinite(score):
                found.setdefault(rows, {}).setdefault((run.seed, phase), []).append((epoch, score))
    return {
        rows: [tuple(np.array(own, dtype=float).T) for own in found[rows].values()] for rows in _DRAWN if rows in found
    }


def _mean(lines: list[Line]) -> Line:
    """Mean over the epochs that all lines have; a long run at some of its epochs."""
    first, last = max(epochs[0] for epochs, _ in lines), min(epochs[-1] for epochs, _ in lines)
    common = np.unique(np.concatenate([epochs for epochs, _ in lines]))
    common = common[(common >= first) & (common <= last)]
    if len(common) > CURVE_POINTS:
        common = common[np.linspace(0, len(common) - 1, CURVE_POINTS).round().astype(int)]
    return common, np.mean([np.interp(common, *line) for line in lines], axis=0)
