"""Facts beside the scores: data, tuning, and costs next to plain fine-tuning."""

from __future__ import annotations

import math
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from regft_core.kinds import find
from regft_core.report.formatting import number, sign
from regft_core.report.read_grid import BlockData, CellData
from regft_core.runs import records
from regft_core.settings.document import dotted, leaves
from regft_core.settings.layers import described
from regft_core.statistics.forecast import expected_max_curve

#: Arguments of a git command that prints something where files of the project differ from its commit.
CHANGED = ("status", "--porcelain", "--untracked-files=no", "--", ".")


def draws(block: BlockData) -> dict[str, dict[str, Any]]:
    """Rows of the draws by label (fewest and most over seeds), and how many have the text of a row of a set."""
    frame = pd.DataFrame([draw.label_counts or {} for draw in block.subsample.seeds.values()])
    overlap = pd.DataFrame([draw.duplicates_with for draw in block.subsample.seeds.values()]).max()
    return {
        "labels": {label: (int(frame[label].min()), int(frame[label].max())) for label in frame},
        "overlap": {name: int(count) for name, count in overlap.items() if count},
    }


def row_counts(block: BlockData) -> list[tuple[str, dict[str, float]]]:
    """Title and counts of what is drawn as bars: validation and training rows by label, or by range of values."""
    gold = block.set_rows["dev"].gold if "dev" in block.set_rows else np.empty(0)
    kind, labels = find(block.described.kind), block.described.labels
    counts = kind.label_counts(gold.tolist(), labels or ())
    if counts is None:  # values
        rows, ends = np.histogram(gold, bins=5)
        names = [number(end, max(0, 1 - math.floor(math.log10(ends[1] - ends[0])))) for end in ends]
        counts = {f"{a} to {b}": int(n) for n, a, b in zip(rows, names, names[1:])}
    drawn = {label: (low + high) / 2 for label, (low, high) in draws(block)["labels"].items()}
    both = [("Validation rows by label", dict(counts)), ("Training rows by label", drawn)]
    return [(title, by_label) for title, by_label in both if by_label]


