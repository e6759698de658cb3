"""How many seeds a wanted difference takes, per task and pair of arms, from the spread seen so far.

The pilot is whatever the evaluate stages left in ``work/``; pairs without it say what to run first. A pair is planned
with the interval that gives the report's words: it holds together with those of its family, and, where the family was
looked at before, with those of earlier looks (``statistics.verdict``, ``statistics.sequential``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regft_core import metrics
from regft_core.errors import DataError
from regft_core.evaluate.ood import positive_of
from regft_core.io.reading import read_json
from regft_core.names import plural
from regft_core.report.compare import Pair, opposites, point_of
from regft_core.report.interim import Looks, digests
from regft_core.report.model import Role
from regft_core.report.page.formatting import number
from regft_core.runs.results.judged import JudgedRows
from regft_core.runs.results.work import Work
from regft_core.settings.cost import PlanRow, duration
from regft_core.settings.files import RESULTS
from regft_core.settings.grid import Cell, parse_size
from regft_core.settings.project import Project
from regft_core.settings.settings import sizes_of
from regft_core.statistics.arms import Arms
from regft_core.statistics.bootstrap import Estimate
from regft_core.statistics.sequential import shares
from regft_core.statistics.verdict import LIMIT, Sample, detectable_with, seeds_for

#: Of the interval of a deviation whose upper end is the safe one (Browne, Statistics in Medicine 1995).
SAFE = 0.8
#: Below this a spread over seeds is rounding.
NO_SPREAD = 1e-12
#: Below this a pilot says next to nothing about the spread.
PILOT = 3


@dataclass(frozen=True)
class SeedPlan:
    """How many paired seeds show a difference; None where ``LIMIT`` do not."""

    #: When the deviation over seeds is what was seen.
    seeds: int | None
    #: When it is at the upper end of its one-sided 80% interval: few seeds tell little about it.
    safe: int | None
    #: The smallest difference that ``LIMIT`` seeds show on this development set, and that the grid's seeds show.
    floor: float
    shown: float


@dataclass(frozen=True)
class Need:
    """What one comparison takes."""

    method: str
    other: str
    role: Role
    cell: Cell
    metric: str | None
    #: The pilot; None without two seeds that both arms finished.
    estimate: Estimate | None
    #: The last report's word for it; None where there is none, or it is about other runs.
    word: str | None
    plan: SeedPlan | None
    #: Comparisons of its family; earlier looks at it, and the confidence that the family's next one has.
    comparisons: int
    looks: int
    confidence: float
    #: Runs of both arms to add for the safe number of seeds, in plain steps and seconds; None where unknown.
    runs: int | None
    steps: float | None
    seconds: float | None


@dataclass(frozen=True)
class _Pilot:
    metric: str
    gold: Any
    positive: int | None
    #: method -> seed -> predictions [n], and the runs' keys
    predictions: Mapping[str, Mapping[int, Any]]
    keys: Mapping[str, Mapping[int, str]]
    #: As ``BlockData.judged`` and ``groups``, of dev
    judged: Mapping[int, Any] | None = None
    groups: Any = None


def needs(
    project: Project,
    rows: Sequence[PlanRow],
    seconds: Callable[[Cell], float | None],
    difference: float,
    looks: Path | None = None,
) -> list[Need]:
    """Return what every pair of arms takes to find ``difference``, in the unit that the report shows (points).

    Args:
        rows: the plan, whose costs are taken.
        seconds: of one run of a cell; None where that is not known.
        looks: the file of earlier looks.

    Raises:
        DataError: predictions cannot be read.
        StoreError: the file of looks, or the report's numbers, cannot be read.
    """
    names, reference = list(project.methods), project.params.report.reference
    costs, seen = {row.cell: row.cost for row in rows}, Looks(looks)
    file = project.root / RESULTS
    reported = read_json(file) if file.is_file() else {}
    found = []
    for task in project.params.grid.tasks:
        for size in sizes_of(project.params, task):
            pilot = _pilot(project.root, task, size, names)
            pairs = [pair for method in names for pair in opposites(method, project.methods, names, reference)]
            for pair in pairs:
                place = (Cell(pair.method, task, size), Cell(pair.other, task, size))
                family = [other for other in pairs if other.role == pair.role]
                found.append(_need(project, pilot, place, pair, family, difference, costs, seconds, seen, reported))
    return found


def _need(
    project: Project,
    pilot: _Pilot | None,
    place: tuple[Cell, Cell],
    pair: Pair,
    family: Sequence[Pair],
    difference: float,
    costs: Mapping[Cell, float | None],
    seconds: Callable[[Cell], float | None],
    seen: Looks,
    reported: Mapping[str, Any],
) -> Need:
    method, other, role = pair.method, pair.other, pair.role
    keys = [dict(pilot.keys.get(name, {})) if pilot else {} for name in (method, other)]
    runs = digests(*keys)
    block = f"{place[0].task}-{place[0].size}"
    earlier = max(len(_earlier(pilot, seen, block, one)) for one in family)
    config = project.params.report
    # The planned first look has the whole error; a later one its share.
    parts = 1 if earlier == 0 and config.looks == "planned" else shares(earlier + 1)
    confidence = 1 - (1 - config.confidence) / parts
    if pilot is None or len(runs) < 2:
        metric = pilot.metric if pilot else None
        counts = (len(family), earlier, confidence)
        return Need(method, other, role, place[0], metric, None, None, None, *counts, None, None, None)
    arms = Arms(
        {name: pilot.predictions[name] for name in (method, other)},
        pilot.gold,
        pilot.metric,
        samples=1_000,
        positive_label_index=pilot.positive,
        judged=pilot.judged,
        groups=pilot.groups,
    )
    estimate = arms.difference(method, other)
    shown, point = metrics.find(pilot.metric).factor, point_of(pilot.metric, [arms.one(other).mean])
    sample = arms.sample(method, other)
    plan = plan_seeds(
        difference / shown, sample, len(family), 1 - confidence, point, grid_seeds=len(project.params.grid.seeds)
    )
    added = [max(0, plan.safe - len(own)) if plan.safe is not None else None for own in keys]
    total = None if added[0] is None or added[1] is None else added[0] + added[1]
    each = [costs.get(cell) for cell in place]
    steps = None
    if total is not None and all(cost is not None for cost in each):
        steps = sum((cost or 0.0) * (count or 0) for cost, count in zip(each, added, strict=True))
    timed = [seconds(cell) for cell in place]
    time = None
    if total is not None and all(one is not None for one in timed):
        time = sum((one or 0.0) * (count or 0) for one, count in zip(timed, added, strict=True))
    counts = (len(family), earlier, confidence)
    word = _word(reported.get(block, {}).get(method, {}), pair, estimate)
    return Need(method, other, role, place[0], pilot.metric, estimate, word, plan, *counts, total, steps, time)


def _word(reported: Mapping[str, Any], pair: Pair, estimate: Estimate) -> str | None:
    found = reported.get(f"versus_{pair.role}", {}).get(pair.other, {}).get("dev")
    if found is None or found["n"] != estimate.n or abs(found["mean"] - estimate.mean) > 1e-9:
        return None  # the report is about other runs
    return str(found["verdict"])


def plan_seeds(
    difference: float, sample: Sample, comparisons: int, error: float, point: float, *, grid_seeds: int
) -> SeedPlan:
    """Plan for a true ``difference`` from a pilot; arguments as ``verdict.detectable_with``."""
    from scipy.stats import chi2

    n = len(sample.values)
    upper = math.sqrt((n - 1) / float(chi2.ppf(1 - SAFE, n - 1)))
    common = (sample, comparisons, error, point)
    return SeedPlan(
        seeds_for(difference, *common),
        seeds_for(difference, *common, upper),
        detectable_with(LIMIT, *common),
        detectable_with(grid_seeds, *common),
    )


def _earlier(pilot: _Pilot | None, seen: Looks, block: str, pair: Pair) -> list[dict[str, str]]:
    """Earlier looks at the runs of one pair."""
    keys = [dict(pilot.keys.get(name, {})) if pilot else {} for name in (pair.method, pair.other)]
    return seen.before(block, pair.method, pair.other, digests(*keys))


def _pilot(root: Path, task: str, size: int | str, names: Sequence[str]) -> _Pilot | None:
    """What was evaluated on one task at one size; arms that were not are left out. None without the task's facts."""
    work = Work(root)
    try:
        described = work.task(task)
    except DataError:
        return None
    predictions: dict[str, dict[int, Any]] = {}
    keys: dict[str, dict[int, str]] = {}
    rows = JudgedRows(described.folded)
    for name in names:
        cell = Cell(name, task, parse_size(size))
        try:
            result = work.evaluation(cell)
        except DataError:
            continue
        for run in result.runs:
            if run.ok:
                found = work.predictions(cell, run.seed, "dev", described.kind)
                if not rows.fits(run.seed, found):
                    continue  # evaluated on other rows, which the next `dvc repro` does again
                predictions.setdefault(name, {})[run.seed] = found.predicted
                keys.setdefault(name, {})[run.seed] = run.key
    if not predictions:
        return None
    groups = rows.groups(work.groups(task).get("dev", {}))
    positive = positive_of(described, "dev")
    return _Pilot(described.primary, rows.gold, positive, predictions, keys, rows.judged, groups)


