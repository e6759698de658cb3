"""Another task's rows, prepared once for all cells beside the run store."""

from __future__ import annotations

from pathlib import Path

from regft_core.errors import CodeChanged, StoreError
from regft_core.io.canonical import canonical_json, sha256_file, sha256_text
from regft_core.io.reading import read_json
from regft_core.settings.copies import ROWS
from regft_core.settings.project import Project


def training_rows(project: Project, task: str, store: Path) -> Path:
    """Folder with ``task.json``, ``train.jsonl`` and ``dev.jsonl`` of ``task``; made if it is not there or was damaged.

    In a copy of a project on a worker they are what was prepared for the project.
    Its name is the hash of everything that the rows depend on, so that projects may share it.

    Raises:
        DataError: the task's source does not match its declaration.
        CodeChanged: the code that reads it is edited at this moment.
    """
    from regft_core.data.prepare import prepare_dataset
    from regft_core.runs.identity.fingerprint import stage_scope
    from regft_core.runs.identity.guard import LoadedCode
    from regft_core.runs.inputs import training_set, training_set_inputs
    from regft_core.runs.scopes import kind_modules

    inputs = training_set_inputs(project, task)
    folder = store / "datasets" / f"{task}-{sha256_text(canonical_json(inputs))[:32]}"
    shipped = project.root / ROWS / folder.name
    if _intact(shipped):
        return shipped
    if not _intact(folder):
        guard = LoadedCode(stage_scope("dataset", kind_modules([project.tasks[task].kind])))
        if guard.sha256 != inputs["code"]:
            raise CodeChanged(
                "code-edited", f"the code that reads task '{task}' was edited a moment ago; run `dvc repro` again"
            )
        prepare_dataset(
            project.root, task, {task: training_set(project.tasks[task])}, folder, before_commit=lambda _: guard.check()
        )
    return folder


def _intact(folder: Path) -> bool:
    """Whether the rows are there, and what was written."""
    try:
        content = read_json(folder / "task.json")["content"]
        return all(content[name] == sha256_file(folder / f"{name}.jsonl") for name in ("train", "dev"))
    except (StoreError, OSError, KeyError, TypeError):
        return False
