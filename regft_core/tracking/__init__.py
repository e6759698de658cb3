"""Hands what was run to the trackers of a project. The command ``regft ui`` shows it in MLflow."""

from __future__ import annotations

from collections.abc import Sequence

from regft_core.catalogue import TRACKERS
from regft_core.errors import RegftError
from regft_core.grid.cell_keys import read_failures
from regft_core.settings.project import Project, cells
from regft_core.settings.yaml_paths import store_path
from regft_core.tracking.entries import Entry, read_grid, read_report

MLFLOW = ("mlflow",)


def sync(project: Project, trackers: Sequence[str] | None = None) -> str:
    """Log the runs of the grid, and the report, to the project's trackers, or to these; return a line of each.

    Failed cells are left out: what ``work/`` has of them may be of an earlier configuration. RegftError after all.
    """
    root, params = project.root, project.params
    lines, failed = list[str](), dict[str, Exception]()

    def read() -> list[Entry]:
        without = read_failures(root)
        done = [cell for cell in cells(project) if cell.directory not in without]
        entries = read_grid(root.resolve(), done, params.grid.seeds, store_path(root, params))
        return [*entries, *read_report(root.resolve())]

    for name in params.trackers if trackers is None else trackers:
        try:
            lines.append(str(TRACKERS.find(name).log(root, read)))
        except Exception as error:  # each service has its own errors, and stops no other
            failed[name] = error
    if failed:
        [first, *others] = failed.values()
        if isinstance(first, RegftError) and not others:  # with its own code and hint
            raise first
        for name, raised in failed.items():
            reason = (str(raised).strip().splitlines() or [""])[0]
            lines.append(f"the tracker '{name}' ended with {type(raised).__name__}: {reason}")
        text = "\n".join(lines)
        raise RegftError("tracker-failed", f"{text}\n    -> mend the cause, then `regft sync`")
    return "\n".join(lines)
