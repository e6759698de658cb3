"""Numbers, tables and figures of cells and runs for MLflow: parameters, curves, scores, digests of rows, tensors."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from regft_core.disk.canonical import sha256_text
from regft_core.report.facts import all_seconds
from regft_core.report.formatting import as_shown
from regft_core.runs.records import RunRecord, Tuned
from regft_core.runs.work import CURVE, CURVES, LOGGED, Work
from regft_core.settings.document import dotted, leaves
from regft_core.settings.project import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Characters of a parameter that MLflow takes, and of a dataset's digest.
LONGEST, DIGEST = 6000, 32
#: What MLflow has in no name and ``label_values`` of a task may have (``+``), so it becomes its code point (``_x2b_``).
_FOREIGN = re.compile(r"[^\w.\- :]")
#: Metrics with a value at every step; MLflow's page has them in a section of this name, before the others.
SECTION = "curves/"
#: Name, digest, context (``training`` or ``evaluation``), folder and number of rows.
Dataset = tuple[str, str, str, str, int | None]


class Point(NamedTuple):
    name: str
    value: float
    step: int


def parameters(cell: Cell, settings: Mapping[str, Any]) -> dict[str, str]:
    """Every setting of a cell by its path (``phases.search.repeat.times``); what is not set is left out."""
    flat = {"method": cell.method, "task": cell.task, "size": cell.size}
    for path, value in leaves(settings):
        if value is not None:
            flat[_FOREIGN.sub(lambda sign: f"_x{ord(sign[0]):x}_", dotted(path))] = value
    texts = {name: value if isinstance(value, str) and value else json.dumps(value) for name, value in flat.items()}
    return {
        name: text if len(text) <= LONGEST else f"{text[: LONGEST - 80]}... sha256 {sha256_text(text)}"
        for name, text in texts.items()
    }


def read_curves(
    work: Work, cell: Cell, runs: Sequence[RunRecord], searched: Collection[int]
) -> dict[int, dict[str, list[Point]]]:
    """Seed -> phase -> its curves, what its methods logged, and the scores of its epochs, as the page shows them.

    ``searched``: seeds whose search is that of the run.
    """
    curves: dict[int, dict[str, list[Point]]] = {run.seed: {} for run in runs}

    def add(seed: int, phase: str, name: str, step: int, value: float | None) -> None:
        if value is not None and math.isfinite(value):
            curves[seed].setdefault(phase, []).append(Point(SECTION + name, value, step))

    for seed, phase, step, _, *values in work.steps(CURVES, cell, list(curves), searched).itertuples(index=False):
        for name, value in zip(CURVE, values, strict=True):
            add(seed, phase, name, step, value)
    for seed, phase, step, name, value in work.steps(LOGGED, cell, list(curves), searched).itertuples(index=False):
        add(seed, phase, name, step, value)
    for run, epochs in ((run, run.epoch_scores) for run in runs if run.epoch_scores is not None):
        for score in epochs.scores:
            value = None if score.score is None else as_shown(score.score, epochs.metric)
            add(run.seed, score.phase, f"{score.rows}.{epochs.metric}", score.step, value)
    return curves


def scores_of(evaluation: RunRecord | None, primary: str) -> dict[str, float]:
    """Scores of a run, as the page shows them; ``score`` is the primary metric on the validation set."""
    sets = evaluation.sets.items() if evaluation is not None else ()
    shown = {(metric, place): as_shown(v, metric) for place, of in sets for metric, v in of.metrics.items()}
    score = {"score": shown[primary, "dev"]} if (primary, "dev") in shown else {}
    names = sorted(shown, key=lambda name: name[0] != primary)
    return score | {f"{place}.{metric}": shown[metric, place] for metric, place in names}


def costs_of(run: RunRecord, evaluation: RunRecord | None) -> dict[str, float]:
    """Passes of all phases (plain fine-tuning = 1), seconds of all training, and on a GPU the peak memory."""
    cost = run.cost.model_copy(update=evaluation.cost.plain() if evaluation else {})
    memory = (cost.peak_memory_bytes or 0) / 2**30 or None
    costs = {"cost": cost.declared_ratio, "seconds": all_seconds(cost), "peak_memory_gib": memory}
    return {name: round(float(value), 2) for name, value in costs.items() if value is not None}


def datasets(work: Work, cell: Cell, names: Iterable[str], seed: int) -> Iterator[Dataset]:
    """The rows of a seed, then the evaluated sets of the task."""
    if work.subsample_file(cell.task, str(cell.size)).is_file():
        subsample = work.subsample(cell.task, str(cell.size))
        if (drawn := subsample.seeds.get(str(seed))) is not None:
            folder = f"work/subsamples/{cell.task}/{cell.size}"
            yield f"{cell.task}-{cell.size}", drawn.sha256[:DIGEST], "training", folder, subsample.n
    if work.task_file(cell.task).is_file():
        task = work.task(cell.task)
        for name in names:
            if digest := task.content.get("folds" if name == "dev" and task.folded else name):
                rows = task.sets[name].n if name in task.sets else None
                yield f"{cell.task} {name}", digest[:DIGEST], "evaluation", f"work/datasets/{cell.task}", rows


#: Quantiles and the histogram are of at most as many values of each tensor, evenly spaced.
_SAMPLED = 100_000


def tensor_artifacts(files: Iterable[Path]) -> dict[str, pd.DataFrame | Figure]:
    """Summarise the tensors of each file of a stored run: a row for each tensor, and a figure of all values."""
    from matplotlib.figure import Figure
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    artifacts: dict[str, pd.DataFrame | Figure] = {}
    for file in files:
        try:
            tensors = sorted(load_file(file).items())
        except (OSError, SafetensorError, TypeError):  # pruned, or of a type that numpy lacks (bf16)
            continue
        rows, samples = [], []
        for name, values in tensors:
            sample = values.ravel()[:: values.size // _SAMPLED + 1].astype(float)  # masks, too
            sample = sample[np.isfinite(sample)]
            if not sample.size:
                continue
            shape = "x".join(map(str, values.shape)) or "1"
            quantiles = zip(("min", "q05", "median", "q95", "max"), np.quantile(sample, [0, 0.05, 0.5, 0.95, 1]))
            rows.append({"tensor": name, "shape": shape, "mean": sample.mean(), "std": sample.std(), **dict(quantiles)})
            samples.append(sample)
        if not samples:
            continue
        figure = Figure(figsize=(6, 4), layout="constrained")
        axis = figure.subplots()
        axis.hist(np.concatenate(samples), bins=50)
        axis.set(title=f"{file.stem}: all values", xlabel="value", ylabel="count", yscale="log")
        artifacts |= {f"tensors/{file.stem}.json": pd.DataFrame(rows), f"tensors/{file.stem}.png": figure}
    return artifacts


def soup_table(soup: Mapping[str, Any]) -> pd.DataFrame:
    """List the members of a greedy soup: their own scores, and the place at which each was added (0: left out)."""
    members = range(len(soup["scores"]))
    places = [soup["chosen"].index(member) + 1 if member in soup["chosen"] else 0 for member in members]
    return pd.DataFrame({"member": members, "score": soup["scores"], "added": places})


def trials_table(tuned: Tuned) -> pd.DataFrame:
    columns = {"trial", "score", "seconds", "steps", "error"}
    rows = [{**trial.values, **trial.model_dump(include=columns)} for trial in tuned.trials]
    return pd.DataFrame(rows).assign(chosen=[trial.trial == tuned.chosen for trial in tuned.trials])
