"""Hands what was run to the trackers of a project, and an exported model to MLflow's registry when somebody asks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from regft_core.catalogue import TRACKERS
from regft_core.disk.canonical import sha256_file, sha256_text
from regft_core.disk.files import atomic_directory
from regft_core.disk.reading import read_json
from regft_core.errors import RegftError
from regft_core.runs.opened_project import open_project
from regft_core.settings.project import Cell, cells
from regft_core.settings.yaml_paths import store_path
from regft_core.tracking.entries import Entry, read_grid, read_report
from regft_core.tracking.trackers.mlflow import KEYS, KIND, opened

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
    store: Path | None = None,
    trackers: Sequence[str] = MLFLOW,
) -> str:
    """Log the runs of the grid's cells, and the report, to each of the trackers; return a line of each.

    Args:
        root: project root; its ``work/`` and ``reports/`` are read.
        cells, seeds: the grid.
        store: the run store; costs and tensors of phases are logged from there.

    Raises DataError where a file of ``work/`` is not what it should be, RegftError where trackers fail, after all.
    """

    def read() -> list[Entry]:
        report = read_report(root.resolve())
        return [*read_grid(root.resolve(), listed, seeds, store), *([report] if report else [])]

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


def register(root: Path, folder: Path, task: str, tags: Mapping[str, str]) -> int:
    """Register a copy of the export ``folder`` as a version of the model ``task``; return its number.

    The copy is below ``mlartifacts/models``: a later export to the same folder leaves it as it is. A folder with the
    same content keeps its version. Sync first: the version then names the run in MLflow that was exported.

    Raises StoreError where the database or the copy cannot be written.
    """
    root, folder = root.resolve(), folder.resolve()
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    content = sha256_text("\n".join(f"{path.relative_to(folder)} {sha256_file(path)}" for path in files))[:16]
    key = read_json(folder / "regft.json", dict).get("run_key") or ""
    with opened(root) as tracker:
        client, copy = tracker.client, tracker.artifacts / "models" / task / content
        if not client.search_registered_models(f"name = '{task}'"):
            client.create_registered_model(task, description=f"Exported models of the task {task}.")
        for version in client.search_model_versions(f"name = '{task}'"):
            if version.tags.get("regft.content") == content:
                return int(version.version)
        with atomic_directory(copy) as target:
            shutil.copytree(folder, target, dirs_exist_ok=True)
        # Methods that amount to the same share a key; so do evaluations of one run, of which the current one is named.
        wanted = {KIND: "run", KEYS: json.dumps({tags.get("seed", ""): key}), "method": tags.get("method")}
        every = [run for run in tracker.runs.values() if wanted.items() <= {**run.data.params, **run.data.tags}.items()]
        every.sort(key=lambda run: "current" not in run.data.tags)
        card = (folder / "README.md").read_text(encoding="utf-8").split("\n---\n", 1)[-1].strip()
        made = client.create_model_version(
            task,
            copy.as_uri(),
            run_id=every[0].info.run_id if every else None,
            tags={**tags, "regft.content": content, "regft.export": folder.name, "regft.key": key},
            description=card[:5000],  # without the metadata
        )
    return int(made.version)
