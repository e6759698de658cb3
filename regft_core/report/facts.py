"""Facts beside the scores: data, token lengths, tuning, what methods logged."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from regft_core.data import lengths
from regft_core.data.splits import split_line
from regft_core.kinds import find
from regft_core.report.formatting import sign
from regft_core.report.read_grid import BlockData
from regft_core.runs.records import Tuned
from regft_core.settings.provenance import described
from regft_core.statistics.learning_curve import expected_max_curve

#: Arguments of a git command that prints something where files of the project differ from its commit.
CHANGED = ("status", "--porcelain", "--untracked-files=no", "--", ".")


def data_facts(blocks: Sequence[BlockData]) -> list[dict[str, Any]]:
    """Rows of the table about data: one per set of a task, and the draws of each size."""
    by_task: dict[str, list[BlockData]] = {}
    for block in blocks:
        by_task.setdefault(block.task, []).append(block)
    return [
        {
            "task": task,
            "described": own[0].described,
            "validation": split_line(own[0].described.model_dump()),
            "draws": [_draws(block) for block in own],
            "max_length": own[0].lengths["max_length"],
            "windows": own[0].lengths.get("windows", 1),
            # One line per set and way of reading.
            "lengths": [
                {"set": name, "pairs": mode if "separately" in measured else ""}
                | {"share": lengths.share(measured[mode]["cut"])}
                | {"rows": measured["rows"], "measured": measured["measured"], **measured[mode]}
                for name, measured in lengths.in_order(own[0].lengths["sets"]).items()
                for mode in ("jointly", "separately")
                if mode in measured
            ],
        }
        for task, own in by_task.items()
    ]


def _draws(block: BlockData) -> dict[str, Any]:
    entries = list(block.subsample.seeds.values())
    counts = [entry.label_counts or {} for entry in entries]
    labels = {label: [count[label] for count in counts] for label in (counts[0] if counts else ())}
    overlap = {name: max(e.duplicates_with[name] for e in entries) for name in entries[0].duplicates_with}
    return {
        "size": block.size,
        "n": block.subsample.n,
        "stratified": block.subsample.stratified,
        "labels": {label: (min(values), max(values)) for label, values in labels.items()},
        "overlap": {name: count for name, count in overlap.items() if count},
    }


def row_counts(block: BlockData) -> list[tuple[str, dict[str, float]]]:
    """Title and counts of what is drawn as bars: validation and training rows by label, or by range of values."""
    gold, kind, labels = block.gold.get("dev", np.empty(0)), find(block.described.kind), block.described.labels
    counts = kind.label_counts(gold.tolist(), labels or ())
    if counts is None:  # values
        rows, ends = np.histogram(gold, bins=5)
        counts = {f"{a:.3g} to {b:.3g}": int(n) for n, a, b in zip(rows, ends, ends[1:])}
    drawn = {label: (low + high) / 2 for label, (low, high) in _draws(block)["labels"].items()}
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


def distinct(values: Iterable[Any]) -> list[Any]:
    """The different values, but for empty ones, in order of appearance."""
    seen: list[Any] = []
    for value in values:
        if value and value not in seen:
            seen.append(value)
    return seen


# -------------------------------------------------------------------------------------- token lengths


def lengths_by_task(blocks: Sequence[BlockData]) -> dict[str, tuple[Mapping[str, Any], list[str]]]:
    """Task -> its lengths, and how the methods of all its blocks read pairs."""
    found: dict[str, tuple[Mapping[str, Any], list[str]]] = {}
    for block in blocks:
        modes = found[block.task][1] if block.task in found else []
        found[block.task] = (block.lengths, list(dict.fromkeys([*modes, *block.modes])))
    return found


def truncated(blocks: Sequence[BlockData]) -> tuple[str, ...]:
    """One sentence per task: the share of cut rows of the training split and of the worst evaluation set."""
    texts = []
    for task, (found, modes) in lengths_by_task(blocks).items():
        sets = {name: lengths.in_use(measured, modes) for name, measured in lengths.in_order(found["sets"]).items()}
        train = max(sets["train"].values(), key=lambda reading: reading["cut"])
        cut = {name: max(reading["cut"] for reading in readings.values()) for name, readings in sets.items()}
        worst = max((name for name in cut if name != "train"), key=lambda name: cut[name])
        texts.append(
            f"{task}: {lengths.setting(found)} cuts {lengths.share(train['cut'])} of the training rows "
            f"(median {train['median']} tokens, 95% have at most {train['p95']}, longest {train['longest']}) "
            f"and {lengths.share(cut[worst])} of {worst}."
        )
    return tuple(texts)


# --------------------------------------------------------------------------------------------- tuning


@dataclass(frozen=True)
class TunedArm:
    """The trials of one arm in one block."""

    block: str
    method: str
    metric: str
    #: Trials of every seed; 0 for an arm of which nothing was tuned.
    trials: int = 0
    failed: int = 0
    #: ``split`` or ``dev_as_published``; empty without trials.
    selection: str = ""
    per: str = ""
    #: (settings in words, seeds that took them), the most frequent first.
    chosen: tuple[tuple[str, int], ...] = ()
    #: (k, expected best score of k trials, mean over seeds), without bias; on the rows that chose.
    curve: tuple[tuple[int, float], ...] = ()
    #: Mean over seeds of the seconds that all trials took.
    seconds: float = 0.0

    @property
    def shown(self) -> list[tuple[int, float]]:
        """Of ``curve`` what a table has room for: 1, 2, 4, ... and all trials."""
        return [(k, value) for k, value in self.curve if k & (k - 1) == 0 or k == len(self.curve)]


def tuned_arms(blocks: Sequence[BlockData]) -> tuple[TunedArm, ...]:
    """Every method of the blocks in which anything was tuned; empty when nothing was."""
    arms: list[TunedArm] = []
    for block in blocks:
        tuned = {cell.method: [run.tuned for run in cell.finetune.runs if run.tuned] for cell in block.cells.values()}
        if any(tuned.values()):
            arms += [_tuned(block, method, runs) for method, runs in tuned.items()]
    return tuple(arms)


def _tuned(block: BlockData, method: str, runs: Sequence[Tuned]) -> TunedArm:
    if not runs:
        return TunedArm(block.name, method, block.primary)
    return TunedArm(
        block.name,
        method,
        block.primary,
        trials=len(runs[0].trials),
        failed=sum(trial.score is None for run in runs for trial in run.trials),
        selection=runs[0].selection,
        per=runs[0].per,
        chosen=tuple(Counter(described(run.values) for run in runs).most_common()),
        curve=best_of_k(runs, block.primary),
        seconds=sum(run.seconds for run in runs) / len(runs),
    )


def best_of_k(tuned: Sequence[Tuned], metric: str) -> tuple[tuple[int, float], ...]:
    """Expected best of 1 to all trials; only up to the number that finished for every seed."""
    up = sign(metric)
    scores = [[up * trial.score for trial in run.trials if trial.score is not None] for run in tuned]
    curves = [expected_max_curve(values) for values in scores] if all(scores) else []
    return tuple((k, up * sum(values) / len(values)) for k, values in enumerate(zip(*curves), 1))
