"""Errors in ``evaluations:`` in ``params.yaml``: unknown names, wrong options, tasks that none fits."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from regft_core.catalogue import EVALUATIONS
from regft_core.errors import ConfigError, Problem
from regft_core.evaluate.analyses import Evaluation, find
from regft_core.names import listing, suggestion
from regft_core.schema.method import is_name
from regft_core.schema.params import Params
from regft_core.schema.tasks import TaskConfig
from regft_core.settings.checks.params import duplicates
from regft_core.settings.document import Document, KeyPath
from regft_core.settings.validate import validate


def check_evaluations(
    params: Params, document: Document, tasks: Mapping[str, TaskConfig]
) -> tuple[list[Problem], list[str]]:
    """Return problems and warnings of ``evaluations``; ``tasks`` are those of the grid that are right."""
    problems, warnings = duplicates(document, ("evaluations",)), []
    given = document.data.get("evaluations")
    for name in params.evaluations:
        at: KeyPath = ("evaluations", given.index(name)) if isinstance(given, list) else ("evaluations", name)
        if name not in (known := EVALUATIONS.names()):
            message = f"unknown evaluation '{name}'"
            problems.append(document.problem("unknown-evaluation", at, message, suggestion(name, known, "there are")))
            continue
        try:
            evaluation = find(name)
        except ConfigError as error:
            problems += error.problems
            continue
        if isinstance(given, list):
            problems += _without_options(name, evaluation, document, at)
        else:
            problems += validate(evaluation.Config, document, at)[1]
            problems += _unlisted(evaluation, params, document, at)
        unfit = [task for task, config in tasks.items() if not evaluation.fits(config.kind)]
        kinds = f"'{name}' is for {' and '.join(evaluation.kinds or ())} tasks"
        if unfit and len(unfit) == len(tasks):
            message, hint = f"{kinds}, and there is none in the grid", "take it out, or add such a task"
            problems.append(document.problem("no-task-fits", at, message, hint))
        elif unfit:
            warnings.append(f"{document.place(at)}: {kinds}: it leaves {listing(unfit)} out")
    return problems, warnings


def named_tasks(document: Document) -> dict[KeyPath, str]:
    """Tasks that options of evaluations name, by place, as far as ``evaluations`` is right."""
    given = document.data.get("evaluations")
    if not isinstance(given, dict):
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


def _unlisted(found: Evaluation, params: Params, document: Document, at: KeyPath) -> list[Problem]:
    """A method whose run an evaluation looks into, and which is not in the grid."""
    given = document.data["evaluations"][at[-1]]
    method = given.get(found.method) if found.method is not None and isinstance(given, dict) else None
    if not isinstance(method, str) or method in params.methods:
        return []
    hint = suggestion(method, params.methods, "listed are")
    at = (*at, str(found.method))
    return [document.problem("not-listed", at, f"method '{method}' is not listed under methods", hint)]


def _without_options(name: str, found: Evaluation, document: Document, at: KeyPath) -> list[Problem]:
    """An evaluation in a list has its default options; some may not have any."""
    try:
        found.Config()
    except ValidationError as error:
        missing = listing(str(item["loc"][0]) for item in error.errors() if item["loc"])
        hint = f"write `evaluations: {{{name}: {{...}}}}` with every evaluation as a key of its own"
        return [document.problem("options-missing", at, f"'{name}' needs the options {missing}", hint)]
    return []
