"""Stored runs made again from what the project has now, and compared bit by bit with what was stored."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regft_core.errors import DataError, RegftError
from regft_core.io.canonical import canonical_json, sha256_file, sha256_text
from regft_core.runs.code import one_moment
from regft_core.runs.context import Context
from regft_core.runs.evaluate import evaluation_identity
from regft_core.runs.job import Job
from regft_core.runs.store.lookup import NotStored
from regft_core.runs.trials import choice_of, trials_of_run
from regft_core.settings.layers import sizes_of
from regft_core.settings.project import Project

if TYPE_CHECKING:
    from regft_core.runs.store.run_store import RunStore
    from regft_core.runs.store.stored_run import StoredRun

EVALUATE = "evaluate"
#: Parts of a result that no two computations share.
_TIMES = ("seconds", "cost")
#: Part of an identity -> what to call it where the project's differs; others are told by their names.
NAMES = {
    "code": "code",
    "packages": "package versions",
    "model": "encoder or tokenizer",
    "rows": "training rows",
    "regularisers": "method options",
    "training": "training protocol",
    "seed": "seed",
    "format": "run format",
    "sets": "evaluation sets",
}
#: Parts that are keys of other runs: they differ because those do.
_OTHER_RUNS = ("start", "needs", "members", "trained", "run")


@dataclass(frozen=True)
class Made:
    """How this project makes a run of the store: a phase of a job, one member of it, its training, or the evaluation.

    ``training``: what the phase only reads the finished weights of (``Context.training_of``).
    """

    job: Job
    phase: str
    member: int | None
    identity: Mapping[str, Any]
    training: bool = False

    @property
    def name(self) -> str:
        """For people: ``finetune-1 of soup cue_pair 300 seed 0``."""
        label = self.phase if self.member is None else f"{self.phase}-{self.member}"
        label = f"training of {label}" if self.training else label
        return f"{label} of {self.job.name}"


@dataclass(frozen=True)
class Recomputed:
    """What was computed again.

    Attributes:
        same: names of the runs whose bits are those that were stored.
        different: key -> name of the run, and what differs.
        not_compared: name of a run of the sample -> why it could not be computed again or compared.
        foreign: why the project cannot make some of the stored runs -> how many.
    """

    same: list[str]
    different: dict[str, str]
    not_compared: dict[str, str]
    foreign: dict[str, int]


def recompute(project: Project, store: RunStore, count: int, device: str, chance: random.Random) -> Recomputed:
    """Compute ``count`` randomly drawn runs of the store again and compare all bits; the store is left as it is.

    Phases that a run starts from are taken from the store; what was pruned of them is trained again and put back.
    """
    with one_moment():
        known = expected(project, jobs_of(project))
    stored = {key: run for key in list(store.keys()) if (run := store.get(key)) is not None}
    possible = sorted(known.keys() & stored.keys())
    found = Recomputed([], {}, {}, foreign_runs({k: r.identity for k, r in stored.items() if k not in known}, known))
    for key in chance.sample(possible, min(count, len(possible))):
        made = known[key]
        try:
            difference = differences(project, made, stored[key], device)
        except RegftError as error:
            found.not_compared[made.name] = str(error)
            continue
        if difference:
            found.different[key] = f"{made.name}: {', '.join(difference)}"
        else:
            found.same.append(made.name)
    return found


def jobs_of(project: Project) -> Iterator[Job]:
    """All trials of the project, and all runs whose values are known."""
    grid = project.params.grid
    for method in project.methods:
        for task in grid.tasks:
            for size in map(str, sizes_of(project.params, task)):
                for seed in grid.seeds:
                    yield from trials_of_run(project, method, task, size, seed)
                    job = Job(str(project.root), method, task, size, seed)
                    with suppress(NotStored, DataError):
                        tuned = choice_of(replace(job, stored_only=True))
                        yield job if tuned is None else replace(job, values=tuned["values"])


def expected(project: Project, jobs: Iterable[Job]) -> dict[str, Made]:
    """Key -> how it is made, of every phase, member and evaluation of the jobs; no torch.

    Jobs without rows are left out.
    """
    found: dict[str, Made] = {}
    for job in jobs:
        context = Context(job, project=project)
        with suppress(DataError):
            for phase in context.method.phases:
                members = [None, *range(phase.repeat.times)] if phase.repeat is not None else [None]
                for member in members:
                    identity = context.keys.identity(phase.name, member)
                    found.setdefault(context.store.run_key(identity), Made(job, phase.name, member, identity))
                if (training := context.keys.training_of(context.phase(phase.name))) is not None:
                    identity = context.keys.identity_of(training)
                    made = Made(job, phase.name, None, identity, training=True)
                    found.setdefault(context.store.run_key(identity), made)
            if job.trial is None:
                keys = {phase.name: context.keys.of(phase.name) for phase in context.method.phases}
                identity = evaluation_identity(context, keys["finetune"])
                made = Made(replace(job, keys=keys), EVALUATE, None, identity)
                found.setdefault(context.store.run_key(identity), made)
    return found


def foreign_runs(others: Mapping[str, Mapping[str, Any]], known: Mapping[str, Made]) -> dict[str, int]:
    """Why the project makes none of these runs (key -> identity) -> how many of them."""
    values: dict[str, dict[str, set[str]]] = {}
    for made in known.values():
        of_phase = values.setdefault(made.identity["phase"], {})
        for part, value in made.identity.items():
            of_phase.setdefault(part, set()).add(canonical_json(value))
    reasons: Counter[str] = Counter()
    for identity in others.values():
        phase = str(identity.get("phase"))
        if phase in ("evaluation", "trial score"):
            reasons["findings and scores of trials, which are not computed again"] += 1
            continue
        own = values.get(phase)
        if own is None:
            reasons[f"this project has no phase '{phase}'"] += 1
            continue
        other = [part for part, value in identity.items() if canonical_json(value) not in own.get(part, ())]
        named = [NAMES.get(part, part) for part in other if part not in _OTHER_RUNS]
        if named:
            reasons[f"made with other {', '.join(named)}"] += 1
        else:
            reasons["made from other runs" if other else "made with another combination of settings"] += 1
    return dict(reasons.most_common())


def differences(project: Project, made: Made, stored: StoredRun, device: str) -> list[str]:
    """What differs between a stored run and the same one computed now; empty where all bits are equal.

    Raises:
        RegftError: it cannot be computed here, or its bits may differ for they are of another environment.
    """
    from regft_core.runs.environment import describe_environment, set_up
    from regft_core.runs.phase import computed_again

    context = Context(made.job, device, project)
    context.keeps_vectors = False  # what is compared is computed
    here = set_up(device, project.params.execution)
    there = stored.result.get("environment", here)
    if there != here:
        raise DataError(
            "other-environment",
            f"computed on {describe_environment(there)}; this is {describe_environment(here)}\n"
            "    -> run it on the machine that computed the run",
        )
    if not here["deterministic"]:
        raise DataError(
            "not-reproducible",
            "execution.deterministic is off, so its bits are not reproducible\n"
            "    -> set execution: {deterministic: true} and train the run again",
        )
    if made.phase == EVALUATE:
        return _evaluation_differences(context, made, stored)
    phase = context.phase(made.phase)
    if made.training:
        phase = context.keys.training_of(phase) or phase
    record, tensors = computed_again(context, phase, made.member, stored)
    found = _result_differences(stored.result, record)
    if sorted(tensors) != stored.tensor_names:
        return [*found, f"tensors {sorted(tensors)} in place of {stored.tensor_names}"]
    return found + [f"tensors '{name}'" for name in tensors if _sha256(tensors[name]) != stored.tensors_sha256(name)]


def _evaluation_differences(context: Context, made: Made, stored: StoredRun) -> list[str]:
    from regft_core.runs.evaluate import evaluated
    from regft_core.runs.finished_model import FinishedModel

    result, files = evaluated(context, FinishedModel(context), made.identity["sets"])
    found = _result_differences(stored.result, result)
    if sorted(files) != sorted(stored.files):
        return [*found, f"files {sorted(files)} in place of {sorted(stored.files)}"]
    now = {name: content.encode() if isinstance(content, str) else content for name, content in files.items()}
    return found + [f"file {name}" for name in now if now[name] != stored.read_bytes(name)]


def _result_differences(stored: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    names = sorted((stored.keys() | now.keys()) - set(_TIMES))
    return [f"'{name}'" for name in names if _written(stored.get(name)) != _written(now.get(name))]


def _written(value: Any) -> str:
    return sha256_text(canonical_json(value))


def _sha256(tensors: Mapping[str, Any]) -> str:
    """The hash of the file that these tensors are stored in."""
    from regft_core.io.tensors import write_tensors

    with tempfile.TemporaryDirectory() as folder:
        write_tensors(Path(folder) / "tensors", tensors)
        return sha256_file(Path(folder) / "tensors")
