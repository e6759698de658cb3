"""Runs of an earlier release under the keys of this one, where the release can prove that they are the same.

A key holds the hash of the code that trained. A release that rewrites this code and changes no result says so in
``shipped/releases.yaml``: the text of each edit before and now, and the test that shows equal results. Here the edits
are taken back in a copy of the code, and a process with that copy computes the keys of all runs of the project. Where
the store has a run under such a key, everything else in its identity has to be that of the run here: then it is
committed under the new key, too. The old one stays, for whom still uses that release.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from regft_core import shipped
from regft_core.errors import PrunedRun, RunFailed
from regft_core.runs.code import one_moment, package_root
from regft_core.runs.job import Job
from regft_core.runs.project import open_project
from regft_core.runs.recompute import NAMES, Made, expected, jobs_of
from regft_core.runs.store.run_store import RunStore
from regft_core.runs.store.stored_run import REKEYED
from regft_core.schema import StrictModel
from regft_core.settings.document import load_yaml
from regft_core.settings.project import Project
from regft_core.settings.version import PATTERN

FILE = shipped.FOLDER / "releases.yaml"

#: Of a run: key, identity, job, phase, member, whether it is the training that its phase reads.
Old = tuple[str, dict[str, Any], Job, str, int | None, bool]


class Edit(StrictModel):
    """One edit of a file below the package's folder, which the test ``same`` shows to change no result."""

    file: str
    now: str
    before: str
    same: str


class Release(StrictModel):
    """The edits since a release."""

    after: Annotated[str, Field(pattern=PATTERN)]
    edits: Annotated[tuple[Edit, ...], Field(strict=False, min_length=1)]


class Releases(StrictModel):
    """``releases.yaml``."""

    releases: Annotated[tuple[Release, ...], Field(strict=False)]


@dataclass
class Rekeyed:
    """What happened.

    Attributes:
        runs: names of the runs that now have the new key, too.
        unproven: why runs of the project that the store lacks could not be rekeyed -> how many.
    """

    runs: list[str] = field(default_factory=list)
    unproven: Counter[str] = field(default_factory=Counter)


def read_releases(file: Path = FILE) -> tuple[Release, ...]:
    """The releases whose edits are declared."""
    return Releases.model_validate(load_yaml(file, file.parent).data).releases


def rekey(project: Project, store: RunStore, releases: tuple[Release, ...] | None = None) -> Rekeyed:
    """Commit runs of earlier releases under the keys of this one.

    Raises:
        RunFailed: an edit is not in this code; the copy of an earlier release cannot compute its keys.
        StoreError: the store cannot be written.
    """
    found = Rekeyed()
    missing: dict[str, tuple[str, str]] = {}
    with one_moment():
        for key, made in expected(project, jobs_of(project)).items():
            if not store.holds(key):
                missing[key] = made.name, "no release declares its code as unchanged"
    for release in read_releases() if releases is None else releases:
        for made, key, why in _pairs(project, store, release):
            missing[key] = made.name, why
            if not why:
                found.runs.append(made.name)
    found.unproven.update(why for _, why in missing.values() if why)
    return found


