"""Projects on workers of other machines: what their jobs read is published by content, and found or fetched there.

The process that starts the jobs publishes (``carry``): the YAML files, the data files that they name, the prepared
rows and subsamples of the jobs' tasks, rows of other tasks, and the encoder's files. With a job go hashes and places
only. A worker (``run_where_found``) uses the project at the path it was started from when it has the published bytes
(a shared file system), else a copy that it makes from what was published. A copy gives the same keys: no path is in
a key.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from regft_core.catalogue import OWN
from regft_core.errors import DataError, RegftError
from regft_core.evaluate.analyses import tasks_read
from regft_core.grid.bundle import files_of, materialise, publish
from regft_core.grid.shared_files import ObjectStorage, Place, SharedFolder
from regft_core.io.file_states import content_sha256
from regft_core.io.host_cache import cache_folder
from regft_core.io.reading import read_json
from regft_core.models.source import ModelSource, resolve_model
from regft_core.models.source_files import TOKENIZER_FILES
from regft_core.runs.prepared_rows import task_files, training_rows
from regft_core.runs.project import open_project
from regft_core.runs.store.remote import Remote
from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.method import other_tasks
from regft_core.settings.checks.sources import file_name, file_of
from regft_core.settings.copies import ENCODER, ROWS, shipped_encoder
from regft_core.settings.files import CONTAMINATION, FOLDERS
from regft_core.settings.project import Project
from regft_core.settings.store_path import project_root, store_path

#: Below the run store, or ``store.remote``.
FOLDER = "inputs"
#: Files of a prepared task that phases of other tasks read, where they are there.
_ROWS_OF_OTHERS = ("task.json", "train.jsonl", "dev.jsonl", "groups.json")
R = TypeVar("R")


class RunJob(Protocol):
    """One run as its job names it; ``job.Job``."""

    @property
    def root(self) -> str:
        """Folder of the project."""

    @property
    def method(self) -> str:
        """Name of the method."""

    @property
    def task(self) -> str:
        """Name of the task."""

    @property
    def size(self) -> str:
        """Training rows, or ``full``."""


@dataclass(frozen=True)
class Shipped:
    """Where the workers of a call find the project of their jobs.

    Attributes:
        bundle: SHA-256 of the list of what was published; None when there is no place for it.
        remote: ``store.remote``, which then is that place.
        store: the run store's folder, when it lies outside of the project; the place without a remote.
    """

    bundle: str | None = None
    remote: str | None = None
    store: str | None = None

    def place(self) -> Place:
        """Where it was published."""
        if self.remote is not None:
            return ObjectStorage(Remote(self.remote), FOLDER)
        assert self.store is not None
        return SharedFolder(Path(self.store) / FOLDER)

    def store_here(self) -> str:
        """The run store of a copy on this host: the shared one, or one for the runs of this remote storage."""
        if self.store is not None:
            return self.store
        assert self.remote is not None
        return str(cache_folder() / "stores" / hashlib.sha256(self.remote.encode()).hexdigest()[:16])


def encoder_source(encoder: EncoderConfig, root: Path) -> ModelSource:
    """``resolve_model``; in a copy the encoder that was published with it, whatever its name stands for."""
    shipped = shipped_encoder(root)
    if shipped is None:
        return resolve_model(encoder, root)
    there = encoder.model_copy(update={"name": str(shipped.absolute()), "revision": None})
    return replace(resolve_model(there, root), name=encoder.name, revision=encoder.revision)


# ------------------------------------------------------------------------------------- where jobs are started


def shared_store(project: Project) -> Path | None:
    """The run store's folder when it lies outside of the project, where other hosts may see it; else None."""
    store = store_path(project.root, project.params).absolute()
    store, home = Path(os.path.normpath(store)), project_root(project.root).absolute()
    return None if store.is_relative_to(Path(os.path.normpath(home))) else store


def carry(project: Project, jobs: Sequence[RunJob]) -> Shipped:
    """Publish what the jobs read, in ``store.remote`` or else the shared store; nothing where there is neither.

    Raises as ``bundle.publish``, and DataError when the rows of another task cannot be made.
    """
    store = shared_store(project)
    shipped = Shipped(None, project.params.store.remote, None if store is None else str(store))
    if shipped.remote is None and store is None:
        return shipped
    return replace(shipped, bundle=publish(shipped.place(), files_for(project, jobs), content_sha256))


