"""Which arms a figure with many of them picks out: the others are drawn in grey, without a name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from regft_core.report.families import grouped
from regft_core.report.figures.svg import ACCENT, BETTER, INK, MUTED, WORSE
from regft_core.report.model import Block

#: Most arms with a look of their own; more could not be told apart.
MOST = 8


@dataclass(frozen=True)
class Look:
    """How a line is drawn; colour, dashes and marker all differ between the arms of a figure."""

    color: str
    marker: str
    linestyle: Any = "-"

    def line(self) -> dict[str, Any]:
        """Keyword arguments of ``plot``."""
        own = {"color": self.color, "marker": self.marker, "linestyle": self.linestyle}
        return own | {"linewidth": 1.3, "markersize": 3.5}


LOOKS = (
    Look(INK, "o"),
    Look(ACCENT, "^"),
    Look(WORSE, "s", (0, (5, 2))),
    Look(BETTER, "v", (0, (1, 1.2))),
    Look(MUTED, "D", (0, (5, 1.5, 1, 1.5))),
    Look(ACCENT, "P", (0, (1, 1.2))),
    Look(WORSE, "X", (0, (1, 1.2))),
    Look(BETTER, "<", (0, (5, 2))),
)
#: Of filled shapes, instead of dashes and markers.
HATCHES = (None, "///", "...", "\\\\\\", "xxx", "|||", "---", "+++")


def chosen(block: Block, reference: str | None, present: Iterable[str]) -> list[str]:
    """Arms among ``present`` to pick out, at most ``MOST``: all when there are few, in the order of the rows.

    Else the reference, the arm with the best mean, its controls, then the leading arm of each family and its controls.
    """
    there = set(present)
    rows = [row.method for row in block.rows if row.method in there]
    if len(rows) <= MOST:
        return rows
    picked = [reference] if reference is not None else []
    if block.decision is not None and block.decision.pick is not None:
        picked.append(block.decision.pick.method)
    picked += _controls(block, picked)
    leading = [own[0].method for _, own in grouped(block)]
    for method in leading:
        picked += [method, *_controls(block, [method])]
    return [name for name in dict.fromkeys(picked) if name in there][:MOST]


def _controls(block: Block, methods: Sequence[str]) -> list[str]:
    return [row.method for row in block.rows if row.control_for in methods]
