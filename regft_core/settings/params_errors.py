"""Checks of ``params.yaml`` beyond the schema: names that agree, sets and evaluations that fit, a pinned encoder."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Literal

from regft_core import __version__
from regft_core.catalogue import EVALUATIONS, EXECUTORS, TRACKERS, Catalogue, shown
from regft_core.disk.paths import expand, what_is
from regft_core.errors import ConfigError, Problem
from regft_core.evaluate.analyses import find
from regft_core.models.fetch import ALIASES
from regft_core.models.source import encoder_problems
from regft_core.names import listing, plural, suggestion
from regft_core.schema.params import PATTERN, Params, StoreConfig, split_part, weights_of
from regft_core.schema.tasks import TaskConfig
from regft_core.schema.training import EncoderConfig
from regft_core.settings.document import Document, KeyPath, Place
from regft_core.settings.layers import sizes_of
from regft_core.settings.published import check_published
from regft_core.settings.validate import Found, validate
from regft_core.settings.yaml_paths import project_root

#: Folders of a project that git or DVC own: they would take runs for changed data or code, or delete them.
TAKEN = ("data", "regft_core", "stages", "pipelines", "work", "reports", ".git", ".dvc")
#: Three seeds show little by any rule (benchmarks/statistics.md). What more of them show, the report says.
MIN_SEEDS = 4
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REVISION = re.compile(r"[A-Za-z0-9][\w./-]*", re.ASCII)


def check_params(root: Path, params: Params, document: Document) -> Iterator[Found]:
    lists: list[KeyPath] = [("grid", "tasks"), ("grid", "sizes"), ("grid", "seeds"), ("methods",), ("evaluations",)]
    lists += [("ood",), ("trackers",), ("report", "decide_by"), ("report", "published")]
    lists += [("report", "averages", name) for name in params.report.averages]
    lists += [("task_settings", task, "sizes") for task in params.task_settings]
    for path in lists:
        yield from duplicates(document, path)
    named: list[tuple[KeyPath, str]] = [(("report", "reference"), params.report.reference)]
    named += [(("report", "prefer", at), name) for at, name in enumerate(params.report.prefer)]
    for path, name in named:
        if name not in params.methods:
            # The default of reference is vanilla: without the key, the place to repair is the list of methods.
            at: KeyPath = path if "report" in document.data else ("methods",)
            hint = "list it under methods, or name another; " + suggestion(name, params.methods, "listed")
            yield document.problem("not-listed", at, f"'{name}' is not a listed method", hint)
    yield from check_store(root, params.store, document)
    yield from check_published(root, params, document)
    yield from _check_plug_in(EXECUTORS, params.execution.executor, "run", "regft_core/grid/executors/serial.py")
    for tracker in params.trackers:
        yield from _check_plug_in(TRACKERS, tracker, "log", "examples/trackers/tensorboard.py of the repository")
    execution = params.execution
    instead = {"serial": "set execution.executor: processes", "slurm": "execution.slurm.at_once counts its jobs"}
    if execution.workers > 1 and execution.executor in instead:
        place, how = document.place(("execution", "workers")), instead[execution.executor]
        yield f"{place}: {execution.workers} workers have nothing to do with executor: {execution.executor}; {how}"
    if params.tuning is not None and params.tuning.selection != "split" and "split" in params.tuning.model_fields_set:
        yield f"{document.place(('tuning', 'split'))}: it has no effect with selection: {params.tuning.selection}"
    if (seeds := len(set(params.grid.seeds))) < MIN_SEEDS:
        yield (
            f"{document.place(('grid', 'seeds'))}: {plural(seeds, 'seed')}: "
            f"with fewer than {MIN_SEEDS} only large differences between methods can be shown"
        )


def check_version(document: Document, ours: str = __version__) -> list[str]:
    """Return the warning of a file for an earlier version of regft (``regft: 0.1.0``); ConfigError for a later one."""
    written = document.data.get("regft")
    if not isinstance(written, str) or not re.match(PATTERN, written) or written == ours:
        return []  # absent, or a problem that the schema names
    place = document.place(("regft",))
    if [*map(int, written.split("."))] < [*map(int, ours.split("."))]:
        return [f"{place}: written for regft {written}, this is regft {ours}; CHANGELOG.md says what changed"]
    message = f"was written for regft {written}, and this is regft {ours}"
    hint = f"install that one (pip install 'regft>={written}'), or write regft: {ours} to read it as this one does"
    raise ConfigError([document.problem("newer-version", ("regft",), message, hint)])


def unlisted(params: Params, what: Literal["task", "method"], name: str, document: Document, at: KeyPath) -> Problem:
    """Return the problem of a task that is not in the grid, or of a method that is not listed."""
    listed, where = (params.grid.tasks, "in grid.tasks") if what == "task" else (params.methods, "listed under methods")
    hint = suggestion(name, listed, f"{what}s listed")
    return document.problem("not-listed", at, f"{what} '{name}' is not {where}", hint)


def duplicates(document: Document, path: KeyPath) -> Iterator[Problem]:
    values = document.value(path)
    for i, value in enumerate(values if isinstance(values, list) else ()):
        if value in values[:i]:
            yield document.problem("listed-twice", (*path, i), f"{value} is listed twice", "keep one of them")


def _check_plug_in(catalogue: Catalogue, name: str, function: str, example: str) -> list[Problem]:
    """A file of the project is imported, so that what is wrong in it shows before a run."""
    if catalogue.is_shipped(name):
        return []
    try:
        module = catalogue.load(name)
    except ConfigError as error:
        return error.problems
    if callable(getattr(module, function, None)):
        return []
    message, hint = f"there is no function '{function}' in it", f"{example} is the shortest one"
    return [Problem(f"bad-{catalogue.what}", shown(module.__file__), 0, "", message, hint)]


def check_model(root: Path, model: EncoderConfig, document: Document) -> Iterator[Found]:
    name, revision, at = model.name, model.revision, ("model", "revision")
    try:
        is_local = name in ALIASES or what_is(expand(root, name)) == "a directory"
    except ValueError as error:
        yield document.problem("bad-path", ("model", "name"), str(error), "give an alias, a directory, or a hub id")
        return
    if is_local:
        if revision is not None:
            message = f"'{name}' is not read from the hub, so it has no revision"
            yield document.problem("revision-not-allowed", at, message, "remove the key")
        for key, code, text in encoder_problems(model, root):
            yield document.problem(code, ("model", key), text)
    elif not revision:
        message = f"'{name}' is neither an alias nor a directory here, and a hub id needs a revision"
        hint = f"{suggestion(name, ALIASES, 'aliases')}; or add 'revision:' with the commit (40 hex digits)"
        yield document.problem("revision-missing", ("model", "name"), message, hint)
    else:
        yield from check_revision(revision, name, document, at)


def check_revision(revision: str, of: str, document: Document, at: KeyPath) -> Iterator[Found]:
    """Yield the problem of what cannot be a revision on the hub, and a warning of one that can move."""
    if not _REVISION.fullmatch(revision):
        message = f"'{revision}' is not a commit, tag or branch"
        yield document.problem("bad-revision", at, message, "give the commit (40 hex digits)")
    if moves(revision):
        yield f"{document.place(at)}: revision '{revision}' of {of} can move; pin the commit"


def moves(revision: str) -> bool:
    """Whether ``revision`` is a branch or tag, which may point elsewhere tomorrow."""
    return not _COMMIT.fullmatch(revision)


def check_report(
    params: Params, document: Document, tasks: Mapping[str, TaskConfig], left_out: Mapping[str, Collection[str]]
) -> Iterator[Problem]:
    """Yield tasks and sets in ``report.averages`` and ``report.decide_by`` that are neither there nor ``left_out``."""
    places: list[tuple[KeyPath, str, str]] = [
        (("report", "averages", average, i), *split_part(text))
        for average, parts in params.report.averages.items()
        for i, part in enumerate(parts)
        for text in ([part] if isinstance(part, str) else part)
    ]
    for average, parts in params.report.averages.items():
        sizes = [set(sizes_of(params, task)) for task, _ in weights_of(parts) if task in params.grid.tasks]
        if sizes and not set.intersection(*sizes):
            message, hint = "its tasks have no training size in common", "change task_settings.<task>.sizes"
            yield document.problem("no-common-size", ("report", "averages", average), message, hint)
    for i, name in enumerate(params.report.decide_by):
        places += [(("report", "decide_by", i), task, name) for task in params.grid.tasks]
    for at, task, name in places:
        sets = ["dev", *tasks[task].ood] if task in tasks else [name]
        sets += left_out.get(task, ()) if at[1] == "averages" else ()
        if task not in params.grid.tasks:
            yield unlisted(params, "task", task, document, at)
        elif name not in sets:
            hint = suggestion(name, sets, f"sets of {task}")
            yield document.problem("unknown-set", at, f"task '{task}' is not evaluated on '{name}'", hint)


def check_evaluations(
    params: Params, document: Document, tasks: Mapping[str, TaskConfig]
) -> tuple[list[Found], dict[KeyPath, str]]:
    """Return problems and warnings of ``evaluations``, and the tasks whose rows they read, by the place of the name."""
    problems, read = list[Found](), dict[KeyPath, str]()
    places: dict[str, KeyPath] = {name: ("evaluations", name) for name in params.evaluations}
    if isinstance(listed := document.data.get("evaluations"), list):
        # A list of names is a mapping from them to no options.
        index: dict[KeyPath, Place] = {
            ("evaluations", name): document.place(("evaluations", listed.index(name))) for name in places
        }
        document = Document({**document.data, "evaluations": params.evaluations}, index, document.file)
    for name, at in places.items():
        try:
            evaluation = find(name)
        except ValueError:
            hint = suggestion(name, EVALUATIONS.names(), "there are")
            problems.append(document.problem("unknown-evaluation", at, f"unknown evaluation '{name}'", hint))
            continue
        except ConfigError as error:
            problems += error.problems
            continue
        config, wrong = validate(evaluation.Config, document, at)
        problems += wrong
        method = params.evaluations[name].get(str(evaluation.method))
        if isinstance(method, str) and method not in params.methods:
            problems.append(unlisted(params, "method", method, document, (*at, str(evaluation.method))))
        if config is not None:
            read |= {(*at, str(evaluation.tasks), i): task for i, task in enumerate(evaluation.other_tasks(config))}
        unfit = [task for task, config in tasks.items() if not evaluation.fits(config.kind)]
        kinds = f"'{name}' is for {' and '.join(evaluation.kinds or ())} tasks"
        if unfit and len(unfit) == len(tasks):
            message, hint = f"{kinds}, and there is none in the grid", "take it out, or add such a task"
            problems.append(document.problem("no-task-fits", at, message, hint))
        elif unfit:
            problems.append(f"{document.place(at)}: {kinds}: it leaves {listing(unfit)} out")
    return problems, read


def check_store(root: Path, store: StoreConfig, document: Document) -> list[Problem]:
    def wrong(code: str, message: str) -> list[Problem]:
        hint = "give a folder of its own, for instance .regft, or one outside the project"
        return [document.problem(code, ("store", "path"), f"'{store.path}' {message}", hint)]

    try:
        path = expand(project_root(root), store.path)
    except ValueError as error:
        return wrong("bad-path", str(error))
    there = next(place for place in (path, *path.parents) if what_is(place) is not None)
    if (kind := what_is(there)) != "a directory":
        return wrong("not-a-directory", f"cannot be made: {there} is {kind}")
    home = project_root(root).resolve()
    for place in (path.resolve(), Path(os.path.normpath(path.absolute()))):
        if home.is_relative_to(place):
            return wrong("store-around-project", f"contains the project ({place})")
        for folder in TAKEN:
            if place.is_relative_to(home / folder):
                return wrong("store-in-folder-of-others", f"lies in {folder}/, which belongs to git or DVC")
    return []
