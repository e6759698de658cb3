"""Checks of ``params.yaml`` beyond the schema: names that agree, sets that exist, an encoder that is pinned."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from regft_core import __version__
from regft_core.catalogue import EXECUTORS, shown
from regft_core.disk.paths import expand, what_is
from regft_core.errors import ConfigError, Problem
from regft_core.models.aliases import ALIASES
from regft_core.models.source import encoder_problems
from regft_core.names import nearest, plural, suggestion
from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.params import PATTERN, Params
from regft_core.schema.report import split_part
from regft_core.schema.tasks import TaskConfig
from regft_core.settings.checks.sources import moves, revision_problem
from regft_core.settings.document import Document, KeyPath
from regft_core.settings.layers import sizes_of
from regft_core.settings.papers.published import check_published
from regft_core.settings.store_path import check_store

#: From so many seeds on, the simultaneous intervals of benchmarks/verdicts.py show differences of a few points.
MIN_SEEDS = 6
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)


def check_params(root: Path, params: Params, document: Document) -> tuple[list[Problem], list[str]]:
    """Return problems and warnings of a ``params.yaml``."""
    lists: list[KeyPath] = [("grid", "tasks"), ("grid", "sizes"), ("grid", "seeds"), ("methods",), ("evaluations",)]
    lists += [("task_settings", task, "sizes") for task in params.task_settings]
    problems = [problem for path in lists for problem in duplicates(document, path)]
    if (reference := params.report.reference) not in params.methods:
        # The default is vanilla: without the key, the place to repair is the list of methods.
        at: KeyPath = ("report", "reference") if "report" in document.data else ("methods",)
        hint = "list it under methods, or name another; " + suggestion(reference, params.methods, "listed")
        problems.append(document.problem("not-listed", at, f"'{reference}' is not a listed method", hint))
    problems += _check_model(root, params.model, document)
    problems += check_store(root, params.store, document)
    problems += check_published(root, params, document)
    problems += _check_executor(params.execution.executor)
    warnings, model, seeds = [], params.model, len(set(params.grid.seeds))
    if model.revision is not None and model.name not in ALIASES and moves(model.revision):
        where = document.place(("model", "revision"))
        warnings.append(f"{where}: revision '{model.revision}' of {model.name} can move; pin the commit")
    if seeds < MIN_SEEDS:
        warnings.append(
            f"{document.place(('grid', 'seeds'))}: {plural(seeds, 'seed')}: "
            f"with fewer than {MIN_SEEDS} only large differences between methods can be shown"
        )
    return problems, warnings


def check_version(document: Document, ours: str = __version__) -> list[str]:
    """Return the warning of a file that was written for an earlier version of regft (``regft: 0.1.0``).

    Raises ConfigError for one of a later version: further problems would only be its consequences.
    """
    written = document.data.get("regft")
    if not isinstance(written, str) or not re.match(PATTERN, written) or written == ours:
        return []  # absent, or a problem that the schema names
    place = document.place(("regft",))
    if [*map(int, written.split("."))] < [*map(int, ours.split("."))]:
        return [f"{place}: written for regft {written}, this is regft {ours}; CHANGELOG.md says what changed"]
    message = f"was written for regft {written}, and this is regft {ours}"
    hint = f"install that one (pip install 'regft>={written}'), or write regft: {ours} to read it as this one does"
    raise ConfigError([document.problem("newer-version", ("regft",), message, hint)])


def duplicates(document: Document, path: KeyPath) -> Iterator[Problem]:
    """Yield values that a list in ``document`` holds twice."""
    values = document.items(path)
    for i, value in enumerate(values):
        if value in values[:i]:
            yield document.problem("listed-twice", (*path, i), f"{value} is listed twice", "keep one of them")


def _check_executor(name: str) -> list[Problem]:
    """A file of the project is imported, so that what is wrong in it shows before a run."""
    if EXECUTORS.is_shipped(name):
        return []
    try:
        module = EXECUTORS.load(name)
    except ConfigError as error:
        return error.problems
    if callable(getattr(module, "run", None)):
        return []
    hint = "regft_core/grid/executors/serial.py is the shortest one"
    return [Problem("bad-executor", shown(module.__file__), 0, "", "there is no function 'run' in it", hint)]


def _check_model(root: Path, model: EncoderConfig, document: Document) -> list[Problem]:
    name, at = model.name, ("model", "name")
    try:
        kind = what_is(expand(root, name))
    except ValueError as error:
        return [document.problem("bad-path", at, str(error), "give an alias, a directory, or a hub id")]
    if name in ALIASES or kind == "a directory":
        problems = [document.problem(code, ("model", key), text) for key, code, text in encoder_problems(model, root)]
        if model.revision is None:
            return problems
        message = f"'{name}' is not read from the hub, so it has no revision"
        return [document.problem("revision-not-allowed", ("model", "revision"), message, "remove the key"), *problems]
    near = nearest(name, ALIASES)
    similar = f"did you mean '{near}'? " if near else ""
    give = f"{similar}give an alias ({', '.join(ALIASES)}), a directory relative to the project, or a hub id"
    if kind is not None:
        return [document.problem("not-a-model-directory", at, f"'{name}' is {kind}, not a model directory", give)]
    if not _HUB_ID.fullmatch(name):
        message = f"there is no directory '{name}', and it cannot be a hub id"
        return [document.problem("model-missing", at, message, give)]
    if not model.revision:
        message = f"'{name}' is neither an alias nor a directory here, and a hub id needs a revision"
        hint = f"{similar}add 'revision:' with the commit (40 hex digits, from the hub's list of commits)"
        return [document.problem("revision-missing", at, message, hint)]
    if problem := revision_problem(model.revision):
        return [document.problem("bad-revision", ("model", "revision"), problem, "give the commit (40 hex digits)")]
    return []


def check_report(
    params: Params, document: Document, tasks: Mapping[str, TaskConfig], left_out: Mapping[str, Collection[str]]
) -> tuple[list[Problem], list[str]]:
    """Check the sets that ``report.averages`` and ``report.decide_by`` name.

    Problems: what is no task of the grid, or no set of its task. Warnings: averages without a value, since their tasks
    have no size in common or one of their sets is ``left_out``.
    """
    problems: list[Problem] = []
    warnings: list[str] = []

    def check_set(task: str, name: str, at: KeyPath) -> None:
        sets = ["dev", *tasks[task].ood] if task in tasks else [name]
        if name in left_out.get(task, ()) and at[1] == "averages":
            warnings.append(f"{document.place(at)}: '{at[2]}' has no value: '{task}/{name}' is left out")
        elif name not in sets:
            hint = suggestion(name, sets, f"sets of {task}")
            problems.append(document.problem("unknown-set", at, f"task '{task}' is not judged on '{name}'", hint))

    for average, parts in params.report.averages.items():
        sizes = []
        for i, part in enumerate(parts):
            for text in [part] if isinstance(part, str) else part:
                task, name = split_part(text)
                at: KeyPath = ("report", "averages", average, i)
                sizes.append(set(sizes_of(params, task)))
                if task in params.grid.tasks:
                    check_set(task, name, at)
                else:
                    hint = suggestion(task, params.grid.tasks, "tasks listed")
                    problems.append(document.problem("not-listed", at, f"'{task}' is not in grid.tasks", hint))
        if sizes and not set.intersection(*sizes):
            where = document.place(("report", "averages", average))
            warnings.append(f"{where}: '{average}' has no value: its tasks have no training size in common")
    for i, name in enumerate(params.report.decide_by):
        for task in params.grid.tasks:
            check_set(task, name, ("report", "decide_by", i))
    return problems, warnings
