"""The plan: the keys of every cell of the grid, for each stage, as ``work/plan/<stage>.json``.

``{"method/task/size": {"runs": {"0": key, ...}, "with": hash}}``: the keys of the run store, and the hash of what the
stage writes down of the method beside its runs, or evaluates them by.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from regft_core.disk.canonical import sha256_json
from regft_core.disk.files import remove, write_json
from regft_core.disk.reading import read_json
from regft_core.errors import DataError
from regft_core.grid.jobs import jobs_of
from regft_core.hooks import compose
from regft_core.hooks.registry import discover
from regft_core.models.source import encoder_present
from regft_core.names import listing
from regft_core.runs.analyses import evaluation_inputs, fitting
from regft_core.runs.code import code_of
from regft_core.runs.context import STAGES, Context, Stage
from regft_core.runs.evaluate import evaluation_settings
from regft_core.runs.keys import scope_of
from regft_core.runs.outputs import changed_settings, manifest_head
from regft_core.runs.store import NotStored
from regft_core.runs.train import chosen, score_identity, trials_that_choose
from regft_core.runs.work import Work, is_current, keys_of
from regft_core.schema.methods import WORDS
from regft_core.settings.cost import PlanRow, plan_rows
from regft_core.settings.encoders import read_contamination
from regft_core.settings.layers import settings
from regft_core.settings.project import Cell, Project, cells
from regft_core.settings.published import read_published

log = logging.getLogger(__name__)

FOLDER = Path("work") / "plan"
#: In the output of a stage: cell -> why it is not there.
FAILURES = "failures.json"
#: Keys of one cell in one stage.
Keys = dict[str, Any]


def write_plan(project: Project) -> None:
    """Write ``work/plan``: the keys of the three stages, and what the report shows."""
    project = project.snapshot()
    every = {cell.directory: cell_keys(project, cell) for cell in cells(project)}
    plan: dict[str, Any] = {
        stage: {name: keys[stage] for name, keys in every.items() if stage in keys} for stage in STAGES
    }
    plan["report"] = report_inputs(project)
    for name, content in plan.items():
        write_json(project.root / FOLDER / f"{name}.json", content)


def read_plan(root: Path, stage: Stage) -> dict[str, Keys]:
    """The keys of a stage by cell, as planned. Raises DataError when there is no plan."""
    path = root / FOLDER / f"{stage}.json"
    if not path.is_file():
        hint = "run `dvc repro`, whose stage subsample writes it"
        raise DataError("no-plan", f"{FOLDER / stage}.json is missing\n    -> {hint}")
    return dict(read_json(path))


def stale_cells(root: Path) -> set[str]:
    """``method/task/size`` of the cells of which some stage has not what ``work/plan`` asks for."""
    return {
        name
        for stage in STAGES
        for name, keys in read_plan(root, stage).items()
        if not is_current(root / "work" / stage / name, keys)
    }


def forget_failures(root: Path) -> None:
    """Remove what the stages wrote of cells that failed: DVC then runs these stages again."""
    for stage in STAGES:
        path = root / "work" / stage / FAILURES
        if path.is_file() and read_json(path):
            remove(path)


def read_failures(root: Path) -> dict[str, str]:
    """Cell -> why it has no result, of the first stage that failed it."""
    failures: dict[str, str] = {}
    for stage in STAGES:
        path = root / "work" / stage / FAILURES
        for name, reason in (read_json(path) if path.is_file() else {}).items():
            failures.setdefault(name, f"{stage}: {reason}")
    return failures


def evaluated_cells(project: Project, failures: Collection[str]) -> list[Cell]:
    """Return the cells of the grid that have scores, without failed and outdated ones; the latter with a warning."""
    every = [cell for cell in cells(project) if cell.directory not in failures]
    if old := outdated_cells(project, every):
        log.warning("left out, for it is not run as it is configured now: %s", listing(c.directory for c in old))
    return [cell for cell in every if cell not in old and Work(project.root).result_file("evaluate", cell).is_file()]


def outdated_cells(project: Project, every: Iterable[Cell]) -> list[Cell]:
    """Return those with scores of before an edit: of settings, or by the last plan (another cell was run after it)."""
    root, project = project.root, project.snapshot()
    if not (root / FOLDER / "evaluate.json").is_file():  # DVC does not keep it
        return []
    planned, run = read_plan(root, "evaluate"), [c for c in every if Work(root).result_file("evaluate", c).is_file()]
    edited = {c for c in run if changed_settings(Context(jobs_of(project, c)[0], project=project))}
    return [c for c in run if c in edited or not is_current(Work(root).folder("evaluate", c), planned.get(c.directory))]


def cell_keys(project: Project, cell: Cell) -> dict[Stage, Keys]:
    """The keys of a cell by stage; without ``search`` where nothing is tuned and no phase comes before fine-tuning."""
    contexts = [Context(job, project=project) for job in jobs_of(project, cell)]
    first, tuned = contexts[0], bool(project.trials(cell.method))
    keys: dict[Stage, Keys] = {}
    if tuned or first.method.earlier:
        of = _tuned_search if tuned else _search
        keys["search"] = {"runs": {str(context.job.seed): of(context) for context in contexts}}
    settings = _described(first)
    runs = {str(context.job.seed): run_key(context) for context in contexts}
    keys["finetune"] = {"runs": runs, "with": settings}
    # With folds each seed is evaluated on rows of its own.
    sets = [evaluation_settings(context) for context in (contexts if "part" in first.task else [first])]
    on = fitting(first)
    findings = project.once(
        ("evaluations", cell.task, first.last.encoder),
        lambda: [evaluation_inputs(first, *evaluation) for evaluation in on],
    )
    beside = {evaluation.other_method(options) for evaluation, options in on}
    others = {
        method: [run_key(Context(replace(context.job, method=method), project=project)) for context in contexts]
        for method in sorted(filter(None, beside))
    }
    keys["evaluate"] = {"runs": runs, "with": sha256_json([settings, *sets, findings, others])}
    return keys


def run_key(context: Context) -> str:
    """The key of a run as the plan has it. Raises DataError where its rows are not drawn yet."""
    if not context.project.trials(context.job.method):
        return context.last.key()
    choices = [choice.last.key() for choice in _choices(context)]
    return sha256_json({"search": _tuned_search(context), "choices": choices})


def _described(context: Context) -> str:
    """Hash of what a manifest says of the method beside its runs, documentation left out: costs and marks too."""
    head, shared, registry = manifest_head(context), context.shared, context.registry
    costs = {
        "shared": shared.model_dump(mode="json", include={"epochs", "max_steps", "batch_size", "accumulation"}),
        "phases": [[p.name, p.ratio(registry), p.fit_ratio(registry)] for p in context.method.phases],
    }
    tasks, tf32 = context.project.tasks, context.params.execution.tf32
    marks = compose.degradations(registry, context.method, context.task_config, tasks, tf32=tf32)
    return sha256_json([head, costs, marks])


def _search(context: Context) -> str:
    return sha256_json({phase.name: phase.key() for phase in context.phases[:-1]})


def _tuned_search(context: Context) -> str:
    """Hash of the trials, of the rule that chooses among them, and of what each choice would train."""
    project, tuning = context.project, context.project.params.tuning
    assert tuning is not None
    jobs = trials_that_choose(project, context.job)
    trials = [[job.values, sha256_json(score_identity(Context(job, project=project)))] for job in jobs]
    rule = [tuning.selection, context.task["primary"]]
    return sha256_json({"trials": trials, "rule": rule, "choices": [_search(choice) for choice in _choices(context)]})


def _choices(context: Context) -> list[Context]:
    """The run with the values of each trial, any of which may be chosen."""
    project, job = context.project, context.job
    return [Context(replace(job, values=values), project=project) for values in project.trials(job.method)]


def report_inputs(project: Project) -> dict[str, Any]:
    """Inputs of the report beside results: the grid, the documentation of methods, papers, and its code."""
    params = project.params
    metrics = {metric for task in params.grid.tasks for metric in project.tasks[task].metrics}
    return {
        "code": code_of(scope_of("report", metrics=metrics)).sha256,
        "params": params.model_dump(mode="json", include={"grid", "training", "report", "tuning"}),
        "tasks": {task: project.shared(task).model_dump(mode="json") for task in params.grid.tasks},
        "methods": {n: m.config.model_dump(mode="json", include=set(WORDS)) for n, m in project.methods.items()},
        "controls": [asdict(control) for control in project.controls],
        "sources": {n: {s.path: s.source for s in settings(m, discover())} for n, m in project.methods.items()},
        "contamination": read_contamination(project.root).model_dump(mode="json"),
        "published": {n: read_published(project.root, n).model_dump(mode="json") for n in params.report.published},
    }


def cached_seeds(project: Project, cell: Cell) -> set[int]:
    """Seeds of a cell whose runs need no training; none without the encoder, which a dry run does not download."""
    method, model = project.method(cell.method, cell.task), project.model(cell.task)
    if not all(encoder_present(method.encoder(model, phase), project.root) for phase in method.phases):
        return set()
    written: Any = keys_of(project.root / "work" / "finetune" / cell.directory) or {}
    there, seeds = written.get("runs", {}), set[int]()
    for context in (Context(job, project=project) for job in jobs_of(project, cell)):
        with suppress(DataError, NotStored):  # its rows are not drawn yet, or what its trials choose is not known yet
            written_run = there.get(str(context.job.seed)) == run_key(context)
            if written_run or context.store.holds(
                chosen(replace(context.job, stored_only=True), project)[0].last.key()
            ):
                seeds.add(context.job.seed)
    return seeds


def grid_rows(project: Project) -> list[PlanRow]:
    return plan_rows(project, lambda cell: cached_seeds(project, cell))
