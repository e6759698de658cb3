"""The phases of one run: those before fine-tuning, each stored by itself, and fine-tuning from what they left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regft_core.hooks import compose
from regft_core.runs.context import Context
from regft_core.runs.environment import describe_environment, other_environments
from regft_core.runs.phase import merged_record, produce
from regft_core.runs.run_phase import RunPhase
from regft_core.schema.method import epoch_steps
from regft_core.settings.cost import sized_cost

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
    """Return the declared passes of all phases relative to plain fine-tuning under the shared protocol.

    None where nothing tells the size of an encoder. ``steps``: phase -> steps that it took, all members together.
    """
    project, task, shared, costs = context.project, context.job.task, context.shared, list[float]()
    for phase in map(context.phase, steps):
        rows = len(phase.drawn()[0])
        cost = sized_cost(project, context.method, task, phase.settled, rows, shared, steps[phase.name])
        if cost is None:
            return None
        costs.append(cost)
    rows = context.last.rows.summary.length
    return sum(costs) / shared.accumulation / (shared.max_steps or shared.epochs * epoch_steps(shared, rows))
