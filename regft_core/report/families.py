"""Arms in groups that belong together, for pages of dozens of arms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from regft_core.metrics import higher_is_better
from regft_core.report.model import Block, Row

#: With more arms than this a table is grouped and sorted; below, the order of the grid is easier to find things in.
GROUPED_ABOVE = 12


def family(name: str, names: Iterable[str], control_for: Mapping[str, str | None]) -> str:
    """Return the method that ``name`` belongs to: what it controls for, then the method it is a variant of.

    A variant's name is that of its method, ``_`` or ``-``, and more: ``tdt_hard`` belongs to ``tdt`` when
    the report has both.

    Args:
        names: all arms of the block.
        control_for: arm -> the method that it controls for, or None.
    """
    seen = {name}
    while (target := control_for.get(name)) is not None and target not in seen:
        seen.add(target)
        name = target
    roots = [other for other in names if control_for.get(other) is None and name.startswith((f"{other}_", f"{other}-"))]
    return min(roots, key=len, default=name)


def grouped(block: Block) -> list[tuple[str | None, list[Row]]]:
    """Return the rows of ``block`` in groups.

    One group without a name, in the order of the grid, for small blocks; else one per family, the
    family with the best mean first and, within it, the arm with the best mean first.
    """
    if len(block.rows) <= GROUPED_ABOVE:
        return [(None, list(block.rows))]
    names = [row.method for row in block.rows]
    targets = {row.method: row.control_for for row in block.rows}
    found: dict[str, list[Row]] = {}
    for row in block.rows:
        found.setdefault(family(row.method, names, targets), []).append(row)
    groups = [(name, _sorted(rows, block.primary)) for name, rows in found.items()]
    return [(name, rows) for name, rows in sorted(groups, key=lambda group: _key(group[1][0], block.primary))]


def _sorted(rows: Sequence[Row], metric: str) -> list[Row]:
    return sorted(rows, key=lambda row: _key(row, metric))


def _key(row: Row, metric: str) -> float:
    """Smaller is better; arms without a finished run come last."""
    score = row.scores.get("dev", {}).get(metric)
    if score is None or math.isnan(score.estimate.mean):
        return math.inf
    return -score.estimate.mean if higher_is_better(metric) else score.estimate.mean
