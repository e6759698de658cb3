"""``regft test-evaluation``, on runs of plain fine-tuning of a tiny encoder, and ``regft test-metric``, on labels."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core import metrics
from regft_core.catalogue import EVALUATIONS, METRICS, use_project
from regft_core.contract import Promise, require, tried
from regft_core.contract.trial import TASKS, Trial, plain_trial, quiet
from regft_core.errors import ConfigError, Problem
from regft_core.evaluate.analyses import Evaluation, enabled, find
from regft_core.evaluate.analysis_result import Unfit
from regft_core.evaluate.evaluated import EvaluatedRun
from regft_core.kinds import find as find_kind
from regft_core.metrics import Metric
from regft_core.runs.analyses import JudgedRun
from regft_core.runs.context import Context
from regft_core.runs.finished_model import FinishedModel
from regft_core.runs.run import run
from regft_core.settings.document import load_yaml

Array = npt.NDArray[Any]
#: What a law of an evaluation is given: a look at a run as JSON, and the run.
Look = Callable[[EvaluatedRun], dict[str, Any]]
Law = Callable[[Look, EvaluatedRun], str]


def check_evaluation(root: Path, name: str) -> Iterator[Promise]:
    """Try the contract of the evaluation ``name``, with the options of ``params.yaml``; each promise as it is tried.

    Raises ConfigError: there is none of that name, its file is broken, or an option has neither a default nor a value.
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


ROWS, LABELS, RESAMPLES, PREDICTIONS = 40, 3, 4, 2
TOLERANCE = 1e-9


def check_metric(root: Path, name: str) -> Iterator[Promise]:
    """Try the contract of the metric ``name``, promise by promise. Raises ConfigError for none, or a broken file."""
    use_project(root)
    require(METRICS, name)
    metric = metrics.find(name)
    yield Promise("its file declares what it is", True)
    for says, law in _METRIC_LAWS.items():
        yield tried(says, partial(_on_every_kind, metric, law))
    unsaid = "" if metric.weighted is not None else "the file has no weighted(), so resamples are scored one by one"
    law = partial(_on_every_kind, metric, _weighted)
    yield tried("weighted() counts a row as often as its weight says", law, unsaid)


def _on_every_kind(metric: Metric, law: Callable[[Metric, Array, Array, int | None], str]) -> str:
    wrong = []
    for kind in metric.kinds:
        dtype = find_kind(kind).dtype
        # Two labels where one of them counts, so that the others are the negative.
        labels, positive = (2, 1) if metric.needs_positive_label else (LABELS, None)
        gold, predicted = (_drawn(dtype, labels, seed) for seed in (0, 1))
        predicted = np.where(np.arange(ROWS) % 2 == 0, gold, predicted)  # better than chance
        copies = gold.copy(), predicted.copy()
        if found := law(metric, gold, predicted, positive):
            wrong.append(f"{kind}: {found}")
        elif not (np.array_equal(gold, copies[0]) and np.array_equal(predicted, copies[1])):
            wrong.append(f"{kind}: it changes the arrays that it is given")
    return "; ".join(wrong)


def _drawn(dtype: str, labels: int, seed: int) -> Array:
    """[n] labels of a kind: indices, values, or sets of labels as bits."""
    generator = np.random.default_rng(seed)
    if dtype == "float64":
        return generator.uniform(0.0, 5.0, ROWS)
    return generator.integers(0, labels if dtype == "int64" else 1 << labels, ROWS).astype(dtype)


def _in_range(metric: Metric, gold: Array, predicted: Array, positive: int | None) -> str:
    low, high = metric.range
    sides = {
        "of predictions": (gold, predicted),
        "of right predictions": (gold, gold),
        "of one prediction for all rows": (gold, np.full_like(predicted, predicted[0])),
        "where all gold labels are one": (np.full_like(gold, gold[0]), predicted),
        "of one row": (gold[:1], predicted[:1]),
    }
    for what, pair in sides.items():
        value = metric.score(*pair, positive)
        if not isinstance(value, float):
            return f"score {what} is {value!r}, of {type(value).__name__}; return a float"
        if not math.isfinite(value) or not low - TOLERANCE <= value <= high + TOLERANCE:
            return f"the value {what} is {value:g}; RANGE is {low:g} to {high:g}, and what is undefined is 0.0"
    return ""


def _best(metric: Metric, gold: Array, predicted: Array, positive: int | None) -> str:
    right, other = metric.score(gold, gold, positive), metric.score(gold, predicted, positive)
    end = metric.range[0 if metric.lower_is_better else 1]
    if math.isfinite(end) and abs(right - end) > TOLERANCE:
        return f"right predictions have {right:g}, not the best of RANGE, {end:g}"
    if right <= other if not metric.lower_is_better else right >= other:
        return f"right predictions have {right:g}, half right ones {other:g}; is LOWER_IS_BETTER as it should be?"
    return ""


def _order(metric: Metric, gold: Array, predicted: Array, positive: int | None) -> str:
    order = np.random.default_rng(2).permutation(ROWS)
    values = metric.score(gold, predicted, positive), metric.score(gold[order], predicted[order], positive)
    return "" if math.isclose(*values, abs_tol=TOLERANCE) else "{:g}, and {:g} in another order".format(*values)


def _weighted(metric: Metric, gold: Array, predicted: Array, positive: int | None) -> str:
    """Two predictions at once under several weights, against the rows repeated."""
    assert metric.weighted is not None
    generator = np.random.default_rng(3)
    both = np.stack([predicted, generator.permutation(predicted)])
    weights = generator.multinomial(ROWS, np.full(ROWS, 1 / ROWS), RESAMPLES).astype(np.float64)
    values = np.asarray(metric.weighted(gold, both, weights, positive))
    if values.shape != (RESAMPLES, PREDICTIONS):
        return f"gives an array {list(values.shape)} for {RESAMPLES} resamples of {PREDICTIONS} predictions"
    wanted = replace(metric, weighted=None, of_one_run=metric.score).resampled(gold, both, weights, positive)
    wrong = ~np.isclose(values, wanted, rtol=1e-6, atol=TOLERANCE)
    return f"a resample has {values[wrong][0]:g}, and its rows {wanted[wrong][0]:g}" if wrong.any() else ""


_METRIC_LAWS = {
    "its values are numbers within RANGE": _in_range,
    "right predictions are the best": _best,
    "the order of the rows does not matter": _order,
}
