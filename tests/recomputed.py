"""Stored runs made again from what the project has now, and compared bit by bit with what was stored."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from regft_core.errors import DataError
from regft_core.io.canonical import canonical_json, sha256_file
from regft_core.io.tensors import write_tensors
from regft_core.models.features import Features
from regft_core.runs import phase as phases
from regft_core.runs.context import Context
from regft_core.runs.encoder_tensors import without_encoder
from regft_core.runs.environment import set_up
from regft_core.runs.evaluate import evaluated, evaluation_identity
from regft_core.runs.finished_model import FinishedModel
from regft_core.runs.job import Job
from regft_core.runs.store.stored_run import StoredRun
from regft_core.settings.project import Project

EVALUATE = "evaluate"
#: Parts of a result that no two computations share.
TIMES = ("seconds", "cost")


class NothingKept:
    """A place where nothing is found, and nothing stays."""

    def get(self, key: str) -> Tensor | None:
        """None."""
        return None

    def put(self, key: str, vectors: Tensor) -> None:
        """Nothing happens to ``vectors`` [B, H]."""


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


def differences(project: Project, made: Made, stored: StoredRun, device: str) -> list[str]:
    """What differs between a stored run and the same one computed now; empty where all bits are equal.

    Members, and phases before it, are taken from the store.
    """
    context = Context(made.job, device, project)
    context.__dict__["features"] = Features(NothingKept(), {}, context.rows_alone)  # what is compared is computed
    here = set_up(device, project.params.execution)
    assert here["deterministic"]
    assert stored.result.get("environment", here) == here
    if made.phase == EVALUATE:
        result, files = evaluated(context, FinishedModel(context), made.identity["sets"])
        now = {name: content.encode() if isinstance(content, str) else content for name, content in files.items()}
        assert sorted(now) == sorted(stored.files)
        changed = [f"file {name}" for name in now if now[name] != stored.read_bytes(name)]
        return _result_differences(stored.result, result) + changed
    phase = context.phase(made.phase)
    if made.training:
        phase = context.keys.training_of(phase) or phase
    record, tensors = _computed_again(context, phase, made, here, "weights" in stored.tensor_names)
    tensors, _ = without_encoder(context, phase, tensors)
    assert sorted(tensors) == stored.tensor_names
    changed = [f"tensors '{name}'" for name in tensors if _sha256(tensors[name]) != stored.tensors_sha256(name)]
    return _result_differences(stored.result, record) + changed


def _computed_again(context: Context, phase: Any, made: Made, here: dict[str, Any], weights: bool) -> Any:
    training = context.keys.training_of(phase)
    if training is not None:
        return phases.finished(context, phase, training, here, weights)
    if phase.repeat is not None and made.member is None:
        members = phases._members(context, phase, made.identity["members"])
        return phases.merged(context, phase, members, here, weights)
    return phases.trained(context, phase, made.member, here, weights)


def _result_differences(stored: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    names = sorted((stored.keys() | now.keys()) - set(TIMES))
    return [f"'{name}'" for name in names if canonical_json(stored.get(name)) != canonical_json(now.get(name))]


def _sha256(tensors: Mapping[str, Any]) -> str:
    """The hash of the file that these tensors are stored in."""
    with tempfile.TemporaryDirectory() as folder:
        write_tensors(Path(folder) / "tensors", tensors)
        return sha256_file(Path(folder) / "tensors")
