"""What each DVC stage does, between two looks at its facts.

A stage computes its own fact before it starts and again before it writes: if it is no longer what
the stage ``facts`` wrote down, nothing is written (``facts.check_fact``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regft_core.config.project import Project
from regft_core.data.lengths import table, warnings
from regft_core.data.prepare import prepare_dataset
from regft_core.data.subsample import write_subsamples
from regft_core.phases import facts
from regft_core.phases.cells import run_cell
from regft_core.phases.evaluate import evaluate
from regft_core.phases.finetune import finetune
from regft_core.phases.lengths import measure_task, modes, write_lengths
from regft_core.phases.no_search import skip_search
from regft_core.phases.outputs import write_evaluation, write_training
from regft_core.phases.project import check_listed, open_project
from regft_core.phases.search import search
from regft_core.phases.tuning import tune

#: Computes the fact of one stage from the project as it is now.
FactOf = Callable[[Project], Mapping[str, Any]]


@contextmanager
def guarded(root: Path, of: Mapping[str, FactOf], **given: str) -> Iterator[Callable[[], None]]:
    """Check some facts by name now; the value given to the block checks them again, right before writing.

    ``given`` are names of the command line (``method``, ``task``), which ``params.yaml`` must list.
    """

    def check(when: str) -> None:
        project = open_project(root)
        check_listed(project, **given)
        for name, fact in of.items():
            facts.check_fact(root, name, fact(project), when)

    check("since the stage facts ran")
    yield lambda: check("while this stage ran")


def run_dataset(root: Path, task: str) -> None:
    """Write ``work/datasets/<task>``."""
    with guarded(root, {f"task-{task}": lambda project: facts.task_fact(project, task)}, task=task) as unchanged:
        prepare_dataset(
            root, task, open_project(root).tasks, root / "work" / "datasets" / task, before_commit=unchanged
        )


def run_subsample(root: Path, task: str) -> None:
    """Write ``work/subsamples/<task>`` with every size."""
    with guarded(root, {"subsample": facts.subsample_fact}, task=task) as unchanged:
        params = open_project(root).params
        write_subsamples(
            root, task, params.grid.sizes, params.grid.seeds, params.subsample.stratified, before_commit=unchanged
        )


def run_lengths(root: Path, task: str) -> None:
    """Write ``work/lengths/<task>.json``; warns of sets whose rows are cut."""
    with guarded(root, {"lengths": facts.lengths_fact}, task=task) as unchanged:
        project = open_project(root)
        found = measure_task(project, task)
        unchanged()
        write_lengths(project, task, found)
    print(table({task: found}))
    for text in warnings(task, found, modes(project)):
        print(f"warning: {text}", file=sys.stderr)


def _settings(method: str, task: str) -> dict[str, FactOf]:
    """What the task changes for the method."""
    return {f"settings-{method}-{task}": facts.of_cell(method, task)}


def run_search(root: Path, method: str, task: str) -> None:
    """Write ``work/search/<method>/<task>``: the phases before fine-tuning."""
    if skip_search(root, method, task):
        return
    of = {f"search-{method}": facts.of_method(facts.search_fact, method), **_settings(method, task)}
    with guarded(root, of, method=method, task=task) as unchanged:
        context, records = run_cell(root, search, method, task, tuned=tune(root, method, task))
        unchanged()
        write_training(context, "search", records)


def run_finetune(root: Path, method: str, task: str) -> None:
    """Write ``work/finetune/<method>/<task>``."""
    of = {f"finetune-{method}": facts.of_method(facts.finetune_fact, method), **_settings(method, task)}
    with guarded(root, of, method=method, task=task) as unchanged:
        context, records = run_cell(root, finetune, method, task, before="search")
        unchanged()
        write_training(context, "finetune", records)


def run_evaluate(root: Path, method: str, task: str) -> None:
    """Write ``work/evaluate/<method>/<task>`` and ``work/metrics/<method>/<task>.json``."""
    # How the encoder reads a text, and which runs there are, is in the fact of fine-tuning.
    own = {f"finetune-{method}": facts.of_method(facts.finetune_fact, method), **_settings(method, task)}
    with guarded(root, {"evaluate": facts.evaluate_fact, **own}, method=method, task=task) as unchanged:
        context, records = run_cell(root, evaluate, method, task, before="finetune")
        unchanged()
        write_evaluation(context, records)
