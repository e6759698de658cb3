"""What the schema cannot say about ``params.yaml``: names that agree, a model that is pinned."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from regft_core.config.names import nearest, suggestion
from regft_core.config.schema import Params
from regft_core.config.yamlio import Document, KeyPath
from regft_core.errors import Problem
from regft_core.models.aliases import ALIASES

MODEL_ALIASES = tuple(ALIASES)
#: With n pairs the smallest two-sided p of the signed-rank test is 2 / 2**n: 6 reach 0.05.
MIN_SEEDS = 6
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REVISION = re.compile(r"[A-Za-z0-9][\w./-]*", re.ASCII)
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)


def check_params(root: Path, params: Params, document: Document) -> tuple[list[Problem], list[str]]:
    """Problems and warnings of a ``params.yaml`` that fits the schema."""
    problems: list[Problem] = []
    warnings: list[str] = []
    for key in ("tasks", "sizes", "seeds"):
        problems += _duplicates(document, ("grid", key), getattr(params.grid, key))
    problems += _check_methods(params, document)
    problems += _check_cell_names(params, document)
    problems += _check_model(root, params, document, warnings)
    seeds = len(set(params.grid.seeds))
    if seeds < MIN_SEEDS:
        warnings.append(
            f"{document.file}:{document.line(('grid', 'seeds'))}: {seeds} seed{'s' if seeds != 1 else ''}: the "
            f"signed-rank test cannot reach p < 0.05 with fewer than {MIN_SEEDS}; differences are descriptive only"
        )
    return problems, warnings


def revision_problem(revision: str) -> str:
    """Why ``revision`` cannot be a revision on the hub; empty when it can."""
    return "" if _REVISION.fullmatch(revision) else f"'{revision}' is not a commit, tag or branch"


def moves(revision: str) -> bool:
    """Whether ``revision`` is a branch or tag, which may point elsewhere tomorrow."""
    return not _COMMIT.fullmatch(revision)


def _duplicates(document: Document, path: KeyPath, values: Sequence[object]) -> list[Problem]:
    first: dict[object, int] = {}
    problems = []
    for i, value in enumerate(values):
        if value in first:
            problems.append(document.problem((*path, i), f"{value} is listed twice", "keep one of them"))
        first.setdefault(value, i)
    return problems


def _check_methods(params: Params, document: Document) -> list[Problem]:
    listed = params.methods
    problems = _duplicates(document, ("methods",), listed)
    if params.report.reference not in listed:
        # The default is vanilla: without the key, the place to repair is the list of methods.
        path: KeyPath = ("report", "reference") if "report" in document.data else ("methods",)
        message = f"report.reference '{params.report.reference}' is not a listed method"
        hint = "list it under methods, or name another; " + suggestion(params.report.reference, listed, "listed")
        problems.append(document.problem(path, message, hint))
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
            problems.append(document.problem(("methods",), message, "use _ for - in one of the names"))
    return problems


def _check_model(root: Path, params: Params, document: Document, warnings: list[str]) -> list[Problem]:
    name, revision = params.model.name, params.model.revision
    at, at_revision = ("model", "name"), ("model", "revision")
    directory = (root / Path(name).expanduser()).is_dir()
    if name in MODEL_ALIASES or directory:
        if revision is None:
            return []
        what = "a local directory" if directory and name not in MODEL_ALIASES else "an alias with pinned content"
        return [document.problem(at_revision, f"'{name}' is {what}; it has no revision", "remove the key")]
    near = nearest(name, MODEL_ALIASES)
    similar = f"did you mean '{near}'? " if near else ""
    if name.startswith((".", "/", "~")) or not _HUB_ID.fullmatch(name):
        hint = f"{similar}give an alias ({', '.join(MODEL_ALIASES)}), a directory relative to the project, or a hub id"
        return [document.problem(at, f"there is no directory '{name}', and it cannot be a hub id", hint)]
    if not revision:
        message = f"'{name}' is neither an alias nor a directory here, and a hub id needs a revision"
        hint = f"{similar}add 'revision:' with the commit (40 hex digits, from the hub's list of commits)"
        return [document.problem(at, message, hint)]
    if problem := revision_problem(revision):
        return [document.problem(at_revision, problem, "give the commit (40 hex digits)")]
    if moves(revision):
        line = document.line(at_revision)
        warnings.append(f"{document.file}:{line}: revision '{revision}' of {name} can move; pin the commit")
    return []