def _pairs(project: Project, store: RunStore, release: Release) -> Iterator[tuple[Made, str, str]]:
    """Runs that the store lacks, with their key and why they could not be rekeyed (empty: they were)."""
    same: dict[str, str] = {}
    waiting, differ = list(_made_by(project.root, release)), dict[str, tuple[Made, str]]()
    now: dict[str, dict[tuple[str, int | None, bool], tuple[str, Made]]] = {}
    while True:
        left = []
        for one in waiting:
            old, identity, job, phase, member, training = one
            if repr(job) not in now:
                with one_moment():
                    here = expected(project, [job])
                now[repr(job)] = {(made.phase, made.member, made.training): (key, made) for key, made in here.items()}
            key, made = now[repr(job)][phase, member, training]
            if other := _differences(identity, made.identity, same):
                left.append(one)  # perhaps a run that it names comes later: an average's members do
                differ[key] = made, f"{release.after} makes it with other {', '.join(other)}"
                continue
            same[old] = key
            differ.pop(key, None)
            if not store.holds(key):
                yield made, key, _commit(store, old, key, made, release)
        if len(left) == len(waiting):
            break
        waiting = left
    yield from ((made, key, why) for key, (made, why) in differ.items() if not store.holds(key))


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], same: Mapping[str, str]) -> list[str]:
    """What two identities differ in beside the code. Runs that they name are equal where ``same`` maps their keys."""

    def mapped(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: mapped(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [mapped(one) for one in value]
        return same.get(value, value) if isinstance(value, str) else value

    plain = json.loads(json.dumps(new))
    parts = sorted((old.keys() | plain.keys()) - {"code"})
    return [NAMES.get(part, part) for part in parts if mapped(old.get(part)) != plain.get(part)]


def _commit(store: RunStore, old: str, key: str, made: Made, release: Release) -> str:
    """Commit the run ``old`` under ``key``; returns why not, empty when done."""
    stored = store.restore(old)
    if stored is None:
        return f"not in the store under the key of {release.after}, either"
    try:
        tensors = {name: stored.load_tensors(name) for name in stored.tensor_names}
    except PrunedRun:
        return "its weights were pruned"
    files: dict[str, str | bytes] = {name: stored.read_bytes(name) for name in stored.files}
    mark = {"from": old, "release": release.after, "same": [edit.same for edit in release.edits]}
    with store.open(key, made.identity) as run:
        if run.finished is None:
            run.commit(stored.result, tensors, {**files, REKEYED: json.dumps(mark, indent=1) + "\n"})
    return ""


def _made_by(root: Path, release: Release) -> Iterator[Old]:
    """Every run of the project as ``release`` has it, in the order of their making."""
    with _code_of(release) as folder:
        environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        # -P: the working directory may be a checkout, with code of its own.
        command = [sys.executable, "-P", "-m", "regft_core.runs.rekey"]
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise RunFailed(
            "release-keys",
            f"the keys of {release.after} cannot be computed: {last}\n    -> install regft again, or report it",
        )
    for one in json.loads(done.stdout):
        yield one["key"], one["identity"], Job(**one["job"]), one["phase"], one["member"], one.get("training", False)


@contextmanager
def _code_of(release: Release) -> Iterator[Path]:
    """A folder with the package, in which the edits since ``release`` are taken back."""
    with tempfile.TemporaryDirectory(prefix="regft-release-") as name:
        folder = Path(name).resolve()
        package = package_root() / "regft_core"
        shutil.copytree(package, folder / "regft_core", ignore=shutil.ignore_patterns("__pycache__"))
        for edit in release.edits:
            path = folder / edit.file
            text = path.read_text(encoding="utf-8") if path.is_file() else ""
            if text.count(edit.now) != 1 or ".." in Path(edit.file).parts:
                count = text.count(edit.now)
                raise RunFailed(
                    "release-edit",
                    f"{FILE.name}: {edit.file} has the text of an edit since {release.after} {count} times, not once"
                    "\n    -> install regft again, or report it",
                )
            path.write_text(text.replace(edit.now, edit.before), encoding="utf-8")
        yield folder


def _say() -> None:
    """Print the runs of the project here, as the code of this process has them."""
    project = open_project(Path.cwd())
    with one_moment():
        made = expected(project, jobs_of(project))
    runs: list[Mapping[str, Any]] = [
        {
            "key": key,
            "identity": one.identity,
            "job": {**asdict(one.job), "keys": {}},
            "phase": one.phase,
            "member": one.member,
            "training": one.training,
        }
        for key, one in made.items()
    ]
    print(json.dumps(runs))


if __name__ == "__main__":
    _say()
