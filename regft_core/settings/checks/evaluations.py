"""Errors in ``evaluations:`` in ``params.yaml``: unknown names, wrong options, tasks that none fits."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from regft_core.catalogue import EVALUATIONS
from regft_core.errors import ConfigError, Problem
from regft_core.evaluate.analyses import Evaluation, find
from regft_core.names import listing, suggestion
from regft_core.schema.params import Params
from regft_core.schema.tasks import TaskConfig
from regft_core.settings.document import Document, KeyPath
from regft_core.settings.validate import validate


def check_evaluations(
    params: Params, document: Document, tasks: Mapping[str, TaskConfig]
) -> tuple[list[Problem], list[str], dict[KeyPath, str]]:
    """Return problems and warnings of ``evaluations``, and the tasks whose rows they read, by the place of the name.

    ``tasks`` are those of the grid that are right.
    """
    problems, warnings, read = list[Problem](), list[str](), dict[KeyPath, str]()
    given = document.data.get("evaluations")
    for name, options in params.evaluations.items():
        at: KeyPath = ("evaluations", given.index(name)) if isinstance(given, list) else ("evaluations", name)
        try:
            evaluation = find(name)
        except ValueError:
            hint = suggestion(name, EVALUATIONS.names(), "there are")
            problems.append(document.problem("unknown-evaluation", at, f"unknown evaluation '{name}'", hint))
            continue
        except ConfigError as error:
            problems += error.problems
            continue
        if isinstance(given, list):
            problems += _without_options(name, evaluation, document, at)
        else:
            config, wrong = validate(evaluation.Config, document, at)
            problems += wrong
            method = options.get(str(evaluation.method))
            if isinstance(method, str) and method not in params.methods:
                hint, place = suggestion(method, params.methods, "listed are"), (*at, str(evaluation.method))
                message = f"method '{method}' is not listed under methods"
                problems.append(document.problem("not-listed", place, message, hint))
            if config is not None:
                read |= {(*at, str(evaluation.tasks), i): t for i, t in enumerate(evaluation.other_tasks(config))}
        unfit = [task for task, config in tasks.items() if not evaluation.fits(config.kind)]
        kinds = f"'{name}' is for {' and '.join(evaluation.kinds or ())} tasks"
        if unfit and len(unfit) == len(tasks):
            message, hint = f"{kinds}, and there is none in the grid", "take it out, or add such a task"
            problems.append(document.problem("no-task-fits", at, message, hint))
        elif unfit:
            warnings.append(f"{document.place(at)}: {kinds}: it leaves {listing(unfit)} out")
    return problems, warnings, read


def _without_options(name: str, evaluation: Evaluation, document: Document, at: KeyPath) -> list[Problem]:
    """An evaluation in a list has its default options; some may not have any."""
    try:
        evaluation.Config()
    except ValidationError as error:
        missing = listing(str(item["loc"][0]) for item in error.errors() if item["loc"])
        hint = f"write `evaluations: {{{name}: {{...}}}}` with every evaluation as a key of its own"
        return [document.problem("options-missing", at, f"'{name}' needs the options {missing}", hint)]
    return []
