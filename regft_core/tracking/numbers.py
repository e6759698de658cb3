"""Numbers of cells and runs for MLflow: parameters, curves, scores, and the digests of their rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from regft_core.disk.canonical import sha256_text
from regft_core.runs.records import RunRecord
from regft_core.runs.work import Work
from regft_core.settings.grid import Cell

#: Characters of a parameter that MLflow takes, and of a dataset's digest.
LONGEST, DIGEST = 6000, 32
#: Name, digest, context (``training`` or ``evaluation``), folder and number of rows.
Dataset = tuple[str, str, str, str, int | None]
#: (name, value, step) of each point of a phase's metrics.
Curve = list[tuple[str, float, int]]


class Point(NamedTuple):
    """One number of a metric; ``time`` is in milliseconds since 1970."""

    name: str
    value: float
    step: int
    time: int


def parameters(cell: Cell, settings: Mapping[str, Any]) -> dict[str, str]:
    """Every setting of a cell by its path (``phases.search.repeat.times``); what is not set is left out."""
    flat = {"method": cell.method, "task": cell.task, "size": cell.size, **_flat(settings, "")}
    texts = {name: value if isinstance(value, str) and value else json.dumps(value) for name, value in flat.items()}
    return {
        name: text if len(text) <= LONGEST else f"{text[: LONGEST - 80]}... sha256 {sha256_text(text)}"
        for name, text in texts.items()
    }


def _flat(value: Any, prefix: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {} if value is None else {prefix: value}
    if prefix and not value:
        return {prefix: {}}  # a regulariser without options is there all the same
    items = ((f"{prefix}.{key}" if prefix else str(key), inner) for key, inner in value.items())
    return {name: leaf for path, inner in items for name, leaf in _flat(inner, path).items()}


def read_curves(work: Work, cell: Cell, runs: Sequence[RunRecord]) -> dict[int, dict[str, Curve]]:
    """Seed -> phase -> its curves, what its methods logged, and the scores of its epochs."""
    curves: dict[int, dict[str, Curve]] = {run.seed: {} for run in runs}

    def add(seed: int, phase: str, name: str, step: int, value: float | None) -> None:
        if value is not None:
            curves[seed].setdefault(phase, []).append((name, value, step))

    stages, seeds, names = ("search", "finetune"), list(curves), ("loss", "learning_rate", "gradient_norm")
    for seed, phase, step, *values in (point for stage in stages for point in work.curves(stage, cell, seeds) or ()):
        for name, value in zip(names, values, strict=True):
            add(seed, phase, name, step, value)
    for logged in (logged for stage in stages for logged in work.logged(stage, cell, seeds)):
        add(logged.seed, logged.phase, logged.name, logged.step, logged.value)
    for run, epochs in ((run, run.epoch_scores) for run in runs if run.epoch_scores is not None):
        for score in epochs.scores:
            add(run.seed, score.phase, f"epoch.{score.rows}.{epochs.metric}", score.step, score.score)
    return curves


def scores_of(run: RunRecord, evaluation: RunRecord | None, primary: str) -> dict[str, float]:
    """Final numbers of one run; ``primary`` is the task's main metric on the development set."""
    sets = evaluation.sets if evaluation else {}
    scores: dict[str, float | None] = {"primary": sets["dev"].metrics.get(primary) if "dev" in sets else None}
    for name, judged in sets.items():
        scores |= {f"{name}.{metric}": value for metric, value in judged.metrics.items()}
        scores |= {f"{name}.{metric}.majority": value for metric, value in judged.majority.items()}
    if evaluation is not None and evaluation.ok:
        scores["collapsed"] = int(bool(evaluation.collapsed))
    cost = run.cost.plain() | (evaluation.cost.plain() if evaluation else {})
    scores |= {f"cost.{name}": value for name, value in cost.items()}
    scores |= {"final_loss": run.final_loss, "steps": run.steps}
    return {name: float(value) for name, value in scores.items() if value is not None}


def drawn_rows(work: Work, cell: Cell, seed: int) -> Iterator[Dataset]:
    """The training rows of one seed."""
    name = f"{cell.task}-{cell.size}"
    if work.subsample_file(cell.task, str(cell.size)).is_file():
        subsample = work.subsample(cell.task, str(cell.size))
        if (drawn := subsample.seeds.get(str(seed))) is not None:
            yield name, drawn.sha256[:DIGEST], "training", f"work/subsamples/{name}", subsample.n


def evaluated_sets(work: Work, cell: Cell, names: Iterable[str]) -> Iterator[Dataset]:
    """Whole sets of the task: ``train``, from which seeds draw, and those that are evaluated on."""
    if not work.task_file(cell.task).is_file():
        return
    task = work.task(cell.task)
    for name in names:
        digest = task.content.get("folds" if name == "dev" and task.folded else name)
        if digest is not None:
            rows = task.sets[name].n if name in task.sets else task.counts.get(name)
            context = "training" if name == "train" else "evaluation"
            yield f"{cell.task} {name}", digest[:DIGEST], context, f"work/datasets/{cell.task}", rows
