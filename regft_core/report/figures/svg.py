"""A canvas with fixed margins in inches, and SVG that follows the page's colours.

Figures are drawn with placeholder colours that become CSS variables, so that one drawing serves
light and dark. Nothing in the output depends on the time, the machine or other figures, and no
address is left in it.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

T = TypeVar("T")
#: Placeholder -> CSS variable. Meaning is never in the colour alone: markers differ as well.
INK, MUTED, GRID, ACCENT, BETTER, WORSE, PAPER = (f"#0{i}0{i}0{i}" for i in range(1, 8))
VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--line)",
    ACCENT: "var(--accent)",
    BETTER: "var(--up)",
    WORSE: "var(--down)",
    PAPER: "var(--paper)",
}
#: What the variables are on the light page, and in files that stand alone.
LIGHT = {
    **{"paper": "#ffffff", "ink": "#1c2024", "muted": "#626b74", "line": "#e1e4e8"},
    **{"accent": "#2767b0", "up": "#17703f", "down": "#b3361e"},
}
SETTINGS: Any = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.5,
    "axes.titlecolor": INK,
    "axes.axisbelow": True,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "hatch.color": INK,
    "hatch.linewidth": 0.5,
    "patch.edgecolor": INK,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "path.simplify": True,
}


def text_width(texts: Sequence[str], size: float = 9.0) -> float:
    """Inches that the longest text needs, on the safe side for any sans-serif font."""
    return max(map(len, texts), default=0) * size * 0.62 / 72


#: Most panels side by side.
COLUMNS = 4


def columns_of(panels: int) -> int:
    """How many of so many panels stand side by side."""
    return min(panels, COLUMNS)


def panels(
    name: str, title: str, shown: Mapping[str, T], draw: Callable[[Any, T], None], *, width: float, height: float,
    x: str = "", y: str = "", grid: str = "both", labels: Sequence[str] = (), one_scale: bool = False,
    legend: tuple[Sequence[Any], Sequence[str]] | None = None, left: float, right: float = 0.15, gap: float = 0.25,
    row_gap: float = 0.75, top: float = 0.35, bottom: float = 0.5, **heading: Any,
) -> str:  # fmt: skip
    """Return a panel for each title of ``shown`` as one ``<svg>``; nothing without any.

    Args:
        name: prefix of the figure's identifiers; ``title`` is read aloud.
        draw: fills the axes of a panel with its content.
        width, height: of a panel, in inches, as are the margins; panels stand row by row.
        x, y: named below the lowest panels, and beside the first of each row.
        labels: of the rows of every panel, from the top.
        one_scale: all panels share the axis of ``y``.
        legend: handles and labels, in the margin of ``right`` inches.
    """
    if not shown:
        return ""
    columns = columns_of(len(shown))
    rows = math.ceil(len(shown) / columns)
    total_width = left + columns * width + (columns - 1) * gap + right
    total_height = top + rows * height + (rows - 1) * row_gap + bottom
    with mpl.rc_context({**SETTINGS, "svg.hashsalt": name}):
        figure = Figure(figsize=(total_width, total_height))
        axes: list[Any] = []
        for place, (text, content) in enumerate(shown.items()):
            row, column = divmod(place, columns)
            at_x, at_y = left + column * (width + gap), total_height - top - (row + 1) * height - row * row_gap
            size = (at_x / total_width, at_y / total_height, width / total_width, height / total_height)
            axis: Any = figure.add_axes(size)
            axes.append(axis)
            axis.tick_params(length=0)
            axis.set_title(text, loc="left", **heading)
            axis.grid(axis=grid)
            if labels:
                axis.set_ylim(len(labels) - 0.5, -0.5)
                axis.set_yticks(range(len(labels)), labels if column == 0 else [""] * len(labels))
                axis.locator_params(axis="x", nbins=6)
                axis.spines["left"].set_visible(False)
            draw(axis, content)
            if x:
                axis.set_ylabel(y if column == 0 else "")
                axis.set_xlabel(x if place >= len(shown) - columns else "")
        if one_scale:
            limits = [axis.get_ylim() for axis in axes]
            for axis in axes:
                axis.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        if legend is not None:
            figure.legend(
                *legend, loc="upper left", bbox_to_anchor=(1 - (right - 0.1) / total_width, 1 - 0.25 / total_height),
                frameon=False, fontsize=8, borderaxespad=0, borderpad=0, handlelength=2.2,
            )  # fmt: skip
        return _element(figure, name, title)


def _element(figure: Figure, name: str, label: str) -> str:
    """The ``<svg>`` element alone, its identifiers prefixed with ``name``."""
    stream = io.StringIO()
    figure.set_canvas(FigureCanvasSVG(figure))
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\s+xmlns(:\w+)?="[^"]*"', "", text)
    text = text.replace("xlink:href=", "href=")
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, variable)
    text = re.sub(r">\s+<", "><", text)
    # A hundredth of a point is invisible; the default six decimals are half of the file.
    text = re.sub(r'\b(d|x|y|transform)="[^"]*"', lambda m: re.sub(r"(\.\d\d)\d+", r"\1", m[0]), text)
    width = re.search(r'<svg[^>]*\bwidth="([\d.]+)pt"', text)
    text = re.sub(r'(<svg[^>]*?)\s+width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?)\s+height="[^"]*"', r"\1", text, count=1)
    size = f"{float(width[1]) * 4 / 3:.0f}px" if width else "100%"
    quoted = label.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return text.replace("<svg", f'<svg class="figure" role="img" aria-label="{quoted}" style="width:{size}"', 1)


def standalone(svg: str) -> str:
    """A figure as a file that any viewer opens: light colours on white, its size in pixels."""
    for name, colour in LIGHT.items():
        svg = svg.replace(f"var(--{name})", colour)
    svg = re.sub(r'class="figure" (.*?)style="width:(\d+)px"', r'\1width="\2"', svg, count=1)
    head, body = svg.split(">", 1)
    head = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return f'{head}><rect width="100%" height="100%" fill="{LIGHT["paper"]}"/>{body}\n'