def files_for(project: Project, jobs: Sequence[RunJob]) -> dict[str, Path]:
    """Name in a copy -> file, of everything that the jobs read."""
    root = project.root
    read = [root / "params.yaml", root / CONTAMINATION]
    read += [path for folder in FOLDERS for path in sorted((root / folder).glob("*.yaml"))]
    found = {name: root / read_from.file for name, read_from in project.documents.items()}  # shipped ones, too
    found |= {path.relative_to(root).as_posix(): path for path in read}
    for folder in OWN:  # own code
        code = _below(root / folder, root)
        found |= {name: path for name, path in code.items() if "__pycache__" not in path.parts}
    for task in project.tasks:
        found |= {file_name(file): file_of(root, file) for file in task_files(project, task)}
    for task in sorted({job.task for job in jobs}):
        found |= _below(root / "work" / "datasets" / task, root)
    for task, size in sorted({(job.task, str(job.size)) for job in jobs}):
        found |= _below(root / "work" / "subsamples" / task / size, root)
    store = store_path(root, project.params)
    for other in sorted(set(_other_tasks(project, jobs))):
        rows = training_rows(project, other, store)
        found |= {f"{ROWS}/{rows.name}/{name}": rows / name for name in _ROWS_OF_OTHERS}
    encoder = resolve_model(project.params.model, root).path
    found |= {f"{ENCODER}/{path.name}": path for path in _encoder_files(encoder)}
    return {name: path for name, path in found.items() if path.is_file()}


def _below(folder: Path, root: Path) -> dict[str, Path]:
    return {path.relative_to(root).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}


def _other_tasks(project: Project, jobs: Sequence[RunJob]) -> Iterator[str]:
    """Tasks beside their own whose rows a phase of the jobs, or an evaluation, reads."""
    yield from other_tasks(project.method(*cell) for cell in {(job.method, job.task) for job in jobs})
    yield from tasks_read(project.params)


def _encoder_files(folder: Path) -> list[Path]:
    """The files of an encoder's folder that its hashes cover; the others are not read."""
    weights, index = [folder / "model.safetensors"], folder / "model.safetensors.index.json"
    if not weights[0].is_file() and index.is_file():
        weights = [index, *(folder / name for name in sorted(set(read_json(index)["weight_map"].values())))]
    return [folder / "config.json", *weights, *(folder / name for name in TOKENIZER_FILES)]


# ------------------------------------------------------------------------------------- where a job runs

#: (project, shipped) -> whether it is at its path on this host, as this process has found.
_found: dict[tuple[str, Shipped], bool] = {}


def run_where_found(function: Callable[..., R], shipped: Shipped, job: Any, *, device: str) -> R:
    """``function`` of the job, in the project at its path if that is here, else in a copy.

    Raises:
        DataError: it is not here, and was not published.
        StoreError: what was published cannot be fetched, or is damaged.
    """
    at = job.root, shipped
    if at not in _found:
        _found[at] = _is_here(Path(job.root), shipped)
    if not _found[at]:
        assert shipped.bundle is not None
        copy = materialise(shipped.place(), shipped.bundle, cache_folder())
        job = replace(job, root=str(copy), store=shipped.store_here())
    return function(job, device=device)


def _is_here(root: Path, shipped: Shipped) -> bool:
    """Whether this host has the project at ``root``: with the content that was published, if it was."""
    there = (root / "params.yaml").is_file()
    if shipped.bundle is None:
        if there:
            return True
        raise DataError(
            "project-not-here",
            f"{socket.gethostname()} has no project at {root}\n    -> give it the project and the run store at the "
            "same paths (a shared file system). Or set store.remote, or a "
            "store.path outside of the project that all hosts see: workers then fetch what they need (docs/scale.md)",
        )
    if not there:
        return False
    entries = files_of(shipped.place(), shipped.bundle, cache_folder())
    try:
        encoder = resolve_model(open_project(root).params.model, root).path
        for name, entry in entries.items():
            if not name.startswith(ROWS):  # found, or made, beside the run store
                path = encoder / Path(name).name if name.startswith(ENCODER) else root / name
                if path.stat().st_size != entry["bytes"] or content_sha256(path) != entry["sha256"]:
                    return False
    except (OSError, RegftError):
        return False  # another project, or an older one, without some of the files
    return True
