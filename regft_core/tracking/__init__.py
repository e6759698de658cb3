"""Hands what was run to the trackers of a project. The command ``regft ui`` shows it in MLflow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from regft_core.catalogue import TRACKERS
from regft_core.errors import RegftError
from regft_core.grid.cell_keys import read_failures
from regft_core.runs.opened_project import open_project
from regft_core.settings.project import Cell, cells
from regft_core.settings.yaml_paths import store_path
from regft_core.tracking.entries import Entry, read_grid, read_report

MLFLOW = ("mlflow",)


def sync_project(root: Path, trackers: Sequence[str] | None = None) -> str:
    """Log the runs of the project's grid to its trackers, or to these; return a line of each for the screen."""
    project = open_project(root)
    names = project.params.trackers if trackers is None else trackers
    return sync(root, cells(project), project.params.grid.seeds, store_path(root, project.params), names)


def sync(
    root: Path,
    cells: Iterable[Cell],
    seeds: Sequence[int],
    store: Path,
    trackers: Sequence[str] = MLFLOW,
) -> str:
    """Log the runs of the grid's cells, and the report, to each of the trackers; return a line of each.

    Cells that failed are left out: what ``work/`` still has of them is of an earlier configuration.

    Args:
        root: project root; its ``work/`` and ``reports/`` are read.
        cells, seeds: the grid.
        store: the run store; costs and tensors of phases are logged from there.

    Raises DataError where a file of ``work/`` is not what it should be, RegftError where trackers fail, after all.
    """

    def read() -> list[Entry]:
        failed = read_failures(root)
        done = [cell for cell in listed if cell.directory not in failed]
        return [*read_grid(root.resolve(), done, seeds, store), *read_report(root.resolve())]

    listed = list(cells)
    lines, failed = list[str](), list[str]()
    for name in trackers:
        try:
            lines.append(str(TRACKERS.find(name).log(root, read)))
        except RegftError:
            raise
        except Exception as error:  # each service has its own errors, and stops no other
            reason = (str(error).strip().splitlines() or [""])[0]
            failed.append(f"the tracker '{name}' ended with {type(error).__name__}: {reason}")
    if failed:
        text = "\n".join([*lines, *failed])
        raise RegftError("tracker-failed", f"{text}\n    -> mend the cause, then `regft sync`")
    return "\n".join(lines)
