"""regft from Python, in three calls: ``load`` a project, ``run`` a method on a task, read the ``results``.

>>> project = load("path/to/project")          # the folder with params.yaml
>>> project.run("hype_n", "cue_pair")          # every size and seed of the grid; finished runs are reused
>>> for score in project.results():
...     print(score.method, score.set, score.metric, score.mean, (score.low, score.high), score.per_seed)

It calls what the DVC stages call, on the same files, so the two may be mixed: ``dvc repro`` afterwards takes the
runs from the run store. Errors are those of ``regft_core.errors``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from regft_core.config.grid import Cell, cells
from regft_core.errors import RunFailed
from regft_core.plan.compute import compute_only
from regft_core.reporting import Report
from regft_core.reporting.read_grid import read_grid
from regft_core.reporting.write import build_report
from regft_core.results.work import Work
from regft_core.run.project import open_project

__all__ = ["Project", "Score", "load"]


@dataclass(frozen=True)
class Score:
    """One metric of one method on one set, over the seeds of the grid.

    Attributes:
        set: ``dev``, or the name of an out-of-distribution set.
        size: training rows, as in the grid (``"300"``, ``"full"``).
        primary: whether the task is judged by this metric.
        per_seed: score of every seed that ran to the end.
        mean: of those; None when no seed did.
        low, high: two-level bootstrap interval of the mean (``report.confidence``); None below two seeds.
        failed: seeds that did not run to the end, with the reason.
        verdicts: what the method is compared with -> the report's word for it; of the primary metric only.
        below_chance: whether the score is shown to be below a constant answer's; of the primary metric only.
    """

    method: str
    task: str
    size: str
    set: str
    metric: str
    primary: bool
    per_seed: dict[int, float]
    mean: float | None
    low: float | None
    high: float | None
    failed: dict[int, str] = field(default_factory=dict)
    verdicts: dict[str, str] = field(default_factory=dict)
    below_chance: bool = False


class Project:
    """A project folder. Its files are read at every call, so edits of the YAMLs take effect."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, method: str, task: str) -> list[Score]:
        """Train and evaluate every size and seed of a method on a task; returns their scores.

        Runs that are in the run store are not trained again; a killed run continues.

        Raises:
            ConfigError: the configuration is wrong, or a name is not listed in ``params.yaml``.
            DataError, ModelError, StoreError: what a stage needs cannot be read or written.
            RunFailed: a run ended with an error; the others are stored.
        """
        if failures := compute_only(self.root, "evaluate", [f"{method}/{task}"]):
            raise RunFailed("cells-failed", "\n".join(f"{cell}: {reason}" for cell, reason in failures.items()))
        project = open_project(self.root)
        return _scores(self._report(cell for cell in cells(project) if (cell.method, cell.task) == (method, task)))

    def results(self) -> list[Score]:
        """Scores of every cell of the grid that was run; the same numbers as in ``reports/results.json``.

        Raises DataError when a cell was run for other seeds than those of the grid, or is damaged.
        """
        return _scores(self._report(cells(open_project(self.root))))

    def _report(self, wanted: Iterable[Cell]) -> Report:
        project = open_project(self.root)
        params = project.params
        done = [cell for cell in wanted if Work(self.root).result_file(cell).is_file()]
        searching = [name for name, method in project.methods.items() if method.earlier]
        data = read_grid(self.root, done, params.grid.seeds, searching)
        shared = params.training.model_dump(mode="json")
        on_tasks = {task: project.shared(task).model_dump(mode="json") for task in params.grid.tasks}
        return build_report(data, params.grid.seeds, params.report, project.methods, shared, on_tasks)


def load(path: Path | str = ".") -> Project:
    """Open the project in a folder, checked as a whole.

    Raises ConfigError with every mistake of every file.
    """
    root = Path(path).resolve()
    open_project(root)
    return Project(root)


def _scores(report: Report) -> list[Score]:
    return [
        Score(
            method=row.method,
            task=block.task,
            size=block.size,
            set=name,
            metric=metric,
            primary=metric == block.primary,
            per_seed=dict(zip(score.estimate.seeds, score.estimate.values, strict=True)),
            mean=score.estimate.mean if score.estimate.n else None,
            low=score.interval[0] if score.interval else None,
            high=score.interval[1] if score.interval else None,
            failed=dict(row.failed),
            verdicts={c.other: c.verdict.word for c in row.comparisons if (c.set, c.metric) == (name, metric)},
            below_chance=score.below_chance,
        )
        for block in report.blocks
        for row in block.rows
        for name, metrics in row.scores.items()
        for metric, score in metrics.items()
    ]