def git(root: Path, *arguments: str) -> str:
    """Return the output of a git command; empty where it fails, or there is no git."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def origin(root: Path) -> str:
    """The day and the commit that a page is from; no time, so that the same results of one day give the same page."""
    commit = git(root, "rev-parse", "--short", "HEAD")
    changed = " with uncommitted changes" * bool(commit and git(root, *CHANGED))
    return f"{date.today():%-d %B %Y}" + (f", commit {commit}{changed}" if commit else "")


class TunedArm(NamedTuple):
    """The trials of one arm in one block.

    Attributes:
        trials: of every seed; ``failed``: of all seeds; ``seconds``: of one seed.
        chosen: (settings in words, seeds that took them), the most frequent first.
        shown: (k, expected best score of k trials) on the rows that chose, of 1, 2, 4, ... and all trials.
    """

    block: str
    method: str
    metric: str
    trials: int = 0
    failed: int = 0
    selection: str = ""
    seconds: float = 0.0
    chosen: Sequence[tuple[str, int]] = ()
    shown: Sequence[tuple[int, float]] = ()


def tuned_arms(blocks: Sequence[BlockData]) -> tuple[TunedArm, ...]:
    """Every method of the blocks in which anything was tuned; empty when nothing was."""
    arms: list[TunedArm] = []
    for block in blocks:
        tuned = {cell.method: [run.tuned for run in cell.finetune.runs if run.tuned] for cell in block.cells.values()}
        for method, runs in tuned.items() if any(tuned.values()) else ():
            arm, curve = TunedArm(block.name, method, block.primary), best_of_k(runs, block.primary)
            if runs:
                arm = arm._replace(
                    trials=len(runs[0].trials),
                    failed=sum(trial.score is None for run in runs for trial in run.trials),
                    selection=runs[0].selection,
                    seconds=float(np.mean([run.seconds for run in runs])),
                    chosen=Counter(described(run.values) for run in runs).most_common(),
                    shown=[(k, value) for k, value in curve if k & (k - 1) == 0 or k == len(curve)],
                )
            arms.append(arm)
    return tuple(arms)


def best_of_k(tuned: Sequence[records.Tuned], metric: str) -> tuple[tuple[int, float], ...]:
    """Expected best of 1 to all trials; only up to the number that finished for every seed."""
    up = sign(metric)
    scores = [[up * trial.score for trial in run.trials if trial.score is not None] for run in tuned]
    curves = [expected_max_curve(values) for values in scores] if all(scores) else []
    return tuple((k, up * sum(values) / len(values)) for k, values in enumerate(zip(*curves), 1))


@dataclass(frozen=True)
class Cost:
    """Cost of a method, in total and relative to plain fine-tuning = 1 (None where it cannot be said).

    Attributes:
        means: quantity of a run's record -> its mean over the runs that finished.
        peak_memory_bytes: largest of all phases and seeds; None on a CPU.
        measured: seconds of all training (search included), over the seeds of both on the same kind of device.
        spread: smallest and largest of the seeds' own ratios.
    """

    declared: float | None
    means: Mapping[str, float | None]
    peak_memory_bytes: int | None
    measured: float | None = None
    spread: tuple[float, float] | None = None


def _mean(costs: Iterable[records.Cost], name: str) -> float | None:
    values = [float(value) for cost in costs if (value := getattr(cost, name)) is not None]
    return float(np.mean(values)) if values else None


def all_seconds(cost: records.Cost) -> float:
    """Of all phases: the steps of the last one, what it fits without steps, and the search (with its own fits)."""
    return sum(seconds or 0.0 for seconds in (cost.train_seconds, cost.fit_seconds, cost.search_seconds))


def declared(cell: CellData) -> float | None:
    return _mean((run.cost for run in cell.runs if run.ok), "declared_ratio")


def plain_cell(cells: Mapping[str, CellData], reference: str) -> CellData | None:
    """The cell of plain fine-tuning, whose cost is 1, one phase without regularisers; of several the reference."""
    plain = {
        name: cell
        for name, cell in cells.items()
        if cell.finetune.trains_encoder
        and len(cell.finetune.phases) == 1
        and not any(cell.finetune.regularisers.values())
        and declared(cell) == 1.0
    }
    return plain.get(reference) or next(iter(plain.values()), None)


def cost_of(cell: CellData, plain: CellData | None) -> Cost:
    """Cost of a cell; its ratio of seconds is over the seeds that ran to the end in both cells."""
    ok, base = (
        {run.seed: run.cost for run in data.runs if run.ok and run.cost.train_seconds is not None} if data else {}
        for data in (cell, plain)
    )
    environments = [run.environment or {} for data in (cell, plain) if data for run in data.finetune.runs]
    comparable = len({str(where.get("device")).split(":")[0] for where in environments}) == 1  # all cpu, or all cuda
    both = sorted(ok.keys() & base.keys()) if comparable else ()
    pairs = [(all_seconds(ok[seed]), all_seconds(base[seed])) for seed in both]
    ratios = [mine / theirs for mine, theirs in pairs if theirs]
    return Cost(
        declared(cell),
        {name: _mean(ok.values(), name) for name in records.Cost.model_fields},
        max((cost.peak_memory_bytes for cost in ok.values() if cost.peak_memory_bytes), default=None),
        sum(mine for mine, _ in pairs) / sum(theirs for _, theirs in pairs) if ratios else None,
        (min(ratios), max(ratios)) if len(ratios) > 1 else None,
    )


def overrides(own: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Values of the training protocol that differ, as ``name -> (shared, own)``; nested names are dotted."""
    a, b = ({dotted(path): value for path, value in leaves(one)} for one in (shared, own))
    # ``epoch_scores`` is switched off where there is nothing to score: no setting of the training.
    names = sorted((a.keys() | b.keys()) - {"epoch_scores"})
    return {name: (a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name)}
