"""How many seeds a wanted difference takes, per task and pair of arms, from the spread seen so far.

The pilot is whatever the evaluate stages left in ``work/``; pairs without it say what to run first. A pair that was
looked at before is planned for its next look, whose interval must hold together with the earlier ones
(``statistics.sequential``), so that the plan promises what the report will say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regft_core import metrics
from regft_core.config.cost import PlanRow, duration
from regft_core.config.grid import Cell, parse_size
from regft_core.config.project import Project
from regft_core.config.settings import sizes_of
from regft_core.errors import DataError
from regft_core.names import plural
from regft_core.reporting.interim import Looks, digests
from regft_core.reporting.model import Role
from regft_core.reporting.page.formatting import number
from regft_core.reporting.sentences import NO_SPREAD
from regft_core.reporting.tables import opposites
from regft_core.results.judged import JudgedRows
from regft_core.results.work import Work
from regft_core.scoring.ood import positive_of
from regft_core.statistics.arms import Arms
from regft_core.statistics.bootstrap import Estimate
from regft_core.statistics.detectable import LIMIT, SeedPlan, plan_seeds
from regft_core.statistics.sequential import shares

POWER = 0.8
#: Below this a pilot says next to nothing about the spread.
PILOT = 3


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
    plan: SeedPlan | None
    #: Earlier looks at the comparison, and the confidence that the next one has.
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
        StoreError: the file of looks cannot be read.
    """
    names, reference = list(project.methods), project.params.report.reference
    costs, seen = {row.cell: row.cost for row in rows}, Looks(looks)
    found = []
    for task in project.params.grid.tasks:
        for size in sizes_of(project.params, task):
            pilot = _pilot(project.root, task, size, names)
            for method in names:
                for other, role, _ in opposites(method, project.methods, names, reference):
                    place = (Cell(method, task, size), Cell(other, task, size))
                    found.append(_need(project, pilot, place, role, difference, costs, seconds, seen))
    return found


def _need(
    project: Project,
    pilot: _Pilot | None,
    place: tuple[Cell, Cell],
    role: Role,
    difference: float,
    costs: Mapping[Cell, float | None],
    seconds: Callable[[Cell], float | None],
    seen: Looks,
) -> Need:
    method, other = place[0].method, place[1].method
    keys = [dict(pilot.keys.get(name, {})) if pilot else {} for name in (method, other)]
    runs = digests(*keys)
    earlier = len(seen.before(f"{place[0].task}-{place[0].size}", method, other, runs))
    config = project.params.report
    # The planned first look has the whole error; a later one its share.
    parts = 1 if earlier == 0 and config.looks == "planned" else shares(earlier + 1)
    confidence = 1 - (1 - config.confidence) / parts
    if pilot is None or len(runs) < 2:
        metric = pilot.metric if pilot else None
        return Need(method, other, role, place[0], metric, None, None, earlier, confidence, None, None, None)
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
    shown = metrics.find(pilot.metric).factor
    plan = plan_seeds(
        difference / shown,
        estimate.seed_deviation,
        estimate.n,
        estimate.standard_error_examples,
        power=POWER,
        confidence=confidence,
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
    return Need(method, other, role, place[0], pilot.metric, estimate, plan, earlier, confidence, total, steps, time)


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
        return "no pair of arms to compare: list the reference and a method"
    parts = []
    if known:
        units = {metrics.find(need.metric or "").unit for need in known}
        unit = units.pop() if len(units) == 1 else "(points, or the metric's own unit)"
        head = f"to find a true difference of {difference:g} {unit} four times in five, at the report's confidence"
        parts += [head, _lines(known), *_notes(known)]
    if unknown:
        pairs = [f"{need.method} - {need.other} on {need.cell.task}-{need.cell.size}" for need in unknown]
        shown = ", ".join(pairs[:6]) + (f" and {len(pairs) - 6} more" if len(pairs) > 6 else "")
        parts.append(
            f"no spread seen yet for {shown}: finish at least {PILOT} seeds of both arms first (grid.seeds in "
            "params.yaml, then `dvc repro`); six tell the spread to within a factor of two"
        )
    return "\n".join(parts)


def _lines(known: Sequence[Need]) -> str:
    head = ("pair", "task", "seeds", "spread", "floor", "needed", "safe", "runs to add", "plain steps", "time")
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
                number(need.estimate.seed_deviation * shown, 2),
                number(need.plan.floor * shown, 2),
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
        "spread: standard deviation of the paired difference over the seeds at hand. needed: if that is the true one; "
        "safe: if it is at the upper end of its 80% interval. Runs, steps (of plain fine-tuning) and time are for "
        "safe, both arms. floor: what endless seeds would find on this development set; never: the difference is below "
        f"it, or takes more than {LIMIT:,} seeds."
    ]
    looked = [need for need in known if need.looks]
    if looked:
        most = max(looked, key=lambda need: need.looks)
        notes.append(
            f"{plural(len(looked), 'pair')} had been looked at before (up to {plural(most.looks, 'time')}): planned "
            f"for the next look, with intervals of up to {most.confidence:.2%}: the report's words hold over all looks."
        )
    degenerate = [need for need in known if need.estimate is not None and need.estimate.seed_deviation < NO_SPREAD]
    if degenerate:
        notes.append(
            f"{plural(len(degenerate), 'pair')} showed no spread at all: arms that predict alike, or too few seeds to "
            "tell; do not trust 'needed' there."
        )
    small = [need for need in known if need.estimate is not None and need.estimate.n < PILOT]
    if small:
        notes.append(f"{plural(len(small), 'pair')} had two seeds only: run {PILOT} to 6 before you believe the plan.")
    return notes
