"""How many seeds a wanted difference takes, per task and pair of methods, from the spread seen so far.

The pilot is whatever the evaluate stages left in ``work/``. A pair is planned with the interval that gives the report's
verdicts: corrected for the comparisons of its family and, where it was looked at before, for those looks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from regft_core import metrics
from regft_core.errors import DataError
from regft_core.evaluate.ood import positive_of
from regft_core.io.reading import read_json
from regft_core.names import duration
from regft_core.report.compare import Pair, opposites, point_of
from regft_core.report.interim import Looks, digests
from regft_core.report.page.formatting import number
from regft_core.runs.work import JudgedRows, Work
from regft_core.settings.cost import PlanRow
from regft_core.settings.files import RESULTS
from regft_core.settings.grid import Cell, parse_size
from regft_core.settings.layers import sizes_of
from regft_core.settings.project import Project
from regft_core.statistics.arms import Arms
from regft_core.statistics.bootstrap import Estimate
from regft_core.statistics.power import LIMIT, SeedPlan, plan_seeds, shares

#: Columns of the table; all but the first two are numbers.
HEADS = (
    *("pair", "task", "seeds", "verdict", "spread", "floor"),
    *("detected", "needed", "safe", "runs to add", "steps", "time"),
)
#: Below this a pilot says next to nothing about the spread.
PILOT = 3


@dataclass(frozen=True)
class Need:
    """What one comparison takes."""

    pair: Pair
    cell: Cell
    metric: str | None
    #: The pilot and what it gives; None without two seeds that both methods finished.
    estimate: Estimate | None
    plan: SeedPlan | None
    #: The last report's verdict on these runs; None where there is none.
    word: str | None
    #: Comparisons of its family, earlier looks at it, and the confidence that the family's next one has.
    comparisons: int
    looks: int
    confidence: float
    #: Runs of both methods to add for the safe number of seeds, in plain steps and seconds; None where unknown.
    runs: int | None = None
    steps: float | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class _Pilot:
    """The evaluated runs of a task at a size: method -> seed -> key, and the scores of all of them."""

    metric: str
    keys: Mapping[str, Mapping[int, str]]
    arms: Arms

    def digests(self, pair: Pair) -> dict[str, str]:
        return digests(*(dict(self.keys.get(name, {})) for name in (pair.method, pair.other)))


def needs(
    project: Project,
    rows: Sequence[PlanRow],
    seconds: Callable[[Cell], float | None],
    difference: float,
    looks: Path | None = None,
) -> list[Need]:
    """Return what every pair of methods takes to find ``difference``, in the unit that the report shows (points).

    Args:
        rows: the plan, whose costs are taken.
        seconds: of one run of a cell; None where that is not known.
        looks: the file of earlier looks.

    Raises:
        DataError: predictions cannot be read.
        StoreError: the file of looks, or the report's numbers, cannot be read.
    """
    names, config = list(project.methods), project.params.report
    costs, seen = {row.cell: row.cost for row in rows}, Looks(looks)
    file = project.root / RESULTS
    reported = read_json(file) if file.is_file() else {}
    pairs = [pair for name in names for pair in opposites(name, project.methods, names, config.reference)]
    found = []
    for task in project.params.grid.tasks:
        for size in sizes_of(project.params, task):
            pilot, block = _pilot(project.root, task, size, names), f"{task}-{size}"
            for pair in pairs:
                family = [other for other in pairs if other.role == pair.role]
                earlier = 0
                if pilot is not None:
                    known = [seen.before(block, one.method, one.other, pilot.digests(one)) for one in family]
                    earlier = max(map(len, known))
                # The planned first look has the whole error; a later one its share.
                parts = 1 if earlier == 0 and config.looks == "planned" else shares(earlier + 1)
                confidence = 1 - (1 - config.confidence) / parts
                cell, metric = Cell(pair.method, task, size), pilot.metric if pilot else None
                counts = (len(family), earlier, confidence)
                if pilot is None or len(pilot.digests(pair)) < 2:
                    found.append(Need(pair, cell, metric, None, None, None, *counts))
                    continue
                estimate, sample = (
                    pilot.arms.difference(pair.method, pair.other),
                    pilot.arms.sample(pair.method, pair.other),
                )
                plan = plan_seeds(
                    difference / metrics.find(pilot.metric).factor, sample, len(family), 1 - confidence,
                    point_of(pilot.metric, [pilot.arms.one(pair.other).mean]),
                    grid_seeds=len(project.params.grid.seeds),
                )  # fmt: skip
                own = reported.get(block, {}).get(pair.method, {})
                common = (pair, cell, metric, estimate, plan, _word(own, pair, estimate), *counts)
                if plan.safe is None:
                    found.append(Need(*common))
                    continue
                added = [max(0, plan.safe - len(pilot.keys[name])) for name in (pair.method, pair.other)]
                cells = [cell, Cell(pair.other, task, size)]
                steps, time = (_sum([of(one) for one in cells], added) for of in (costs.get, seconds))
                found.append(Need(*common, sum(added), steps, time))
    return found


def _sum(each: Sequence[float | None], counts: Sequence[int]) -> float | None:
    return None if None in each else sum((one or 0.0) * count for one, count in zip(each, counts, strict=True))


def _word(reported: Mapping[str, Any], pair: Pair, estimate: Estimate) -> str | None:
    found = reported.get(f"versus_{pair.role}", {}).get(pair.other, {}).get("dev")
    if found is None or found["n"] != estimate.n or abs(found["mean"] - estimate.mean) > 1e-9:
        return None  # the report is about other runs
    return str(found["verdict"])


def _pilot(root: Path, task: str, size: int | str, names: Sequence[str]) -> _Pilot | None:
    """What was evaluated on one task at one size; methods that were not are left out."""
    work = Work(root)
    try:
        described = work.task(task)
    except DataError:
        return None
    predictions: dict[str, dict[int, Any]] = {}
    keys: dict[str, dict[int, str]] = {}
    rows = JudgedRows(described.folded)
    for cell in (Cell(name, task, parse_size(size)) for name in names):
        try:
            result = work.evaluation(cell)
        except DataError:
            continue
        for run in (run for run in result.runs if run.ok):
            found = work.predictions(cell, run.seed, "dev", described.kind)
            if rows.fits(run.seed, found):  # else evaluated on other rows, which the next `dvc repro` does again
                predictions.setdefault(cell.method, {})[run.seed] = found.predicted
                keys.setdefault(cell.method, {})[run.seed] = run.key
    if not predictions:
        return None
    arms = Arms(
        predictions, rows.gold, described.primary, samples=1_000, positive_label_index=positive_of(described, "dev"),
        judged=rows.judged, groups=rows.groups(work.groups(task).get("dev", {})),
    )  # fmt: skip
    return _Pilot(described.primary, keys, arms)


def table(found: Sequence[Need], difference: float) -> str:
    """The needs as text; ``-`` stands for what cannot be known yet."""
    if not found:
        return "no pair of methods to compare: list the reference and a method"
    shown = Table(box=None, pad_edge=False, title_justify="left")
    for head in HEADS:
        shown.add_column(head, justify="left" if head in ("pair", "task") else "right", no_wrap=True)
    for need in found:
        if need.plan is None or need.estimate is None:
            continue
        scale = metrics.find(need.metric or "").factor
        spread, floor, detected = need.estimate.seed_deviation, need.plan.floor, need.plan.shown
        shown.add_row(
            f"{need.pair.method} - {need.pair.other} ({need.pair.role})", f"{need.cell.task}-{need.cell.size}",
            str(need.estimate.n), need.word or "-", *(number(one * scale, 2) for one in (spread, floor, detected)),
            *("never" if one is None else str(one) for one in (need.plan.seeds, need.plan.safe)),
            "-" if need.runs is None else str(need.runs), "-" if need.steps is None else f"{need.steps:,.0f}",
            "-" if need.seconds is None else duration(need.seconds),
        )  # fmt: skip
    lines = []
    if shown.row_count:
        console = Console(width=10_000, color_system=None)
        with console.capture() as text:
            console.print(shown)
        lines += [
            f"seeds that detect a true difference of {difference:g} points 80% of the time, at the report's confidence",
            *(line.rstrip() for line in text.get().splitlines()),
            f"spread: over the seeds at hand; needed: if that is the true one; safe: if it is at the upper end of its "
            f"80% interval; floor: detected with {LIMIT} seeds; detected: with the grid's. never: below the floor.",
        ]
        if looked := [need for need in found if need.looks and need.plan is not None]:
            lines.append(f"{len(looked)} of these pairs were looked at before, so the next look has a wider interval.")
    if unknown := [f"{n.pair.method} - {n.pair.other} on {n.cell.task}-{n.cell.size}" for n in found if n.plan is None]:
        rest = f" and {len(unknown) - 6} more" if len(unknown) > 6 else ""
        lines.append(
            f"no spread seen yet for {', '.join(unknown[:6])}{rest}: finish at least {PILOT} seeds of both methods "
            "first (grid.seeds in params.yaml, then `dvc repro`)"
        )
    return "\n".join(lines)
