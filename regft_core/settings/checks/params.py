"""What the schema cannot say about ``params.yaml``: names that agree, a model that is pinned."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

from regft_core import __version__
from regft_core.catalogue import EXECUTORS, shown
from regft_core.errors import ConfigError, Problem
from regft_core.io.paths import expand, what_is
from regft_core.models.aliases import ALIASES
from regft_core.models.source import encoder_problems
from regft_core.names import nearest, plural, suggestion
from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.params import PATTERN, Params
from regft_core.settings.document import Document, KeyPath
from regft_core.settings.papers.published import check_published
from regft_core.settings.store_path import check_store

MODEL_ALIASES = tuple(ALIASES)
#: From so many seeds on, the simultaneous intervals of benchmarks/verdicts.py show differences of a few points.
MIN_SEEDS = 6
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REVISION = re.compile(r"[A-Za-z0-9][\w./-]*", re.ASCII)
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)


def check_params(root: Path, params: Params, document: Document) -> tuple[list[Problem], list[str]]:
    """Return problems and warnings of a ``params.yaml``."""
    warnings: list[str] = []
    lists: list[KeyPath] = [("grid", "tasks"), ("grid", "sizes"), ("grid", "seeds")]
    lists += [("task_settings", task, "sizes") for task in params.task_settings]
    problems = [problem for path in lists for problem in duplicates(document, path)]
    problems += _check_methods(params, document)
    problems += _check_cell_names(params, document)
    problems += _check_model(root, params.model, document, warnings)
    problems += check_store(root, params.store, document)
    problems += check_published(root, params, document)
    problems += _check_executor(params.execution.executor)
    if (seeds := len(set(params.grid.seeds))) < MIN_SEEDS:
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


def revision_problem(revision: str) -> str:
    """Why ``revision`` cannot be a revision on the hub; empty when it can."""
    return "" if _REVISION.fullmatch(revision) else f"'{revision}' is not a commit, tag or branch"


def moves(revision: str) -> bool:
    """Whether ``revision`` is a branch or tag, which may point elsewhere tomorrow."""
    return not _COMMIT.fullmatch(revision)


def duplicates(document: Document, path: KeyPath) -> list[Problem]:
    """Values that a list in ``document`` holds twice, also when others in it are wrong."""
    first: dict[tuple[type, object], int] = {}
    problems = []
    for i, value in enumerate(document.items(path)):
        if not isinstance(value, str | int | float):
            continue  # the schema's problem
        if (type(value), value) in first:
            problems.append(
                document.problem("listed-twice", (*path, i), f"{value} is listed twice", "keep one of them")
            )
        first.setdefault((type(value), value), i)
    return problems


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


def _check_methods(params: Params, document: Document) -> list[Problem]:
    problems = duplicates(document, ("methods",))
    listed = params.methods
    if params.report.reference not in listed:
        # The default is vanilla: without the key, the place to repair is the list of methods.
        path: KeyPath = ("report", "reference") if "report" in document.data else ("methods",)
        message = f"'{params.report.reference}' is not a listed method"
        hint = "list it under methods, or name another; " + suggestion(params.report.reference, listed, "listed")
        problems.append(document.problem("not-listed", path, message, hint))
    return problems


def _check_cell_names(params: Params, document: Document) -> list[Problem]:
    """``a`` on ``b-c`` and ``a-b`` on ``c`` would be one DVC stage."""
    problems: list[Problem] = []
    seen: dict[str, tuple[str, str]] = {}
    for method, task in product(dict.fromkeys(params.methods), dict.fromkeys(params.grid.tasks)):
        other = seen.setdefault(f"{method}-{task}", (method, task))
        if other != (method, task):
            message = (
                f"method '{method}' on task '{task}' and method '{other[0]}' on task '{other[1]}' "
                f"would share the cell name '{method}-{task}'"
            )
            problems.append(
                document.problem("cell-name-shared", ("methods",), message, "use _ for - in one of the names")
            )
    return problems


def _check_model(root: Path, model: EncoderConfig, document: Document, warnings: list[str]) -> list[Problem]:
    name, revision = model.name, model.revision
    at, at_revision = ("model", "name"), ("model", "revision")
    try:
        kind = what_is(expand(root, name))
    except ValueError as error:
        return [document.problem("bad-path", at, str(error), "give an alias, a directory, or a hub id")]
    if name in MODEL_ALIASES or kind == "a directory":
        problems = []
        if revision is not None:
            what = "an alias with pinned content" if name in MODEL_ALIASES else "a local directory"
            problems.append(
                document.problem(
                    "revision-not-allowed", at_revision, f"'{name}' is {what}; it has no revision", "remove the key"
                )
            )
        problems += [document.problem(code, ("model", key), text) for key, code, text in encoder_problems(model, root)]
        return problems
    near = nearest(name, MODEL_ALIASES)
    similar = f"did you mean '{near}'? " if near else ""
    give = f"{similar}give an alias ({', '.join(MODEL_ALIASES)}), a directory relative to the project, or a hub id"
    if kind is not None:
        return [document.problem("not-a-model-directory", at, f"'{name}' is {kind}, not a model directory", give)]
    if name.startswith((".", "/", "~")) or not _HUB_ID.fullmatch(name):
        return [
            document.problem("model-missing", at, f"there is no directory '{name}', and it cannot be a hub id", give)
        ]
    if not revision:
        message = f"'{name}' is neither an alias nor a directory here, and a hub id needs a revision"
        hint = f"{similar}add 'revision:' with the commit (40 hex digits, from the hub's list of commits)"
        return [document.problem("revision-missing", at, message, hint)]
    if problem := revision_problem(revision):
        return [document.problem("bad-revision", at_revision, problem, "give the commit (40 hex digits)")]
    if moves(revision):
        warnings.append(f"{document.place(at_revision)}: revision '{revision}' of {name} can move; pin the commit")
    return []
