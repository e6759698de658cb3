"""Sets that ``report`` names: in ``averages``, means over tasks and sets, and in ``decide_by``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from regft_core.errors import Problem
from regft_core.names import suggestion
from regft_core.schema.params import Params
from regft_core.schema.report import Part
from regft_core.schema.tasks import TaskConfig
from regft_core.settings.document import Document, KeyPath
from regft_core.settings.layers import sizes_of


def split_part(part: str) -> tuple[str, str]:
    """``mnli/mnli_mm`` as (task, set); a task alone stands for its dev set."""
    task, _, name = part.partition("/")
    return task, name or "dev"


def leaves(parts: Sequence[Part]) -> dict[tuple[str, str], float]:
    """(task, set) -> weight; a nested list weighs as one part. Weights add up to 1."""
    found: dict[tuple[str, str], float] = {}
    for part in parts:
        inner = [part] if isinstance(part, str) else part
        for name in inner:
            key = split_part(name)
            found[key] = found.get(key, 0.0) + 1 / len(parts) / len(inner)
    return found


def check_averages(
    params: Params,
    document: Document,
    tasks: Mapping[str, TaskConfig],
    left_out: Mapping[str, Collection[str]],
) -> tuple[list[Problem], list[str]]:
    """Problems: parts that are no task of the grid, or no set of their task. Warnings: parts that are ``left_out``."""
    problems: list[Problem] = []
    warnings: list[str] = []
    for name, parts in params.report.averages.items():
        used = [part for text in parts for part in ([text] if isinstance(text, str) else text)]
        sizes = [set(sizes_of(params, split_part(text)[0])) for text in used]
        if sizes and not set.intersection(*sizes):
            where = document.place(("report", "averages", name))
            warnings.append(f"{where}: the average '{name}' has no value: its tasks have no training size in common")
        for i, part in enumerate(parts):
            for j, text in enumerate([part] if isinstance(part, str) else part):
                at: KeyPath = (
                    ("report", "averages", name, i) if isinstance(part, str) else ("report", "averages", name, i, j)
                )
                task, own = split_part(text)
                if task not in params.grid.tasks:
                    hint = suggestion(task, params.grid.tasks, "tasks listed")
                    problems.append(document.problem("not-listed", at, f"'{task}' is not in grid.tasks", hint))
                elif own in left_out.get(task, {}):
                    where = document.place(at)
                    warnings.append(f"{where}: the average '{name}' has no value: '{text}' is left out")
                elif task in tasks and own not in ("dev", *tasks[task].ood):
                    hint = suggestion(own, ["dev", *tasks[task].ood], f"sets of {task}")
                    problems.append(
                        document.problem("unknown-set", at, f"task '{task}' is not judged on '{own}'", hint)
                    )
    return problems, warnings


def check_decide_by(params: Params, document: Document, tasks: Mapping[str, TaskConfig]) -> list[Problem]:
    """Sets of ``report.decide_by`` that do not judge every task of the grid."""
    problems = []
    for i, name in enumerate(params.report.decide_by):
        for task in params.grid.tasks:
            sets = ["dev", *tasks[task].ood] if task in tasks else [name]
            if name not in sets:
                message = f"decide_by names '{name}', but task '{task}' is not judged on it"
                hint = suggestion(name, sets, f"sets of {task}")
                problems.append(document.problem("unknown-set", ("report", "decide_by", i), message, hint))
    return problems
