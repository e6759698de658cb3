"""regft from Python, in three calls: ``load`` a project, ``run`` a method on a task, read the ``results``.

>>> project = load("path/to/project")          # the folder with params.yaml
>>> project.run("hype_n", "cue_pair")          # every size and seed of the grid; finished runs are reused
>>> results = project.results()                # a data frame; a notebook shows it as the leaderboard
>>> results[results["primary"] & (results["set"] == "dev")][["method", "mean", "low", "high", "vs_control"]]
>>> results.verdicts                           # a data frame, too: one row for each pair of methods on each set

It calls what the DVC stages call, on the same files, so the two may be mixed: ``dvc repro`` afterwards takes the
runs from the run store. Errors are those of ``regft_core.errors``.

The package is typed (``py.typed``). What ``__all__`` lists here, the hooks of ``hooks.base`` and the codes of errors
keep their names and meaning within a version; the changelog names every change of them.
"""

from __future__ import annotations

from pathlib import Path

from regft_core.errors import RunFailed
from regft_core.grid.compute import compute_only
from regft_core.grid.keys import read_failures
from regft_core.report import project_report
from regft_core.report.tables import Results
from regft_core.runs.project import open_project
from regft_core.runs.work import Work
from regft_core.settings.grid import cells

__all__ = ["Project", "Results", "load"]


class Project:
    """A project folder. Its files are read at every call, so edits of the YAMLs take effect."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, method: str, task: str) -> None:
        """Train and evaluate every size and seed of a method on a task.

        Runs that are in the run store are not trained again; a killed run continues.

        Raises:
            ConfigError: the configuration is wrong, or a name is not listed in ``params.yaml``.
            DataError, ModelError, StoreError: what a stage needs cannot be read or written.
            RunFailed: a run ended with an error; the others are stored.
        """
        if failures := compute_only(self.root, "evaluate", [f"{method}/{task}"]):
            raise RunFailed("cells-failed", "\n".join(f"{cell}: {reason}" for cell, reason in failures.items()))

    def results(self) -> Results:
        """Scores and verdicts of every cell of the grid that was run, as ``regft run`` would report them now.

        A call is a look at the results: seeds that are added afterwards widen later intervals, as in the report.

        Raises DataError when a cell was run for other seeds than those of the grid, or is damaged.
        """
        project, work = open_project(self.root), Work(self.root)
        failures = read_failures(self.root)
        done = [one for one in cells(project) if one.directory not in failures and work.result_file(one).is_file()]
        return Results.of(project_report(project, done, failures, out=None))


def load(path: Path | str = ".") -> Project:
    """Open the project in a folder, checked as a whole.

    Raises ConfigError with every mistake of every file.
    """
    root = Path(path).resolve()
    open_project(root)
    return Project(root)
