"""What more labelled rows are expected to bring, per task and method, where a grid has several sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from regft_core import metrics
from regft_core.names import plural
from regft_core.report.model import Block, MoreRows, by_size
from regft_core.report.page.formatting import interval, number, score, unit
from regft_core.statistics.learning_curve import expected_gains

#: How many times the largest size is asked about.
FACTORS = (2.0, 4.0)


def more_rows(blocks: Sequence[Block], rows: Mapping[str, int]) -> tuple[MoreRows, ...]:
    """One entry per task and method that has a score at three sizes or more; ``rows`` are the blocks' training rows."""
    found = []
    for task, own in by_size(blocks, rows).items():
        last = own[-1]
        described = metrics.find(last.primary)
        pick = last.decision.pick.method if last.decision is not None and last.decision.pick is not None else None
        for row in last.rows:
            at = [(block, other) for block in own if (other := block.row(row.method)) is not None and other.n_ok]
            estimates = [other.scores["dev"][block.primary].estimate for block, other in at]
            if not at or at[-1][0] is not last:
                continue
            best = described.range[0] if described.lower_is_better else described.range[1]
            room = abs(best - estimates[-1].mean) if math.isfinite(best) else math.inf
            sizes = [float(rows[block.name]) for block, _ in at]
            upwards = not described.lower_is_better
            gains = expected_gains(sizes, estimates, FACTORS, upwards=upwards, room=room)
            if not gains:
                continue
            found.append(
                MoreRows(
                    task=task,
                    method=row.method,
                    metric=last.primary,
                    rows=rows[last.name],
                    sizes=len(at),
                    gains=gains,
                    taken=pick == row.method,
                )
            )
    return tuple(found)


def sentence(found: MoreRows) -> str:
    """``With 400 rows of sst2 instead of 200, hype_n is expected to change by +2.1 points [+0.4, +5.0] (...).``"""
    first = found.gains[0]
    bounds = interval((first.low, first.high), found.metric, signed=True)
    return (
        f"With {number(first.factor * found.rows, 0)} rows of {found.task} instead of {found.rows}, {found.method} is "
        f"expected to change by {score(first.mean, found.metric, signed=True)} {unit(found.metric)} {bounds} "
        f"(power law through {plural(found.sizes, 'size')})."
    )
