"""The contract of one evaluation, tried on runs of plain fine-tuning of a tiny encoder: ``regft test-evaluation``."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from regft_core.catalogue import EVALUATIONS, use_project
from regft_core.contract import Promise, require, tried
from regft_core.contract.trial import TASKS, Trial, plain_trial, quiet
from regft_core.errors import ConfigError, Problem
from regft_core.evaluate.analyses import Evaluation, enabled, find
from regft_core.evaluate.analysis_result import Unfit
from regft_core.evaluate.evaluated import EvaluatedRun
from regft_core.runs.analyses import JudgedRun
from regft_core.runs.context import Context
from regft_core.runs.finished_model import FinishedModel
from regft_core.runs.run import run
from regft_core.settings.document import load_yaml

#: What a law is given: a look at a run as JSON, and the run.
Look = Callable[[EvaluatedRun], dict[str, Any]]
Law = Callable[[Look, EvaluatedRun], str]


def check_evaluation(root: Path, name: str) -> Iterator[Promise]:
    """Try the contract of the evaluation ``name`` as the project at ``root`` sees it; each promise as it is tried.

    Its options are those of ``params.yaml``. Raises ConfigError: there is none of that name, its file is broken, or an
    option has neither a default nor a value there.
    """
    use_project(root)
    require(EVALUATIONS, name)
    evaluation = find(name)
    yield Promise("its file declares what it is", True)
    tasks = [task for task, declared in TASKS.items() if evaluation.fits(declared.get("kind", "classification"))]
    with tempfile.TemporaryDirectory(prefix="regft-contract-") as scratch:
        trial = plain_trial(root, Path(scratch), tasks, evaluations={name: _options(root, evaluation, tasks)})
        with quiet():
            runs = {task: _finished(trial, task, name) for task in tasks}
        answers = f"it answers on every kind of task that it fits: {', '.join(tasks)}"
        for says, law in {answers: _answers, **_LAWS}.items():
            yield tried(says, partial(_on_every_task, law, evaluation, runs))


def _options(root: Path, evaluation: Evaluation, tasks: list[str]) -> dict[str, Any]:
    path, name = root / "params.yaml", evaluation.name
    listed = load_yaml(path, root).value(("evaluations", name)) if path.is_file() else None
    given = {evaluation.tasks: tasks, evaluation.method: "vanilla"}
    options = dict(listed) if isinstance(listed, Mapping) else {}
    options |= {option: value for option, value in given.items() if option is not None}
    fields = evaluation.Config.model_fields.items()
    if without := [option for option, field in fields if field.is_required() and option not in options]:
        hint = f"try it with values: evaluations: {{{name}: {{{', '.join(f'{one}: ...' for one in without)}}}}}"
        message = f"the evaluation '{name}' has options without a default: {', '.join(without)}"
        raise ConfigError([Problem("option-missing", "params.yaml", 0, f"evaluations.{name}", message, hint)])
    return options


def _finished(trial: Trial, task: str, name: str) -> EvaluatedRun:
    """A trained run as the evaluation sees it."""
    run(trial.job(task), until="finetune")
    context = Context(trial.job(task))
    model = FinishedModel(context)
    judged = JudgedRun(context, model, {"dev": model.answer(context.dev_rows)})
    return judged.seen_by(*enabled(context.params)[name])


def _on_every_task(law: Law, evaluation: Evaluation, runs: Mapping[str, EvaluatedRun]) -> str:
    """Return what is wrong on which task; raises Unfit where there is nothing to show on any."""
    wrong, unfit = [], list[Unfit]()
    for task, of_task in runs.items():
        try:
            if found := law(lambda given: evaluation.run(given).as_json(given.sets), of_task):
                wrong.append(f"{task}: {found}")
        except Unfit as reason:
            unfit.append(reason)
    if len(unfit) == len(runs):
        raise unfit[0]
    return "; ".join(wrong)


def _answers(look: Look, given: EvaluatedRun) -> str:
    found = look(given)
    says = any(found[part] for part in ("scalars", "tables", "remarks"))
    return "" if says else "it finds nothing, and no remark says why"


def _in_ranges(look: Look, given: EvaluatedRun) -> str:
    found = look(given)
    for where, scalars in found["scalars"].items():
        for name, value in scalars.items():
            low, high = found["ranges"].get(name, (None, None))
            if (low is not None and value < low) or (high is not None and value > high):
                return f"{name} of {where} is {value:g}; its range is {low} to {high}"
    return ""


def _twice(look: Look, given: EvaluatedRun) -> str:
    return "" if look(given) == look(given) else "a second look at the same run finds something else"


def _own_draws(look: Look, given: EvaluatedRun) -> str:
    """The generators that everybody shares stay where they are."""
    import torch

    states = {
        "random": random.getstate,
        "numpy.random": lambda: np.random.get_state(legacy=False)["state"],  # noqa: NPY002
        "torch": lambda: torch.get_rng_state().tolist(),
    }
    before = {name: str(state()) for name, state in states.items()}
    look(given)
    moved = [name for name, state in states.items() if str(state()) != before[name]]
    return f"it draws from the generator of {', '.join(moved)}; use regft_core.rng.derive" if moved else ""


def _unchanged(look: Look, given: EvaluatedRun) -> str:
    before = {name: (judged.logits.copy(), judged.gold.copy()) for name, judged in given.sets.items()}
    look(given)
    for name, (logits, gold) in before.items():
        if not (np.array_equal(logits, given.sets[name].logits) and np.array_equal(gold, given.sets[name].gold)):
            return f"it changes the logits or labels of {name}, which other evaluations read"
    return ""


def _one_row(look: Look, given: EvaluatedRun) -> str:
    look(replace(given, sets={name: judged.take([0]) for name, judged in given.sets.items()}))
    return ""


_LAWS: dict[str, Law] = {
    "its numbers are within its ranges": _in_ranges,
    "it finds the same twice": _twice,
    "it draws from generators of its own": _own_draws,
    "it leaves logits and labels as they are": _unchanged,
    "it answers on a set of one row": _one_row,
}
