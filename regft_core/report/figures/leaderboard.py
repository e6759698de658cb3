"""The leaderboard of one block as a figure: the terminal's columns, with the intervals drawn between them."""

from __future__ import annotations

import textwrap

from regft_core.report.figures.svg import ACCENT, INK, MUTED, panels, style, text_width, to_svg
from regft_core.report.leaderboard import alerts, leaderboard, legend
from regft_core.report.model import Block, Report
from regft_core.report.page.formatting import factor
from regft_core.report.terminal import heading, line_name, text_columns

#: Inches of the drawn intervals, of a line, and between columns.
_DRAWN, _LINE, _GAP = 2.6, 0.24, 0.18
_SPACE = "\N{NO-BREAK SPACE}"


def leaderboard_figure(report: Report, block: Block) -> str:
    """The decision, what needs action, and a line for each method, as SVG."""
    board = leaderboard(block)
    # SVG draws spaces in a row as one.
    names = [line_name(line).replace(" ", _SPACE) for line in board.lines]
    columns = [(head, [cell.plain.rstrip() for cell in cells]) for head, cells in text_columns(board, report.reference)]
    widths = [text_width([head, *cells]) + _GAP for head, cells in columns]
    left, right = text_width(names) + 0.2, sum(widths) + _GAP
    said = [*(block.decision.sentences[:1] if block.decision is not None else ()), *alerts(report, block)]
    per_line = int((left + _DRAWN + right - 0.2) / text_width("n"))
    above = [part for text in said for part in textwrap.wrap(text, per_line)] + ["", heading(block, report.confidence)]
    scale = factor(block.primary)
    with style(f"leaderboard-{block.name}"):
        top, height = 0.18 * len(above) + 0.4, _LINE * len(names)
        figure, (axis,) = panels(1, 1, width=_DRAWN, height=height, left=left, right=right, top=top, bottom=0.75)
        axis.set_xlim(board.low * scale, board.high * scale)
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.set_yticks([])
        axis.spines["left"].set_visible(False)
        axis.grid(axis="x")
        axis.tick_params(length=0)
        axis.locator_params(axis="x", nbins=5)
        for i, (line, name) in enumerate(zip(board.lines, names, strict=True)):
            y = float(i)
            axis.text(-(left - 0.1) / _DRAWN, y, name, transform=axis.get_yaxis_transform(), va="center")
            found = line.row.scores.get("dev", {}).get(block.primary)
            if found is None or not found.estimate.n:
                continue
            if found.interval is not None:
                axis.hlines(y, *(end * scale for end in found.interval), color=MUTED, linewidth=1.6)
            # What is far behind stands at the end of the scale.
            mean = min(max(found.estimate.mean, board.low), board.high)
            marker = "<o>"[1 + board.beyond(found.estimate.mean)]
            axis.plot([mean * scale], [y], marker, color=ACCENT, markersize=5, clip_on=False)
        edge = 0.0
        for (head, cells), width in zip(columns, widths, strict=True):
            edge += width
            for y, text in zip(range(-1, len(cells)), [head, *cells]):
                axis.text(
                    1 + edge / _DRAWN, y, text, transform=axis.get_yaxis_transform(), va="center", ha="right",
                    color=MUTED if y < 0 else INK,
                )  # fmt: skip
        across, total = figure.get_figwidth(), figure.get_figheight()
        for i, text in enumerate(above):
            weight = "bold" if i in (0, len(above) - 1) else "normal"
            figure.text(0.1 / across, 1 - (0.2 + 0.18 * i) / total, text, weight=weight)
        figure.text(0.1 / across, 0.15 / total, legend().replace(" ", _SPACE), color=MUTED)
        return to_svg(figure, f"leaderboard-{block.name}", f"Leaderboard of {block.title}")
