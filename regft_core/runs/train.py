"""The phases of one run: those before fine-tuning, each stored by itself, and fine-tuning from what they left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regft_core.hooks import compose
from regft_core.runs.context import Context
from regft_core.runs.environment import describe_environment, other_environments
from regft_core.runs.phase import merged_record, produce
from regft_core.runs.project import Job
from regft_core.runs.rows import run_rows
from regft_core.schema.method import Phase
from regft_core.settings.cost import sized_cost
from regft_core.settings.passes import epoch_steps


def search(context: Context) -> dict[str, Any]:
    """Produce the phases of one run before fine-tuning; returns their keys and their merged record.

    A phase whose loss became NaN gives ``status: failed``, and the phases after it are not run.
    """
    keys: dict[str, str] = {}
    done: dict[str, dict[str, Any]] = {}
    for earlier in context.method.earlier:
        phase = context.phase(earlier.name)
        stored = produce(context, phase)
        keys[phase.name] = stored.key
        done[phase.name] = _named(stored.result, phase)
        if stored.result["status"] != "ok":
            error = f"phase '{phase.name}' failed: {stored.result['error']}"
            return _record(context.job, keys, done) | {"status": "failed", "error": error}
    return _record(context.job, keys, done) | {"status": "ok", "error": None}


def _named(result: dict[str, Any], phase: Phase) -> dict[str, Any]:
    """Return the result of a phase with its name here in the place of that in the method that it is taken from."""
    if phase.lent is None:
        return result

    def named(rows: Any) -> Any:
        return [[label.replace(phase.run_name, phase.name, 1), *values] for label, *values in rows]

    rows: dict[str, Any] = {name: named(result[name]) for name in ("curve", "diagnostics") if name in result}
    if "epoch_scores" in result:
        rows["epoch_scores"] = {**result["epoch_scores"], "scores": named(result["epoch_scores"]["scores"])}
    return {**result, "phase": phase.name, **rows}


def _record(job: Job, keys: dict[str, str], by_phase: dict[str, dict[str, Any]]) -> dict[str, Any]:
    steps = {phase: result.get("steps", 0) for phase, result in by_phase.items()}
    done = list(by_phase.values())
    environment = done[-1]["environment"] if done else None
    merged = merged_record(done)
    merged["marks"] += other_environments(environment, done)
    soups = {phase: result["soup"] for phase, result in by_phase.items() if "soup" in result}
    return {
        "size": job.size,
        "seed": job.seed,
        "phases": keys,
        "phase_steps": steps,
        "environment": environment,
        **({"soups": soups} if soups else {}),
    } | merged


#: The mark of results whose values the development set chose.
CHOSEN_ON_DEV = "hyper-parameters were chosen on the development set that also judges them, as published"
#: The mark of results that are not those of the last step.
BEST_EPOCH = "the weights are those of the best epoch on {}"


def finetune(context: Context, searched: dict[str, Any]) -> dict[str, Any]:
    """Run (or find) the fine-tuning of one run and return its record.

    Args:
        searched: the record of the search stage for this size and seed.

    The plain weights (weight views folded) are in the run store under the record's ``key``.
    A run whose loss became NaN gives a record with ``status: failed``; other seeds go on.
    """
    job = context.job
    record: dict[str, Any] = {"size": job.size, "seed": job.seed, "phases": searched["phases"]}
    if "tuned" in searched:
        record["tuned"] = searched["tuned"]
    if context.method.earlier:
        record["search_cost"] = searched["cost"] | {"steps": searched["steps"]}
    else:
        record["search_cost"] = None
    record |= {
        "variant": compose.variants(context.method, context.registry),
        "precision": context.phase("finetune").training.precision,
    }
    if searched["status"] != "ok":
        failed = {"status": "failed", "error": searched["error"], "curve": [], "diagnostics": []}
        return record | failed | {"key": context.keys.of("finetune"), "degraded": [], "environment": None}
    phase = context.phase("finetune")
    stored = produce(context, phase)
    record |= {"key": stored.key} | stored.result
    record.setdefault("curve", [])
    record.setdefault("diagnostics", [])
    shared, tasks = context.shared, context.project.tasks
    tf32 = bool((stored.result.get("environment") or {}).get("tf32"))
    marks = compose.degradations(context.registry, context.method, shared, context.task_config, tasks, tf32=tf32)
    marks += [*searched.get("marks", []), *stored.result.get("marks", [])]
    if (rule := phase.training.checkpoint) != "last":
        share = f"{phase.training.checkpoint_share:.0%} of the training rows, set aside"
        marks.append(BEST_EPOCH.format("the development set, as published" if rule != "best_on_split" else share))
    if searched.get("tuned", {}).get("selection") == "dev_as_published":
        marks.append(CHOSEN_ON_DEV)
    if context.method.earlier and searched["environment"] != stored.result["environment"]:
        marks.append(f"the phases before were trained elsewhere ({describe_environment(searched['environment'])})")
    record["degraded"] = list(dict.fromkeys(marks))
    if stored.result["status"] == "ok":
        ratio = _declared_ratio(context, {**searched["phase_steps"], phase.name: stored.result["steps"]})
        record["cost"] = stored.result["cost"] | {"declared_ratio": ratio}
    return record


def _declared_ratio(context: Context, steps: Mapping[str, int]) -> float | None:
    """Return the declared passes of all phases relative to plain fine-tuning under the shared protocol.

    A forward counts 1 and a backward 2 (``settings/passes.py``). None where nothing tells the size of an encoder.

    Args:
        steps: phase -> steps that it took, all members together.
    """
    project, task, shared, costs = context.project, context.job.task, context.shared, list[float]()
    for phase in map(context.phase, steps):
        rows = len(run_rows(phase, None, context.data(phase), context.seed(phase))[0])
        cost = sized_cost(project, context.method, task, phase, rows, context.registry, shared, steps[phase.name])
        if cost is None:
            return None
        costs.append(cost)
    rows = context.data(context.phase("finetune")).summary.length
    return sum(costs) / shared.accumulation / (shared.max_steps or shared.epochs * epoch_steps(shared, rows))
