"""Figures as SVG that follows the page's colours.

They are drawn with placeholder colours that become CSS variables, so that one drawing serves light and dark. Nothing
in the output depends on the time, the machine or other figures, and no address is left in it.
"""

from __future__ import annotations

import io
import re
from typing import Any

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

#: Placeholder -> CSS variable. Meaning is never in the colour alone: markers differ as well.
INK, MUTED, GRID, ACCENT, BETTER, WORSE, PAPER = (f"#0{i}0{i}0{i}" for i in range(1, 8))
VARIABLES = {INK: "ink", MUTED: "muted", GRID: "line", ACCENT: "accent", BETTER: "up", WORSE: "down", PAPER: "paper"}
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


def element(figure: Figure, name: str, label: str) -> str:
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
        text = text.replace(colour, f"var(--{variable})")
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
