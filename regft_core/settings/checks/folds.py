"""What the seeds of a grid and the rules of choice say to tasks that are judged in folds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from regft_core.errors import Problem
from regft_core.names import plural
from regft_core.schema.params import Params
from regft_core.schema.tasks import FoldsConfig, TaskConfig
from regft_core.settings.document import Document


def check_folds(params: Params, document: Document, tasks: Mapping[str, TaskConfig]) -> tuple[list[Problem], list[str]]:
    """Problems and warnings of the ``tasks`` of the grid that have folds.

    Problems: seeds without a fold, a choice that rows of other folds would make. Warnings: repeats that the seeds
    leave incomplete, so that some rows judge more often than others.
    """
    folded = {name: task.splits.dev for name, task in tasks.items() if isinstance(task.splits.dev, FoldsConfig)}
    problems, warnings = [], []
    for name, dev in folded.items():
        problems += list(_beyond(document, name, dev))
        warnings += list(_incomplete(document, name, dev, params.grid.seeds))
    if folded and params.tuning is not None:
        problems += list(_tuning(params, document, next(iter(folded))))
    return problems, warnings


def _beyond(document: Document, name: str, dev: FoldsConfig) -> Iterator[Problem]:
    most = dev.folds * dev.repeats
    what = f"{plural(dev.folds, 'fold')} and {plural(dev.repeats, 'repeat')}"
    for i, seed in enumerate(document.items(("grid", "seeds"))):
        if isinstance(seed, int) and seed >= most:
            message = f"seed {seed} has no fold: task '{name}' has {what}, so its seeds are 0 to {most - 1}"
            hint = f"take seeds up to {most - 1}, or set repeats: {seed // dev.folds + 1} in splits.dev of that task"
            yield document.problem("no-such-fold", ("grid", "seeds", i), message, hint)


def _incomplete(document: Document, name: str, dev: FoldsConfig, seeds: tuple[int, ...]) -> Iterator[str]:
    repeats = {seed // dev.folds for seed in seeds if seed < dev.folds * dev.repeats}
    missing = sorted({repeat * dev.folds + fold for repeat in repeats for fold in range(dev.folds)} - set(seeds))
    if missing:
        yield (
            f"{document.place(('grid', 'seeds'))}: {plural(len(seeds), 'seed')} of {dev.folds} folds "
            f"of task '{name}' make no whole repeats, so rows are not judged equally often; add seeds "
            f"{', '.join(map(str, missing))}"
        )


def _tuning(params: Params, document: Document, name: str) -> Iterator[Problem]:
    tuning = params.tuning
    assert tuning is not None
    if tuning.selection != "split":
        message = f"'{tuning.selection}' would choose values by the rows that judge the folds of task '{name}'"
        yield document.problem("chosen-by-judges", ("tuning", "selection"), message, "set selection: split")
    elif not tuning.judged_by_seed:
        message = f"one choice for all seeds would be made by rows that judge other folds of task '{name}'"
        yield document.problem("chosen-by-judges", ("tuning", "per"), message, "set per: seed")
