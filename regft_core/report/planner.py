"""How many seeds a wanted difference takes, per task and pair of methods, from the spread seen so far.

The pilot is whatever the evaluate stages left in ``work/``. A pair is planned with the interval that gives the report's
verdicts: corrected for the comparisons of its family and, where it was looked at before, for those looks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regft_core import metrics
from regft_core.disk.reading import read_json
from regft_core.errors import DataError
from regft_core.evaluate.ood import positive_of
from regft_core.names import duration
from regft_core.report.compare import opposites, point_of
from regft_core.report.formatting import number, some
from regft_core.report.looks import Looks, digests
from regft_core.report.model import Pair
from regft_core.runs.work import JudgedRows, Work
from regft_core.settings.files import RESULTS
from regft_core.settings.grid import Cell
from regft_core.settings.layers import sizes_of
from regft_core.settings.project import Project
from regft_core.statistics.arms import Arms
from regft_core.statistics.bootstrap import Estimate
from regft_core.statistics.power import LIMIT, SeedPlan, plan_seeds, shares

#: Below this a pilot says next to nothing about the spread.
PILOT = 3
HEADS: tuple[str, ...] = ("seeds", "spread", "floor", "detected", "needed", "safe", "add", "time")


@dataclass(frozen=True)
class Need:
    """The seeds that one comparison takes."""

    pair: Pair
    cell: Cell
    #: Comparisons of its family, earlier looks at it, and the confidence that the family's next one has.
    comparisons: int
    looks: int
    confidence: float
    #: The pilot and what it gives; None without two seeds that both methods finished.
    estimate: Estimate | None = None
    plan: SeedPlan | None = None
    metric: str = ""
    #: The last report's verdict on these runs; None where there is none.
    word: str | None = None
    #: Runs of both methods to add for the safe number of seeds, and their seconds; None where unknown.
    runs: int | None = None
    seconds: float | None = None


def needs(
    project: Project,
    seconds: Callable[[Cell], float | None],
    difference: float,
    looks: Path | None = None,
) -> list[Need]:
    """Return what every pair of methods takes to find ``difference``, in the unit that the report shows (points).

    Args:
        seconds: of one run of a cell; None where that is not known.
        looks: the file of earlier looks.

    Raises:
        DataError: predictions cannot be read.
        StoreError: the file of looks, or the report's numbers, cannot be read.
    """
    names, config, seen = list(project.methods), project.params.report, Looks(looks)
    file = project.root / RESULTS
    reported = read_json(file) if file.is_file() else {}
    pairs = [pair for name in names for pair in opposites(name, project.methods, names, config.reference)]
    found = []
    for task, size in ((t, size) for t in project.params.grid.tasks for size in sizes_of(project.params, t)):
        cells = {name: Cell(name, task, size) for name in names}
        metric, keys, arms = _pilot(Work(project.root), task, cells.values())
        runs = {pair: digests(keys.get(pair.method, {}), keys.get(pair.other, {})) for pair in pairs}
        for pair in pairs:
            family = [other for other in pairs if other.role == pair.role]
            earlier = max(len(seen.before(f"{task}-{size}", p.method, p.other, runs[p])) for p in family)
            # The planned first look has the whole error; a later one its share.
            parts = 1 if earlier == 0 and config.looks == "planned" else shares(earlier + 1)
            error = (1 - config.confidence) / parts
            need = Need(pair, cells[pair.method], len(family), earlier, 1 - error)
            if arms is not None and len(runs[pair]) > 1:
                estimate, sample = arms.difference(pair.method, pair.other), arms.sample(pair.method, pair.other)
                wanted, point = difference / metrics.find(metric).factor, point_of(metric, [arms.one(pair.other).mean])
                grid_seeds = len(project.params.grid.seeds)
                plan = plan_seeds(wanted, sample, len(family), error, point, grid_seeds=grid_seeds)
                word = _word(reported.get(f"{task}-{size}", {}).get(pair.method, {}), pair, estimate)
                need = replace(need, estimate=estimate, plan=plan, metric=metric, word=word)
                if plan.safe is not None:
                    added = {cells[name]: max(0, plan.safe - len(keys[name])) for name in (pair.method, pair.other)}
                    need = replace(need, runs=sum(added.values()), seconds=_total(seconds, added))
            found.append(need)
    return found


def _total(of: Callable[[Cell], float | None], runs: Mapping[Cell, int]) -> float | None:
    each = [(of(cell), count) for cell, count in runs.items()]
    return None if any(value is None for value, _ in each) else sum((value or 0.0) * count for value, count in each)


def _word(reported: Mapping[str, Any], pair: Pair, estimate: Estimate) -> str | None:
    """The reported verdict; None where the report is about other runs."""
    found = reported.get(f"versus_{pair.role}", {}).get(pair.other, {}).get("dev")
    same = found is not None and found["n"] == estimate.n and abs(found["mean"] - estimate.mean) <= 1e-9
    return str(found["verdict"]) if same else None


def _pilot(work: Work, task: str, cells: Any) -> tuple[str, dict[str, dict[int, str]], Arms | None]:
    """(primary metric, method -> seed -> key, scores) of what was evaluated; methods that were not are left out."""
    keys, predictions = dict[str, dict[int, str]](), dict[str, dict[int, Any]]()
    try:
        described = work.task(task)
    except DataError:
        return "", keys, None
    rows = JudgedRows(described.folded)
    for cell in cells:
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
        return described.primary, keys, None
    arms = Arms(
        predictions, rows.gold, described.primary, samples=1_000, positive_label_index=positive_of(described, "dev"),
        judged=rows.judged, groups=rows.groups(work.groups(task).get("dev", {})),
    )  # fmt: skip
    return described.primary, keys, arms


def table(found: Sequence[Need], difference: float) -> str:
    """The needs as text; ``-`` stands for what cannot be known yet."""
    if not found:
        return "no pair of methods to compare: list the reference and a method"
    pairs, rows = list[str](), [HEADS]
    for need in found:
        if need.plan is not None and need.estimate is not None:
            scale = metrics.find(need.metric).factor
            sizes = (need.estimate.seed_deviation, need.plan.floor, need.plan.shown)
            seeds = ("never" if count is None else str(count) for count in (need.plan.seeds, need.plan.safe))
            runs = "-" if need.runs is None else str(need.runs)
            time = "-" if need.seconds is None else duration(need.seconds)
            pair = f"{need.pair.method} - {need.pair.other} ({need.pair.role}) on {need.cell.task}-{need.cell.size}"
            pairs.append(f"{pair}\n{need.word or 'not reported':<19}")
            rows.append((str(need.estimate.n), *(number(size * scale, 2) for size in sizes), *seeds, runs, time))
    lines = []
    if pairs:
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines += [
            f"seeds that detect a true difference of {difference:g} points 80% of the time, at the report's confidence",
            *(f"{pair}  {'  '.join(map(str.rjust, row, widths))}" for pair, row in zip([" " * 19, *pairs], rows)),
            f"spread: over the seeds at hand; needed: if that is the true one; safe: if it is at the upper end of its "
            f"80% interval; floor: detected with {LIMIT} seeds; detected: with the grid's; never: below the floor; "
            "add: runs of both methods up to the safe number.",
        ]
    if looked := [need for need in found if need.looks and need.plan is not None]:
        lines.append(f"{len(looked)} of these pairs were looked at before, so the next look has a wider interval.")
    if unknown := [f"{n.pair.method} - {n.pair.other} on {n.cell.task}-{n.cell.size}" for n in found if n.plan is None]:
        lines.append(
            f"no spread seen yet for {some(unknown)}: finish at least {PILOT} seeds of both methods "
            "first (grid.seeds in params.yaml, then `dvc repro`)"
        )
    return "\n".join(lines)
