"""The rows of every task, brought up to date: prepared sets, the subsamples of every size and seed, token lengths."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import product
from typing import Any

from regft_core.data.checks import leak_warning, warnings_of
from regft_core.data.file_format import below_data
from regft_core.data.lengths import table, warnings
from regft_core.data.prepare import prepare_dataset
from regft_core.data.prompts import wrong_words
from regft_core.data.splits import split_line
from regft_core.data.subsample import write_subsamples
from regft_core.disk.canonical import sha256_file, sha256_json
from regft_core.disk.files import remove, write_json
from regft_core.disk.reading import read_json
from regft_core.errors import ConfigError, DataError, InputChanged, Problem
from regft_core.grid.measured_lengths import fast_tokenizer, lengths_inputs, measure_task, up_to_date_lengths
from regft_core.grid.missing_files import require_named_sets, splits_read, tasks_to_prepare
from regft_core.kinds import find
from regft_core.models.source import resolve_model
from regft_core.names import listing
from regft_core.runs.code import Scope, code_of, load
from regft_core.runs.keys import scope_of
from regft_core.runs.work import Work, dataset_folder, described_task, is_current, seal
from regft_core.schema.method import Method, other_tasks
from regft_core.schema.sources import FilesSource
from regft_core.schema.tasks import TaskConfig
from regft_core.settings.layers import sizes_of
from regft_core.settings.project import Project
from regft_core.settings.yaml_paths import task_file


def prepare(project: Project, method: Method | None = None, task: str = "") -> None:
    """Bring ``work/datasets``, ``work/subsamples`` and ``work/lengths`` up to date; tasks that nothing reads go.

    ``method``, ``task``: only what training the one on the other reads.

    Raises ConfigError for a prompt's word that is not one token; DataError, ModelError: rows, or the tokenizer, cannot
    be read; InputChanged: what rows are made from was edited meanwhile.
    """
    require_named_sets(project)
    _check_words(project)
    every, listed = tasks_to_prepare(project), project.params.grid.tasks
    for name in every if method is None else dict.fromkeys([task, *other_tasks([method])]):
        _dataset(project, name)
        if name in listed:
            _subsamples(project, name)
            _lengths(project, name)
    if method is not None:
        return
    for folder, tasks in (("datasets", every), ("subsamples", listed), ("lengths", listed)):
        for path in sorted((project.root / "work" / folder).glob("*")):
            if path.name.removesuffix(".json") not in tasks:
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
    """Prepare a task: by its definition, its OOD sets, the content of its files, and the code that reads them."""
    config, small = prepared_task(project, task), project.params.small_scale
    scope = scope_of("dataset", kinds=[config.kind])
    rows = small.rows if small is not None else None  # of each set, at most
    splits = {split for source, split, _ in splits_read(project, task) if isinstance(source, FilesSource)}
    files = {split: project.root / "data" / below_data(split) for split in splits}
    folder = dataset_folder(project.root, task)

    def inputs() -> dict[str, Any]:
        return {
            "rows": rows,
            "task": _definition(config),
            "judges": {name: _definition(project.tasks[name]) for name in config.ood if name in project.tasks},
            "files": {name: sha256_file(path) if path.is_file() else None for name, path in files.items()},
            "code": code_of(scope).sha256,
        }

    if is_current(folder, sha256_json(inputs())):
        return
    print(f"preparing task {task}", flush=True)
    key = _key_of_rows(task, scope, inputs)

    def place(split: str) -> str:
        return str(project.documents[task_file(task)].place(("splits", split)))

    tasks = {**project.tasks, task: config}
    prepare_dataset(project.root, task, tasks, folder, lambda made: seal(made, key()), place, rows)
    described = read_json(folder / "task.json")
    if line := split_line(described):
        print(f"{task}: {line}")
    _warn(leak_warning(task, described) or "", *warnings_of(task, described))


def _subsamples(project: Project, task: str) -> None:
    params, scope = project.params, scope_of("subsample", kinds=[project.tasks[task].kind])
    folder = project.root / "work" / "subsamples" / task
    drawn = sizes, seeds, stratified = sizes_of(params, task), params.grid.seeds, params.subsample.stratified

    def inputs() -> dict[str, Any]:
        rows, code = described_task(project.root, task)["content"], code_of(scope).sha256
        return {"code": code, "stratified": stratified, "sizes": list(sizes), "seeds": list(seeds), "rows": rows}

    if is_current(folder, sha256_json(inputs())):
        return
    key = _key_of_rows(task, scope, inputs)
    write_subsamples(project.root, task, *drawn, lambda made: seal(made, key()))
    _warn(*skew_warnings(project, [task]))


def _lengths(project: Project, task: str) -> None:
    if up_to_date_lengths(project, task) is not None:
        return
    key = _key_of_rows(task, scope_of("lengths"), partial(lengths_inputs, project, task))
    measured = measure_task(project, task)
    key()
    write_json(Work(project.root).lengths_file(task), measured)
    print(table({task: measured}))
    _warn(*warnings(task, measured))


def _key_of_rows(task: str, scope: Scope, inputs: Callable[[], Mapping[str, Any]]) -> Callable[[], str]:
    """Return a function for the key of rows that are about to be made from ``inputs``; InputChanged after an edit."""
    before = inputs()
    load(scope)

    def key() -> str:
        if inputs() != before:
            raise InputChanged("rows-edited", f"files or code changed while rows of task '{task}' were made")
        load(scope)
        return sha256_json(before)

    return key


#: A class with a smaller share of the training rows is called rare; of many classes, with less than that part of an
#: equal share.
RARE, OF_EQUAL = 0.2, 0.6


def skew_warnings(project: Project, tasks: Iterable[str] | None = None) -> list[str]:
    """One line for each task that accuracy ranks methods on, although a class is rare at the largest size drawn."""
    texts = []
    for name in project.params.grid.tasks if tasks is None else tasks:
        task = project.tasks[name]
        if not find(task.kind).one_label or task.primary != "accuracy":
            continue
        counts = _drawn(project, name)
        total = sum(counts.values())
        limit = min(RARE, OF_EQUAL / max(1, len(counts))) * total
        if rare := [f"'{label}' {count / total:.0%}" for label, count in counts.items() if count < limit]:
            remedy = "metrics: [accuracy, f1_macro] and primary: f1_macro"
            if project.shared(name).class_weights == "none":
                remedy += ", perhaps with training: {class_weights: balanced}"
            texts.append(
                f"task '{name}': few training rows are {listing(rare)}, and accuracy hardly counts them; set {remedy}"
            )
    return texts


def _drawn(project: Project, task: str) -> dict[str, int]:
    """Rows of each label at the largest size that is drawn, of one seed; empty where none is."""
    work, sizes = Work(project.root), sizes_of(project.params, task)
    for size in sorted(sizes, key=lambda size: math.inf if size == "full" else size, reverse=True):
        with suppress(DataError):  # not drawn yet
            return next((draw.label_counts or {} for draw in work.subsample(task, str(size)).seeds.values()), {})
    return {}


def prepared_task(project: Project, task: str) -> TaskConfig:
    config = project.tasks[task]
    return config if task in project.params.grid.tasks else config.model_copy(update={"ood": {}})


def _definition(task: TaskConfig) -> dict[str, Any]:
    # How the task is trained on is in the keys of the runs that train on it; submissions are no stage.
    return task.model_dump(mode="json", exclude={"description", "training", "model", "submission"})
