"""Outputs of stages, made before DVC asks for them: a stage that finds its own puts it in place and is done.

``work/ready/<stage>/<method>/<task>/`` holds what ``python -m stages.fill`` made, with a stamp: the hash of
everything that the output was made from. The stage computes the stamp again from what there is now; on any
difference it does its work in the ordinary way. The stamp has the bytes of the configuration and of every input
that DVC knows of the stage, and sizes and times of the code and of the installed packages, so an edit in between
counts as a difference. Little is imported here: this is the way of a stage that costs a twentieth of a second.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from regft_core.errors import StoreError
from regft_core.io import atomic_directory, remove, replace_directory, write_text

STAMP = "stamp"
#: What an output is in the folder; ``work/metrics`` has a file besides.
OUTPUT, METRICS = "output", "metrics.json"
STAGES = ("search", "finetune", "evaluate")
_PACKAGE = Path(__file__).resolve().parents[1]


def folder_of(root: Path, stage: str, method: str, task: str) -> Path:
    """Where the output of a stage lies until the stage takes it."""
    return root / "work" / "ready" / stage / method / task


def _inputs(stage: str, method: str, task: str) -> tuple[list[str], list[str]]:
    """Files and folders below ``work/`` that a stage reads."""
    if stage == "evaluate":
        facts = [f"facts/finetune-{method}.json", "facts/evaluate.json"]
        return facts, [f"finetune/{method}/{task}", f"datasets/{task}"]
    folders = [f"subsamples/{task}"] + ([f"search/{method}/{task}"] if stage == "finetune" else [])
    return [f"facts/{stage}-{method}.json", f"facts/settings-{method}-{task}.json"], folders


def stamp(
    root: Path,
    stage: str,
    method: str,
    task: str,
    instead: Mapping[str, Path] | None = None,
    shared: str | None = None,
) -> str:
    """Hash of everything that the output of a stage is made from.

    Args:
        instead: folder below ``work/`` -> where it is to be read, when it is not in its place yet.
        shared: ``shared_by_all(root)``, where it was asked for a moment ago.

    Raises OSError when an input is missing.
    """
    files, folders = _inputs(stage, method, task)
    found = hashlib.sha256((shared_by_all(root) if shared is None else shared).encode())
    for name in files:
        _add(found, name, root / "work" / name)
    for folder in folders:
        place = (instead or {}).get(folder, root / "work" / folder)
        if not place.is_dir():
            raise FileNotFoundError(place)
        start = len(os.fspath(place)) + 1
        for path in _files(place):
            _add(found, f"{folder}/{path[start:]}", path)
    return found.hexdigest()


def shared_by_all(root: Path) -> str:
    """Hash of what every stage depends on: configuration, code, installed packages. Raises OSError."""
    found = hashlib.sha256()
    _add(found, "params.yaml", root / "params.yaml")
    # All methods: an arm of params.yaml without a file of its own starts from another's.
    for folder in ("methods", "tasks"):
        for path in sorted((root / "pipelines" / folder).glob("*.yaml")):
            _add(found, path.name, path)
    for line in _code():
        found.update(f"{line}\0".encode())
    return found.hexdigest()


def _add(found: hashlib._Hash, name: str, path: Path | str) -> None:
    with open(path, "rb") as file:
        content = file.read()
    found.update(f"{name}\0{len(content)}\0".encode())
    found.update(content)


def _files(folder: Path) -> Iterator[str]:
    for parent, names, files in os.walk(folder):
        names.sort()
        for name in sorted(files):
            yield os.path.join(parent, name)


def _code() -> Iterator[str]:
    """State of every file of the code, and of the folders that packages are installed in."""
    yield sys.version
    above = len(os.fspath(_PACKAGE.parent)) + 1
    for folder in (_PACKAGE, _PACKAGE.parent / "stages"):
        for path in _files(folder):
            if not path.endswith(".pyc"):
                state = os.stat(path)
                yield f"{path[above:]} {state.st_size} {state.st_mtime_ns}"
    for entry in sys.path:
        if os.path.basename(entry) in ("site-packages", "dist-packages"):
            with suppress(OSError):
                yield f"{entry} {os.stat(entry).st_mtime_ns}"


def keep(root: Path, stage: str, method: str, task: str, given: str, output: Path, metrics: bytes | None) -> None:
    """Keep the ``output`` folder (which is moved) for a stage; ``given`` is its stamp. Raises StoreError."""
    with atomic_directory(folder_of(root, stage, method, task)) as folder:
        output.rename(folder / OUTPUT)
        if metrics is not None:
            (folder / METRICS).write_bytes(metrics)
        (folder / STAMP).write_text(given)


def take_ready(root: Path, stage: str, method: str, task: str) -> bool:
    """Put the output of a stage in place if it is ready and nothing has changed since; else say False."""
    folder = folder_of(root, stage, method, task)
    try:
        given = (folder / STAMP).read_text()
        if given != stamp(root, stage, method, task):
            return False
        metrics = (folder / METRICS).read_text() if stage == "evaluate" else None
        target = root / "work" / stage / method / task
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_directory(folder / OUTPUT, target)
        if metrics is not None:
            write_text(root / "work" / "metrics" / method / f"{task}.json", metrics)
    except (OSError, StoreError):
        return False
    with suppress(OSError):
        remove(folder)
    return True
