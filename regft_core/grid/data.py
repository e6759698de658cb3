"""The rows of every task, brought up to date: prepared sets, the subsamples of every size and seed, token lengths.

Each folder says what it was made from (``work.py``); one that is up to date is left alone, so this costs a look.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

from regft_core.data.checks import warnings_of
from regft_core.data.leaks import leak_warning
from regft_core.data.lengths import table, warnings
from regft_core.data.prepare import prepare_dataset
from regft_core.data.prompts import wrong_words
from regft_core.data.splits import split_line
from regft_core.data.subsample import write_subsamples
from regft_core.disk.canonical import sha256_json
from regft_core.disk.files import remove, write_json
from regft_core.disk.reading import read_json
from regft_core.errors import ConfigError, Problem
from regft_core.grid.fetch import require_named_sets
from regft_core.grid.lengths import (
    fast_tokenizer,
    lengths_file,
    lengths_inputs,
    measure_task,
    modes,
    up_to_date_lengths,
)
from regft_core.grid.prepared import skew_warnings
from regft_core.models.source import resolve_model
from regft_core.runs.hashed_code import scope_of
from regft_core.runs.prepared_rows import (
    RowsInMaking,
    dataset_folder,
    rows_of_each_set,
    rows_scope,
    source_files,
    subsample_inputs,
    task_inputs,
)
from regft_core.runs.work import is_current, seal
from regft_core.schema.method import other_tasks
from regft_core.settings.files import task_file
from regft_core.settings.layers import sizes_of
from regft_core.settings.project import Project


def prepare(project: Project, tasks: list[str] | None = None) -> None:
    """Bring ``work/datasets``, ``work/subsamples`` and ``work/lengths`` up to date; tasks of other grids go.

    Args:
        tasks: only these; by default all tasks of the grid.

    Raises:
        ConfigError: a word of a prompt is not one token of the encoder.
        DataError, ModelError: rows, or the tokenizer, cannot be read; ``ood`` names a set whose file is not there.
        CodeChanged, PlanOutdated: what rows are made from was edited meanwhile; nothing of them was written.
    """
    require_named_sets(project)
    _check_words(project)
    listed = list(project.params.grid.tasks)
    for task in listed if tasks is None else tasks:
        _dataset(project, task)
        _subsamples(project, task)
        _lengths(project, task)
    for folder in ("datasets", "subsamples", "lengths"):
        for path in sorted((project.root / "work" / folder).glob("*")):
            if path.name.removesuffix(".json") not in listed:
                remove(path)


def _check_words(project: Project) -> None:
    """Raise ConfigError for words that are not one token, with their lines, where a listed method reads prompts."""
    at_mask = [
        (method, encoder)
        for method in project.methods.values()
        for task in project.params.grid.tasks
        for encoder in (method.encoder(project.model(task), phase) for phase in method.phases)
        if encoder.pooling == "mask"
    ]
    if not at_mask:
        return
    problems: list[Problem] = []
    hint = "choose a shorter or more common word, such as yes, no, good"
    tasks = dict.fromkeys([*project.params.grid.tasks, *other_tasks([method for method, _ in at_mask], labelled=True)])
    encoders = {(encoder.name, encoder.revision): encoder for _, encoder in at_mask}
    for task, model in product(tasks, encoders.values()):
        tokenizer = fast_tokenizer(resolve_model(model, project.root))
        if (prompt := project.tasks[task].prompt) is not None:
            document = project.documents[task_file(task)]
            for label, message in wrong_words(prompt.words, tokenizer).items():
                problems.append(document.problem("word-not-one-token", ("prompt", "words", label), message, hint))
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))


def _warn(*texts: str) -> None:
    for text in filter(None, texts):
        print(f"warning: {text}", file=sys.stderr)


def _dataset(project: Project, task: str) -> None:
    inputs, folder = partial(task_inputs, project, task), dataset_folder(project, task)
    if is_current(folder, sha256_json(inputs())):
        return
    print(f"preparing task {task}", flush=True)
    making = RowsInMaking(task, rows_scope(project, task, "dataset"), inputs, source_files(project, task))
    document = project.documents[task_file(task)]

    def place(split: str) -> str:
        return str(document.place(("splits", split)))

    every = rows_of_each_set(project)
    prepare_dataset(project.root, task, project.tasks, folder, _sealing(making), place, every)
    described = read_json(folder / "task.json")
    if line := split_line(described):
        print(f"{task}: {line}")
    _warn(leak_warning(task, described) or "", *warnings_of(task, described))


def _subsamples(project: Project, task: str) -> None:
    inputs, folder = partial(subsample_inputs, project, task), project.root / "work" / "subsamples" / task
    if is_current(folder, sha256_json(inputs())):
        return
    making = RowsInMaking(task, rows_scope(project, task, "subsample"), inputs, _prepared(project, task))
    params = project.params
    drawn = sizes_of(params, task), params.grid.seeds, params.subsample.stratified
    write_subsamples(project.root, task, *drawn, _sealing(making))
    _warn(*skew_warnings(project, [task]))


def _lengths(project: Project, task: str) -> None:
    if up_to_date_lengths(project, task) is not None:
        return
    inputs = partial(lengths_inputs, project, task)
    making = RowsInMaking(task, scope_of("lengths"), inputs, _prepared(project, task))
    measured = measure_task(project, task)
    making.check()
    write_json(lengths_file(project.root, task), measured)
    print(table({task: measured}))
    _warn(*warnings(task, measured, modes(project)))


def _prepared(project: Project, task: str) -> list[Path]:
    """The files of a prepared task."""
    return sorted(path for path in dataset_folder(project, task).rglob("*") if path.is_file())


def _sealing(making: RowsInMaking) -> Callable[[Path], None]:
    """Return the last step before a folder appears: check its inputs once more, then seal it."""

    def commit(folder: Path) -> None:
        making.check()
        seal(folder, making.key)

    return commit
