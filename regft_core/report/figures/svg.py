"""A canvas with fixed margins in inches, and SVG that follows the page's colours.

Figures are drawn with placeholder colours that become CSS variables, so that one drawing serves
light and dark. Nothing in the output depends on the time, the machine or other figures, and no
address is left in it.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

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


@contextmanager
def style(name: str) -> Iterator[None]:
    """Draw inside with the report's settings; ``name`` makes the identifiers of this figure its own."""
    with mpl.rc_context({**SETTINGS, "svg.hashsalt": name}):
        yield


def text_width(texts: Sequence[str], size: float = 9.0) -> float:
    """Inches that the longest text needs, on the safe side for any sans-serif font."""
    return max(map(len, texts), default=0) * size * 0.62 / 72


#: Most panels side by side.
COLUMNS = 4


def columns_of(panels: int) -> int:
    """How many of so many panels stand side by side."""
    return min(panels, COLUMNS)


class Sheet:
    """Panels of ``width`` by ``height`` inches, row by row, with fixed margins; made and drawn within ``style``.

    Args:
        legend: handles and labels, in the margin of ``right`` inches.
    """

    def __init__(
        self, panels: int, *, width: float, height: float, left: float, right: float = 0.15, gap: float = 0.25,
        row_gap: float = 0.75, top: float = 0.35, bottom: float = 0.5,
        legend: tuple[Sequence[Any], Sequence[str]] | None = None,
    ) -> None:  # fmt: skip
        self.columns = columns_of(panels)
        rows = math.ceil(panels / self.columns)
        total_width = left + self.columns * width + (self.columns - 1) * gap + right
        total_height = top + rows * height + (rows - 1) * row_gap + bottom
        self.figure = Figure(figsize=(total_width, total_height))
        self.axes: list[Any] = []
        for place in range(panels):
            row, column = divmod(place, self.columns)
            x, y = left + column * (width + gap), total_height - top - (row + 1) * height - row * row_gap
            place_of_axis = (x / total_width, y / total_height, width / total_width, height / total_height)
            self.axes.append(self.figure.add_axes(place_of_axis))
            self.axes[-1].tick_params(length=0)
        if legend is not None:
            place_of_legend = (1 - (right - 0.1) / total_width, 1 - 0.25 / total_height)
            self.figure.legend(
                *legend, loc="upper left", bbox_to_anchor=place_of_legend, frameon=False, fontsize=8, borderaxespad=0,
                borderpad=0, handlelength=2.2,
            )  # fmt: skip

    def label(self, x: str, y: str = "") -> None:
        """Name ``x`` below the lowest panels and ``y`` beside the first of each row."""
        for i, axis in enumerate(self.axes):
            axis.set_ylabel(y if i % self.columns == 0 else "")
            axis.set_xlabel(x if i >= len(self.axes) - self.columns else "")

    def svg(self, name: str, label: str) -> str:
        """Return the ``<svg>`` element alone, its identifiers prefixed with ``name``; ``label`` is read aloud."""
        return _element(self.figure, name, label)


def _element(figure: Figure, name: str, label: str) -> str:
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
    """A figure of ``to_svg`` as a file that any viewer opens: light colours on white, its size in pixels."""
    for name, colour in LIGHT.items():
        svg = svg.replace(f"var(--{name})", colour)
    svg = re.sub(r'class="figure" (.*?)style="width:(\d+)px"', r'\1width="\2"', svg, count=1)
    head, body = svg.split(">", 1)
    head = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return f'{head}><rect width="100%" height="100%" fill="{LIGHT["paper"]}"/>{body}\n'
