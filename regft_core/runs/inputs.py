"""What determines rows and phases, resolved: the parts that go into keys. No torch here.

What is here is byte-stable: sorted keys, no time, no absolute path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regft_core.hooks import compose, listed
from regft_core.io.canonical import sha256_file
from regft_core.io.reading import read_json
from regft_core.runs.identity.fingerprint import code_of, stage_code
from regft_core.runs.scopes import kind_modules, phase_scope
from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.method import Phase
from regft_core.schema.tasks import FilesSource, TaskConfig
from regft_core.schema.training import TrainingConfig
from regft_core.settings.project import Project
from regft_core.settings.settings import sizes_of

if TYPE_CHECKING:
    from regft_core.models.source import ModelSource


def phase_identity(
    encoder: EncoderConfig,
    phase: Phase,
    entries: Sequence[listed.Entry],
    source: ModelSource,
    kinds: Iterable[str],
    metrics: Iterable[str] = (),
) -> dict[str, Any]:
    """What determines a phase besides its rows, its seed and the phases before it.

    ``phase`` has its settled protocol, ``encoder`` what the method overrides. Regularisers of
    strength 0 do nothing, so they and their code are left out. ``kinds``: of its rows' task. ``metrics`` may choose
    its epoch.
    """
    acting = listed.active(entries)
    scope = phase_scope(acting, phase, source, kinds, metrics)
    code = code_of(scope.entries, exempt=scope.exempt)
    return {
        "phase": phase.name,
        "data": phase.data.model_dump(mode="json", exclude={"task", "size", "steps"}),
        "regularisers": {cls.name: options.model_dump(mode="json") for cls, options in acting},
        "training": phase.training.settled(),
        "model": {
            "content": source.content_sha256,
            "tokenizer": source.tokenizer_sha256,
            "max_length": encoder.max_length,
            "pooling": encoder.pooling,
            "pairs": encoder.pairs,
            **encoder.reading,
        },
        "code": code["sha256"],
        "packages": code["packages"],
    }


def settled_training(phase: Phase, entries: Sequence[listed.Entry], shared: TrainingConfig) -> TrainingConfig:
    """The protocol that a phase really runs under, from the one that all methods share on its rows."""
    return compose.resolve_training(entries, phase, shared)[0]


def task_inputs(project: Project, task: str) -> dict[str, Any]:
    """A task's definition, the sets that judge it, the content of its files, and the code that reads them."""
    config = project.tasks[task]
    judges = {name: _definition(project.tasks[name]) for name in config.ood if name in project.tasks}
    return {
        "task": _definition(config),
        "judges": judges,
        "files": {file: _file_hash(project.root, file) for file in sorted(task_files(project, task))},
        "code": stage_code("dataset", kind_modules([config.kind]))["sha256"],
    }


def task_files(project: Project, task: str) -> set[str]:
    """The files below ``data/``, as the task names them, that its rows and those of its sets come from."""
    config = project.tasks[task]
    own = (config.splits.train, config.splits.judging)
    files = {split for split in own if isinstance(config.source, FilesSource)}
    for name, ood in config.ood.items():
        other = project.tasks.get(name)
        source = ood.source or (other.source if other is not None else None)
        split = ood.split or (other.splits.judging if other is not None else None)
        if isinstance(source, FilesSource):
            files.add(split)
    return {file for file in files if file is not None}


def training_set_inputs(project: Project, task: str) -> dict[str, Any]:
    """What the training rows of a task depend on, for a phase that trains on them; see :func:`training_set`."""
    return task_inputs(replace(project, tasks={task: training_set(project.tasks[task])}), task)


def training_set(task: TaskConfig) -> TaskConfig:
    """A task without what judges it, which a phase that trains on its rows does not need."""
    return task.model_copy(update={"ood": {}})


def _definition(task: TaskConfig) -> dict[str, Any]:
    # How the task is trained on is in the keys of the runs that train on it; submissions are no stage.
    return task.model_dump(mode="json", exclude={"description", "training", "model", "submission"})


def _file_hash(root: Path, split: str) -> str | None:
    relative = Path(split)
    path = root / (relative if relative.parts[:1] == ("data",) else Path("data") / relative)
    return sha256_file(path) if path.is_file() else None


def subsample_inputs(project: Project, task: str) -> dict[str, Any]:
    """What the subsamples of a prepared task are drawn from."""
    grid = project.params.grid
    return {
        "code": stage_code("subsample", kind_modules([project.tasks[task].kind]))["sha256"],
        "stratified": project.params.subsample.stratified,
        "sizes": list(sizes_of(project.params, task)),
        "seeds": list(grid.seeds),
        "rows": content_of(project, task),
    }


def content_of(project: Project, task: str) -> dict[str, str]:
    """Hashes of the prepared sets of a task."""
    return dict(read_json(project.root / "work" / "datasets" / task / "task.json")["content"])