# ------------------------------------------------------------------------------------ table


def table(found: Sequence[Need], difference: float) -> str:
    """The needs as text; ``-`` stands for what cannot be known yet."""
    known = [need for need in found if need.plan is not None]
    unknown = [need for need in found if need.plan is None]
    if not found:
        return "no pair of methods to compare: list the reference and a method"
    parts = []
    if known:
        units = {metrics.find(need.metric or "").unit for need in known}
        unit = units.pop() if len(units) == 1 else "(points, or the metric's own unit)"
        head = (
            f"to show a true difference of {difference:g} {unit} four times in five, at the report's confidence for "
            "all comparisons of a family together"
        )
        parts += [head, _lines(known), *_notes(known)]
    if unknown:
        pairs = [f"{need.method} - {need.other} on {need.cell.task}-{need.cell.size}" for need in unknown]
        shown = ", ".join(pairs[:6]) + (f" and {len(pairs) - 6} more" if len(pairs) > 6 else "")
        parts.append(
            f"no spread seen yet for {shown}: finish at least {PILOT} seeds of both methods first (grid.seeds in "
            "params.yaml, then `dvc repro`); six tell the spread to within a factor of two"
        )
    return "\n".join(parts)


def _lines(known: Sequence[Need]) -> str:
    head = (
        "pair",
        "task",
        "seeds",
        "verdict now",
        "spread",
        "floor",
        "shown now",
        "needed",
        "safe",
        "runs to add",
        "plain steps",
        "time",
    )
    lines = [head]
    for need in known:
        assert need.plan is not None
        assert need.estimate is not None
        shown = metrics.find(need.metric or "").factor
        lines.append(
            (
                f"{need.method} - {need.other} ({need.role})",
                f"{need.cell.task}-{need.cell.size}",
                str(need.estimate.n),
                need.word or "-",
                number(need.estimate.seed_deviation * shown, 2),
                number(need.plan.floor * shown, 2),
                number(need.plan.shown * shown, 2),
                "never" if need.plan.seeds is None else str(need.plan.seeds),
                "never" if need.plan.safe is None else str(need.plan.safe),
                "-" if need.runs is None else str(need.runs),
                "-" if need.steps is None else f"{need.steps:,.0f}",
                "-" if need.seconds is None else duration(need.seconds),
            )
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = [
        "  ".join(w.ljust(n) if i < 2 else w.rjust(n) for i, (w, n) in enumerate(zip(line, widths))) for line in lines
    ]
    text.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(text)


def _notes(known: Sequence[Need]) -> list[str]:
    notes = [
        "verdict now: the report's word for these seeds. "
        "spread: standard deviation of the paired difference over the seeds at hand. needed: if that is the true one; "
        "safe: if it is at the upper end of its 80% interval. Runs, steps (of plain fine-tuning) and time are for "
        f"safe, both methods. floor: what {LIMIT} seeds show on this development set; shown now: what the grid's seeds "
        "show; never: the difference is below the floor."
    ]
    looked = [need for need in known if need.looks]
    if looked:
        most = max(looked, key=lambda need: need.looks)
        notes.append(
            f"{plural(len(looked), 'pair')} had been looked at before (up to {plural(most.looks, 'time')}): planned "
            f"for the next look, with intervals of up to {most.confidence:.2%}: verdicts hold over all looks."
        )
    degenerate = [need for need in known if need.estimate is not None and need.estimate.seed_deviation < NO_SPREAD]
    if degenerate:
        notes.append(
            f"{plural(len(degenerate), 'pair')} showed no spread at all: methods that predict alike, or too few seeds "
            "to tell; do not trust 'needed' there."
        )
    small = [need for need in known if need.estimate is not None and need.estimate.n < PILOT]
    if small:
        notes.append(f"{plural(len(small), 'pair')} had two seeds only: run {PILOT} to 6 before you believe the plan.")
    return notes
