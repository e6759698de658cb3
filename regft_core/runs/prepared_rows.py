"""Rows that runs read: what they are made from, and how they are made under a key.

Rows that are kept under the hash of their inputs obey the rule of the run store. They are made by the code that this
process has loaded, and written only if code, definitions and files are still those of the key. So an edit in between
leaves nothing behind. No torch here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from regft_core.disk.canonical import sha256_file, sha256_json
from regft_core.disk.paths import file_state
from regft_core.disk.reading import read_json
from regft_core.errors import CodeChanged, PlanOutdated, StoreError
from regft_core.runs.code import code_of
from regft_core.runs.hashed_code import Scope, scope_of
from regft_core.runs.made_once import LoadedCode
from regft_core.schema.tasks import FilesSource, TaskConfig
from regft_core.settings.layers import sizes_of
from regft_core.settings.project import Project

_AGAIN = "; nothing was written\n    -> run `dvc repro` again"


def task_inputs(project: Project, task: str) -> dict[str, Any]:
    """A task's definition, the sets that judge it, the content of its files, and the code that reads them."""
    config = project.tasks[task]
    judges = {name: _definition(project.tasks[name]) for name in config.ood if name in project.tasks}
    rows = rows_of_each_set(project)
    files = {file: source_file(project.root, file) for file in sorted(task_files(project, task))}
    return {
        **({} if rows is None else {"rows": rows}),
        "task": _definition(config),
        "judges": judges,
        "files": {file: sha256_file(path) if path.is_file() else None for file, path in files.items()},
        "code": code_of(rows_scope(project, task, "dataset")).sha256,
    }


def rows_of_each_set(project: Project) -> int | None:
    """Return how many rows of each set are read at most, None for all: presets at small scale read few."""
    return project.params.small_scale.rows if project.params.small_scale is not None else None


def task_files(project: Project, task: str) -> set[str]:
    """The files below ``data/``, as the task names them, that its rows and those of its sets come from."""
    config = project.tasks[task]
    splits: list[tuple[Any, str | None]] = [
        (config.source, config.splits.train),
        (config.source, config.splits.judging),
    ]
    for name, ood in config.ood.items():
        other = project.tasks.get(name)
        source = ood.source or (other.source if other is not None else None)
        splits.append((source, ood.split or (other.splits.judging if other is not None else None)))
    return {split for source, split in splits if isinstance(source, FilesSource) and split is not None}


def training_set_inputs(project: Project, task: str) -> dict[str, Any]:
    """Return the inputs of a task's training rows, for a phase that trains on them; see :func:`training_set`."""
    return task_inputs(replace(project, tasks={task: training_set(project.tasks[task])}), task)


def training_set(task: TaskConfig) -> TaskConfig:
    """A task without what judges it, which a phase that trains on its rows does not need."""
    return task.model_copy(update={"ood": {}})


def _definition(task: TaskConfig) -> dict[str, Any]:
    # How the task is trained on is in the keys of the runs that train on it; submissions are no stage.
    return task.model_dump(mode="json", exclude={"description", "training", "model", "submission"})


def source_file(root: Path, split: str) -> Path:
    """The file of a split, which a task names from the project or from ``data/``."""
    relative = Path(split)
    return root / (relative if relative.parts[:1] == ("data",) else Path("data") / relative)


def source_files(project: Project, task: str) -> list[Path]:
    """The files that a task's rows and those of its sets come from."""
    return [source_file(project.root, split) for split in sorted(task_files(project, task))]


def subsample_inputs(project: Project, task: str) -> dict[str, Any]:
    """Return the inputs of the subsamples of a prepared task."""
    return {
        "code": code_of(rows_scope(project, task, "subsample")).sha256,
        "stratified": project.params.subsample.stratified,
        "sizes": list(sizes_of(project.params, task)),
        "seeds": list(project.params.grid.seeds),
        "rows": content_of(project, task),
    }


def rows_scope(project: Project, task: str, stage: Literal["dataset", "subsample"]) -> Scope:
    """The code that prepares a task's rows, or draws from them."""
    return scope_of(stage, kinds=[project.tasks[task].kind])


def dataset_folder(project: Project, task: str) -> Path:
    """Return the folder of a task's prepared rows."""
    return project.root / "work" / "datasets" / task


def content_of(project: Project, task: str) -> dict[str, str]:
    """Hashes of the prepared sets of a task."""
    return dict(read_json(dataset_folder(project, task) / "task.json")["content"])


class RowsInMaking:
    """Rows that are about to be made; ``key`` is the hash of what they are made from.

    Args:
        task: whose rows, for messages.
        scope: the code that makes them.
        inputs: returns what they are made from as it is now: definitions, hashes of files, and ``code``.
        files: what they are read from.

    Raises CodeChanged: the loaded code is not what its files say.
    """

    def __init__(
        self, task: str, scope: Scope, inputs: Callable[[], Mapping[str, Any]], files: Iterable[Path] = ()
    ) -> None:
        self._code = LoadedCode(scope)
        self._task, self._inputs = task, inputs
        self._files = {str(path): file_state(str(path)) for path in files}
        made_from = inputs()
        if made_from["code"] != self._code.sha256:
            raise CodeChanged("code-edited", f"the code that makes the rows of task '{task}' was edited{_AGAIN}")
        self.key = sha256_json(made_from)

    def check(self) -> None:
        """Raise CodeChanged or PlanOutdated if they would now be made otherwise; call it before they are written."""
        self._code.check()
        # Put back as it was, a file may have been read in between.
        written = [path for path, state in self._files.items() if file_state(path) != state]
        if written or sha256_json(self._inputs()) != self.key:
            what = ", ".join(written) or "its files or code"
            raise PlanOutdated("rows-edited", f"{what} changed while rows of task '{self._task}' were made{_AGAIN}")


def training_rows(project: Project, task: str, store: Path) -> Path:
    """Folder with ``task.json``, ``train.jsonl`` and ``dev.jsonl`` of ``task``; made if it is not there or was damaged.

    Its name is the hash of everything that the rows depend on, so that projects may share it.

    Raises:
        DataError: the task's source does not match its declaration.
        CodeChanged, PlanOutdated: the code that reads it, or its files, are edited at this moment.
    """
    from regft_core.data.prepare import prepare_dataset

    inputs = partial(training_set_inputs, project, task)
    folder = store / "datasets" / f"{task}-{sha256_json(inputs())[:32]}"
    if not _intact(folder):
        making = RowsInMaking(task, rows_scope(project, task, "dataset"), inputs, source_files(project, task))
        folder = folder.with_name(f"{task}-{making.key[:32]}")
        tasks = {task: training_set(project.tasks[task])}
        prepare_dataset(project.root, task, tasks, folder, lambda _: making.check(), rows=rows_of_each_set(project))
    return folder


def _intact(folder: Path) -> bool:
    """Whether the rows are there, and what was written."""
    try:
        content = read_json(folder / "task.json")["content"]
        return all(content[name] == sha256_file(folder / f"{name}.jsonl") for name in ("train", "dev"))
    except (StoreError, OSError, KeyError, TypeError):
        return False
