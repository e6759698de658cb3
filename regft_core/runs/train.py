"""The training of one run: its trials, if any, the phases before fine-tuning, and fine-tuning from what they left.

With ``selection: split`` trials see a share of the training rows (nested selection: Cawley and Talbot, JMLR 2010); with
``dev_as_published`` the dev set chooses, and the chosen trial is the run, marked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from regft_core import metrics
from regft_core.data.examples import to_jsonl
from regft_core.disk.canonical import sha256_text
from regft_core.hooks import compose
from regft_core.runs.code import Scope, code_of
from regft_core.runs.context import Context, Job
from regft_core.runs.environment import describe_environment, other_environments
from regft_core.runs.finished_model import FinishedModel
from regft_core.runs.keys import RUN_FORMAT, scope_of
from regft_core.runs.made_once import Made, made_once
from regft_core.runs.phase import merged_record, produce
from regft_core.runs.records import Trial
from regft_core.runs.run_phase import RunPhase
from regft_core.runs.store import NotStored
from regft_core.schema.method import epoch_steps
from regft_core.schema.params import TuningConfig
from regft_core.settings.cost import sized_cost
from regft_core.settings.project import Project

Record = dict[str, Any]


def search(context: Context) -> Record:
    """Produce the phases of one run before fine-tuning, up to one that fails; returns their keys and merged record."""
    done: dict[str, Record] = {}
    status: Record = {"status": "ok", "error": None}
    for phase in context.phases[:-1]:
        result = done[phase.name] = _named(produce(phase).result, phase)
        if result["status"] != "ok":
            status = {"status": "failed", "error": f"phase '{phase.name}' failed: {result['error']}"}
            break
    results = list(done.values())
    environment, merged = results[-1]["environment"] if results else None, merged_record(results)
    merged["marks"] += other_environments(environment, done.items())
    soups = {phase: result["soup"] for phase, result in done.items() if "soup" in result}
    return {
        "size": context.job.size,
        "seed": context.job.seed,
        "phases": {phase: context.key(phase) for phase in done},
        "phase_steps": {phase: result.get("steps", 0) for phase, result in done.items()},
        "environment": environment,
        **({"soups": soups} if soups else {}),
        **merged,
        **status,
    }


def _named(result: Record, phase: RunPhase) -> Record:
    """Return the result of a phase with its name here in the place of that in the method that it is taken from."""
    lent, parts = phase.declared.run_name, {name: result.get(name, []) for name in ("curve", "diagnostics")}
    if lent == phase.name or result["status"] != "ok":
        return result
    scores = result.get("epoch_scores")

    def named(rows: Any) -> Any:
        return [[label.replace(lent, phase.name, 1), *values] for label, *values in rows]

    renamed = {name: named(rows) for name, rows in parts.items()}
    return result | renamed | ({"epoch_scores": scores | {"scores": named(scores["scores"])}} if scores else {})


#: The mark of results whose values the development set chose.
CHOSEN_ON_DEV = "hyper-parameters were chosen on the development set that also judges them, as published"


def finetune(context: Context, searched: Record) -> Record:
    """Run (or find) the fine-tuning of one run, whose record of the stage search is ``searched``; return its record."""
    phase, before = context.last, bool(context.method.earlier)
    record: Record = {
        "size": context.job.size,
        "seed": context.job.seed,
        "phases": searched["phases"],
        **({"tuned": searched["tuned"]} if "tuned" in searched else {}),
        "search_cost": searched["cost"] | {"steps": searched["steps"]} if before else None,
        "variant": compose.variants(context.method, context.registry),
        "precision": phase.training.precision,
        "key": phase.key(),
        "curve": [],
        "diagnostics": [],
    }
    if searched["status"] != "ok":
        return record | {"degraded": []} | {part: searched[part] for part in ("status", "error", "environment")}
    result = produce(phase).result
    given = context.method, context.task_config, context.project.tasks
    marks = compose.degradations(context.registry, *given, tf32=bool(result["environment"].get("tf32")))
    marks += [*searched.get("marks", []), *result.get("marks", [])]
    if (rule := phase.training.checkpoint) != "last":
        share = f"{phase.training.checkpoint_share:.0%} of the training rows, set aside"
        chosen_on = share if rule == "best_on_split" else "the development set, as published"
        marks.append(f"the weights are those of the best epoch on {chosen_on}")
    if searched.get("tuned", {}).get("selection") == "dev_as_published":
        marks.append(CHOSEN_ON_DEV)
    if before and searched["environment"] != result["environment"]:
        marks.append(f"the phases before were trained elsewhere ({describe_environment(searched['environment'])})")
    record |= result | {"degraded": list(dict.fromkeys(marks))}
    if result["status"] == "ok":
        ratio = _declared_ratio(context, {**searched["phase_steps"], phase.name: result["steps"]})
        record["cost"] = result["cost"] | {"declared_ratio": ratio}
    return record


def _declared_ratio(context: Context, steps: Mapping[str, int]) -> float | None:
    """Return the declared passes of all phases relative to plain fine-tuning, None for an encoder of unknown size."""
    project, task, shared, costs = context.project, context.job.task, context.shared, list[float]()
    for phase in map(context.phase, steps):
        rows = len(phase.drawn()[0])
        cost = sized_cost(project, context.method, task, phase.settled, rows, shared, steps[phase.name])
        if cost is None:
            return None
        costs.append(cost)
    rows = context.last.rows.summary.length
    return sum(costs) / shared.accumulation / (shared.max_steps or shared.epochs * epoch_steps(shared, rows))


def choose(records: Sequence[Record], tuning: TuningConfig, primary: str, seed: int) -> Record:
    """Return what was tried and chosen for the run of one seed (``Tuned``); a trial that failed only if all did."""
    sign = 1.0 if metrics.higher_is_better(primary) else -1.0

    def merit(trial: int) -> tuple[float, int]:
        scores = [record["score"] for record in records if record["trial"] == trial]
        return sign * fmean(scores) if None not in scores else float("-inf"), -trial

    trials = sorted({record["trial"] for record in records})
    best, of_run = max(trials, key=merit), [record for record in records if record["seed"] == seed]
    return {
        "values": next(record["values"] for record in of_run if record["trial"] == best),
        "chosen": best,
        "selection": tuning.selection,
        "split": tuning.share if tuning.selection == "split" else None,
        "metric": primary,
        "seconds": sum(record["seconds"] for record in of_run),
        "trials": [_over_folds([record for record in of_run if record["trial"] == trial]) for trial in trials],
    }


def _over_folds(records: Sequence[Record]) -> Record:
    """One trial of one run: the mean over its folds, None where one of them failed."""
    first, scores = records[0], [record["score"] for record in records]
    failed = next((record for record in records if record["score"] is None), first)
    together = {
        "status": failed["status"],
        "error": failed["error"],
        "score": None if None in scores else fmean(scores),
        "seconds": sum(record["seconds"] for record in records),
        "steps": sum(record["steps"] or 0 for record in records),
    }
    return {key: (first | together)[key] for key in Trial.model_fields}


def trials_that_choose(project: Project, job: Job) -> list[Job]:
    """The trials (of all seeds, where these choose together) that choose for a run, in order, once for each fold."""
    tuning = project.params.tuning
    folds = [None] if tuning is None or tuning.folds is None else range(tuning.folds)
    together = tuning is not None and tuning.selection != "split"
    return [
        replace(job, seed=seed, values=values, trial=number, fold=fold)
        for seed in (project.params.grid.seeds if together else [job.seed])
        for number, values in enumerate(project.trials(job.method))
        for fold in folds
    ]


def choice_of(job: Job, project: Project, *, device: str = "cpu") -> Record | None:
    """Return the choice of the trials of one run; None where nothing is tuned. Missing trials are run, or NotStored."""
    trials = [] if job.refit or job.values is not None else trials_that_choose(project, job)
    if not trials or project.params.tuning is None:
        return None
    stored = [look_up_trial(trial, project) for trial in trials]
    if job.stored_only and None in stored:
        raise NotStored(job.name)
    records = [record or try_values(trial, project, device=device) for trial, record in zip(trials, stored)]
    return choose(records, project.params.tuning, project.tasks[job.task].primary, job.seed)


def look_up_trial(trial: Job, project: Project) -> Record | None:
    """The record of a trial if all of it is in the store, else None; imports no torch."""

    def look_up() -> Record | None:
        try:
            return try_values(replace(trial, stored_only=True), project)
        except NotStored:
            return None

    return project.once(("trial", trial.name), look_up)  # each seed of a cell may ask for the trials of all


def try_values(job: Job, project: Project, *, device: str = "cpu") -> Record:
    """Train one trial and score it; ``score`` is None when it failed."""
    context = Context(job, device, project)
    searched = search(context)
    trained, cost = finetune(context, searched), searched["cost"]
    record = {name: trained[name] for name in ("size", "seed", "key", "status", "error")} | {
        "trial": job.trial,
        "values": dict(job.values or {}),
        "score": None,
        "seconds": cost["train_seconds"] + cost["fit_seconds"] + (trained.get("seconds") or 0.0),
        "steps": (searched["steps"] or 0) + trained.get("steps", 0),
    }
    if trained["status"] != "ok":
        return record

    def score(*_: Any) -> Made:
        from regft_core.evaluate.evaluated import primary_score

        model, examples = FinishedModel(context), context.held_out if context.without_dev else context.dev_rows
        labels = [example.label for example in examples]
        value = primary_score(model.answer(examples), labels, context.task, model.decision)
        return {"score": value}, {}, {}

    result = made_once(context, score_identity, _score_scope, "the score of a trial", score).result
    return record | {name: result.get(name) for name in ("status", "error", "score")}


def score_identity(context: Context) -> Record:
    return {
        "format": RUN_FORMAT,
        "phase": "trial score",
        "run": context.last.key(),
        "rows": sha256_text(to_jsonl(context.held_out)) if context.without_dev else context.dev_sha256,
        "task": {name: context.task[name] for name in ("kind", "labels", "primary", "positive_label")},
        "model": context.last.reading,
        "code": code_of(_score_scope(context)).sha256,
    }


def _score_scope(context: Context) -> Scope:
    task = context.task
    return scope_of("evaluate", (), [task["kind"]], [task["primary"]], context.last.source)


def chosen(job: Job, project: Project, device: str = "cpu") -> tuple[Context, Record | None]:
    """Return a run with the values that its trials choose, and that choice; raises as ``choice_of``."""
    tuned = choice_of(job, project, device=device)
    return Context(job if tuned is None else replace(job, values=tuned["values"]), device, project), tuned


def beside(context: Context, method: str) -> Context:
    """The context of ``method``'s run beside that of ``context``."""
    if method == context.job.method:
        return context
    return chosen(replace(context.job, method=method, values=None), context.project, context.device)[0]
