"""How many seeds a wanted difference takes, by task and pair, with the interval of the report's next verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from regft_core import metrics
from regft_core.names import aligned, duration
from regft_core.report import build_report
from regft_core.report.formatting import listed, number, point_of
from regft_core.report.looks import Looks
from regft_core.report.read_grid import Inputs
from regft_core.report.values import Comparison
from regft_core.settings.project import Cell
from regft_core.statistics.forecast import LIMIT, SeedPlan, plan_seeds, shares


@dataclass(frozen=True)
class Need:
    """The seeds that one comparison takes.

    Attributes:
        looks: earlier ones at the comparison; ``confidence``: of its family's next one.
        plan: None without two seeds that both methods finished.
        runs: of both methods to add for the safe number of seeds; with their ``seconds`` None where unknown.
    """

    block: str
    comparison: Comparison
    looks: int
    confidence: float
    plan: SeedPlan | None
    runs: int | None
    seconds: float | None


def needs(inputs: Inputs, seconds: Callable[[Cell], float | None], difference: float) -> list[Need]:
    """Return what every pair of methods takes to find ``difference``, in points. It is no look at the results.

    ``seconds``: of one run of a cell; None where that is not known. Raises what ``build_report`` does.
    """
    report = build_report(inputs, Looks(inputs.looks))
    looks = Looks(inputs.looks)  # those of the report hold its own
    found = []
    for block in report.blocks:
        cells = {c.method: c for c in inputs.cells if (c.task, str(c.size)) == (block.task, block.size)}
        rows, earlier = {row.method: row for row in block.rows}, Counter[str]()
        compared = [c for row in block.rows for c in row.comparisons if c.set == "dev"]
        for c in compared:
            before = looks.before(block.name, rows[c.method].finished, rows[c.other].finished)
            earlier[c.role] = max(earlier[c.role], len(before))
        for c in compared:
            parts = shares(earlier[c.role] + 1) if earlier[c.role] else 1
            confidence, plan, runs, total = 1 - (1 - inputs.config.confidence) / parts, None, None, None
            if c.estimate.n > 1:
                point = point_of(c.metric, (row.scores["dev"][c.metric].estimate.mean for row in block.rows))
                wanted, error = difference * point, 1 - confidence
                plan = plan_seeds(wanted, c.sample, c.verdict.comparisons, error, point, grid_seeds=len(inputs.seeds))
            if plan is not None and plan.safe is not None:
                added = {name: max(0, plan.safe - len(rows[name].finished)) for name in (c.method, c.other)}
                runs, each = sum(added.values()), {name: seconds(cells[name]) for name in added}
                total = None if None in each.values() else sum(added[name] * (each[name] or 0) for name in added)
            found.append(Need(block.name, c, earlier[c.role], confidence, plan, runs, total))
    return found


def table(needs: Sequence[Need], difference: float) -> str:
    if not needs:
        return "no pair of methods to compare: list the reference and a method"
    pairs, lines = list[str](), list[str]()
    rows: list[tuple[str, ...]] = [("seeds", "spread", "floor", "detected", "needed", "safe", "add", "time")]
    for need in needs:
        if need.plan is not None:
            c, scale = need.comparison, metrics.find(need.comparison.metric).factor
            sizes = (c.estimate.seed_deviation, need.plan.floor, need.plan.shown)
            seeds = ("never" if count is None else str(count) for count in (need.plan.seeds, need.plan.safe))
            runs = "-" if need.runs is None else str(need.runs)
            time = "-" if need.seconds is None else duration(need.seconds)
            pairs.append(f"{c.method} - {c.other} ({c.role}) on {need.block}\n{c.verdict.word:<19}")
            rows.append((str(c.estimate.n), *(number(size * scale, 2) for size in sizes), *seeds, runs, time))
    if pairs:
        lines += [
            f"seeds that detect a true difference of {difference:g} points 80% of the time, at the report's confidence",
            *(f"{pair}  {row}" for pair, row in zip([" " * 19, *pairs], aligned(rows, 0), strict=True)),
            f"spread: over the seeds at hand; needed: if that is the true one; safe: if it is at the upper end of its "
            f"80% interval; floor: detected with {LIMIT} seeds; detected: with the grid's; never: below the floor; "
            "add: runs of both methods up to the safe number.",
        ]
    if looked := [need for need in needs if need.looks and need.plan is not None]:
        lines.append(f"{len(looked)} of these pairs were looked at before, so the next look has a wider interval.")
    if unknown := [f"{n.comparison.method} - {n.comparison.other} on {n.block}" for n in needs if n.plan is None]:
        lines.append(f"no spread seen yet for {listed(unknown)}: finish at least 2 seeds of both methods (grid.seeds)")
    return "\n".join(lines)
