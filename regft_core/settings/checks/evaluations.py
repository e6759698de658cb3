"""Errors in ``evaluations:`` in ``params.yaml``: unknown names, wrong options, tasks that none fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from pydantic import BaseModel, ValidationError

from regft_core.catalogue import EVALUATIONS
from regft_core.errors import ConfigError, Problem
from regft_core.names import listing, suggestion
from regft_core.schema.method import is_name
from regft_core.schema.params import Params
from regft_core.schema.tasks import TaskConfig
from regft_core.settings.checks.params import duplicates
from regft_core.settings.messages.explain import validate
from regft_core.settings.yaml.document import Document, KeyPath


class Declared(Protocol):
    """What the configuration asks of an evaluation (``regft_core.evaluate.analyses.Evaluation``)."""

    @property
    def kinds(self) -> tuple[str, ...] | None:
        """Kinds of task that it fits; None: every one."""

    def fits(self, kind: str) -> bool:
        """Whether it fits a kind."""

    @property
    def Config(self) -> type[BaseModel]:
        """Its options."""

    @property
    def tasks(self) -> str | None:
        """The option that lists tasks whose rows it reads."""

    @property
    def method(self) -> str | None:
        """The option that names a method whose run it looks into."""


#: Finds an evaluation by its name; raises ConfigError when its file is not one.
FindEvaluation = Callable[[str], Declared]


def check_evaluations(
    params: Params, document: Document, tasks: Mapping[str, TaskConfig], find: FindEvaluation | None
) -> tuple[list[Problem], list[str]]:
    """Problems and warnings of ``evaluations``.

    Args:
        params: may be incomplete (``parts``).
        tasks: those of the grid; one that is wrong may be missing.
        find: looks an evaluation up; without it only names are checked.
    """
    if not params.known("evaluations"):
        return [], []
    problems, warnings = duplicates(document, ("evaluations",)), []
    given = document.data.get("evaluations")
    for name in params.evaluations:
        at: KeyPath = ("evaluations", given.index(name)) if isinstance(given, list) else ("evaluations", name)
        known = EVALUATIONS.names()
        if name not in known:
            problems.append(
                document.problem(
                    "unknown-evaluation", at, f"unknown evaluation '{name}'", suggestion(name, known, "there are")
                )
            )
            continue
        if find is None:
            continue
        try:
            found = find(name)
        except ConfigError as error:
            problems += error.problems
            continue
        if isinstance(given, list):
            problems += _without_options(name, found, document, at)
        else:
            problems += validate(found.Config, document, at)[1]
            problems += _unlisted(found, params, document, at)
        unfit = [task for task, config in tasks.items() if config.known("kind") and not found.fits(config.kind)]
        if unfit and len(unfit) == len(tasks):
            message = f"'{name}' is for {' and '.join(found.kinds or ())} tasks, and there is none in the grid"
            problems.append(document.problem("no-task-fits", at, message, "take it out, or add such a task"))
        elif unfit:
            what = f"'{name}' is for {' and '.join(found.kinds or ())} tasks: it leaves {listing(unfit)} out"
            warnings.append(f"{document.file}:{document.line(at)}: {what}")
    return problems, warnings


def named_tasks(document: Document, find: FindEvaluation | None) -> dict[KeyPath, str]:
    """Tasks that options of evaluations name, by place, as far as ``evaluations`` is right."""
    given = document.data.get("evaluations")
    if find is None or not isinstance(given, dict):
        return {}
    found: dict[KeyPath, str] = {}
    for name in sorted(set(given) & set(EVALUATIONS.names())):
        try:
            option = find(name).tasks
        except ConfigError:
            continue  # said by check_evaluations
        options = given[name]
        listed = options.get(option) if option is not None and isinstance(options, dict) else None
        for i, task in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(task, str) and is_name(task):
                found["evaluations", name, str(option), i] = task
    return found


def _unlisted(found: Declared, params: Params, document: Document, at: KeyPath) -> list[Problem]:
    """A method whose run an evaluation looks into, and which is not in the grid."""
    given = document.data["evaluations"][at[-1]]
    method = given.get(found.method) if found.method is not None and isinstance(given, dict) else None
    if not isinstance(method, str) or not params.known("methods") or method in params.methods:
        return []
    hint = suggestion(method, params.methods, "listed are")
    at = (*at, str(found.method))
    return [document.problem("not-listed", at, f"method '{method}' is not listed under methods", hint)]


def _without_options(name: str, found: Declared, document: Document, at: KeyPath) -> list[Problem]:
    """An evaluation in a list has its default options; some may not have any."""
    try:
        found.Config()
    except ValidationError as error:
        missing = listing(str(item["loc"][0]) for item in error.errors() if item["loc"])
        hint = f"write `evaluations: {{{name}: {{...}}}}` with every evaluation as a key of its own"
        return [document.problem("options-missing", at, f"'{name}' needs the options {missing}", hint)]
    return []
