"""The contract of one evaluation, tried on runs of plain fine-tuning of a tiny encoder: ``regft test-evaluation``."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from regft_core.catalogue import EVALUATIONS, use_project
from regft_core.contract import Promise, require, tried
from regft_core.contract.trial import TASKS, Trial, job_of, plain_trial, quiet, ready
from regft_core.errors import ConfigError, Problem
from regft_core.evaluate.analyses import Evaluation, enabled, find
from regft_core.evaluate.analysis_result import Unfit
from regft_core.evaluate.evaluated import EvaluatedRun
from regft_core.runs.analyses import JudgedRun
from regft_core.runs.context import Context
from regft_core.runs.finished_model import FinishedModel
from regft_core.runs.run import run
from regft_core.settings.document import load_yaml


def check_evaluation(root: Path, name: str) -> Iterator[Promise]:
    """Try the contract of the evaluation ``name`` as the project at ``root`` sees it; each promise as it is tried.

    Its options are those of ``params.yaml``. Raises ConfigError: there is none of that name, its file is broken, or an
    option has neither a default nor a value there.
    """
    use_project(root)
    require(EVALUATIONS, name)
    evaluation = find(name)
    yield Promise("its file declares what it is", True)
    listed = _listed_options(root, name)
    tasks = [task for task, declared in TASKS.items() if evaluation.fits(declared.get("kind", "classification"))]
    with tempfile.TemporaryDirectory(prefix="regft-contract-") as scratch:
        others = {evaluation.tasks: tasks, evaluation.method: "vanilla"}
        options = listed | {option: value for option, value in others.items() if option is not None}
        fields = evaluation.Config.model_fields.items()
        if without := [option for option, field in fields if field.is_required() and option not in options]:
            hint = f"try it with values: evaluations: {{{name}: {{{', '.join(f'{one}: ...' for one in without)}}}}}"
            message = f"the evaluation '{name}' has options without a default: {', '.join(without)}"
            raise ConfigError([Problem("option-missing", "params.yaml", 0, f"evaluations.{name}", message, hint)])
        trial = plain_trial(root, Path(scratch), tasks, evaluations={name: options})
        with quiet():
            ready(trial)
            runs = {task: _finished(trial, task, name) for task in tasks}
        unfit = dict[str, str]()

        def on_every_task(law: Callable[[Callable[..., dict[str, Any]], EvaluatedRun], str]) -> Callable[[], str]:
            def tried_on(task: str) -> str:
                try:
                    return law(lambda given=runs[task]: _find(evaluation, given), runs[task])
                except Unfit as reason:
                    unfit[task] = str(reason)
                    return ""

            return lambda: "; ".join(f"{task}: {wrong}" for task in tasks if (wrong := tried_on(task)))

        promise = tried(f"it answers on every kind of task that it fits: {', '.join(tasks)}", on_every_task(_answers))
        unsaid = next(iter(unfit.values())) if len(unfit) == len(tasks) else ""
        yield replace(promise, kept=None, found=unsaid) if unsaid else promise
        for says, law in _LAWS.items():
            yield tried(says, on_every_task(law), unsaid)


def _listed_options(root: Path, name: str) -> dict[str, Any]:
    """The options with which ``params.yaml`` lists the evaluation; none where it does not."""
    path = root / "params.yaml"
    listed = load_yaml(path, root).value(("evaluations", name)) if path.is_file() else None
    return dict(listed) if isinstance(listed, Mapping) else {}


def _finished(trial: Trial, task: str, name: str) -> EvaluatedRun:
    """A trained run as the evaluation sees it."""
    job = job_of(trial, trial.method, task)
    record = run(job, until="finetune")["finetune"]
    context = Context(job)
    model = FinishedModel(context)
    evaluation, options = enabled(context.params)[name]
    return JudgedRun(context, model, record["key"], {"dev": model.answer(context.dev_rows)}).seen_by(
        evaluation, options
    )


def _find(evaluation: Evaluation, given: EvaluatedRun) -> dict[str, Any]:
    return evaluation.run(given).as_json(given.sets)


def _answers(found: Callable[..., dict[str, Any]], _: EvaluatedRun) -> str:
    result = found()
    return (
        ""
        if any(result[part] for part in ("scalars", "tables", "remarks"))
        else "it finds nothing, and no remark says why"
    )


def _in_ranges(found: Callable[..., dict[str, Any]], _: EvaluatedRun) -> str:
    result = found()
    for where, scalars in result["scalars"].items():
        for name, value in scalars.items():
            low, high = result["ranges"].get(name, (None, None))
            if (low is not None and value < low) or (high is not None and value > high):
                return f"{name} of {where} is {value:g}; its range is {low} to {high}"
    return ""


def _twice(found: Callable[..., dict[str, Any]], _: EvaluatedRun) -> str:
    return "" if found() == found() else "a second look at the same run finds something else"


def _own_draws(found: Callable[..., dict[str, Any]], _: EvaluatedRun) -> str:
    """The generators that everybody shares stay where they are."""
    import torch

    states = {
        "random": random.getstate,
        "numpy.random": lambda: np.random.get_state(legacy=False)["state"],  # noqa: NPY002
        "torch": lambda: torch.get_rng_state().tolist(),
    }
    before = {name: str(state()) for name, state in states.items()}
    found()
    moved = [name for name, state in states.items() if str(state()) != before[name]]
    return f"it draws from the generator of {', '.join(moved)}; use regft_core.rng.derive" if moved else ""


def _unchanged(found: Callable[..., dict[str, Any]], given: EvaluatedRun) -> str:
    before = {name: (judged.logits.copy(), judged.gold.copy()) for name, judged in given.sets.items()}
    found()
    for name, (logits, gold) in before.items():
        if not (np.array_equal(logits, given.sets[name].logits) and np.array_equal(gold, given.sets[name].gold)):
            return f"it changes the logits or labels of {name}, which other evaluations read"
    return ""


def _one_row(found: Callable[..., dict[str, Any]], given: EvaluatedRun) -> str:
    found(replace(given, sets={name: judged.take([0]) for name, judged in given.sets.items()}))
    return ""


_LAWS = {
    "its numbers are within its ranges": _in_ranges,
    "it finds the same twice": _twice,
    "it draws from generators of its own": _own_draws,
    "it leaves logits and labels as they are": _unchanged,
    "it answers on a set of one row": _one_row,
}
