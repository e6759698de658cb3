"""The phases of one run: those before fine-tuning, each stored by itself, and fine-tuning from what they left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from regft_core.hooks import compose
from regft_core.runs.context import Context
from regft_core.runs.environment import describe_environment, other_environments
from regft_core.runs.job import Job
from regft_core.runs.phase import produce
from regft_core.runs.phase_record import merged_record
from regft_core.runs.rows import run_rows
from regft_core.schema.method import Phase, Registry
from regft_core.schema.training import TrainingConfig
from regft_core.settings.cost import epoch_steps, plain_steps, same_batches


def search(context: Context) -> dict[str, Any]:
    """Produce the phases of one run before fine-tuning; returns their keys and their merged record.

    A phase whose loss became NaN gives ``status: failed``, and the phases after it are not run.
    """
    keys: dict[str, str] = {}
    done = []
    for earlier in context.method.earlier:
        phase = context.phase(earlier.name)
        stored = produce(context, phase)
        keys[phase.name] = stored.key
        context.take_keys(keys)
        done.append(stored)
        if stored.result["status"] != "ok":
            error = f"phase '{phase.name}' failed: {stored.result['error']}"
            return _record(context.job, keys, done) | {"status": "failed", "error": error}
    return _record(context.job, keys, done) | {"status": "ok", "error": None}


def _record(job: Job, keys: dict[str, str], done: list[Any]) -> dict[str, Any]:
    steps = {stored.result["phase"]: stored.result.get("steps", 0) for stored in done}
    environment = done[-1].result["environment"] if done else None
    merged = merged_record(done)
    merged["marks"] += other_environments(environment, done)
    soups = {stored.result["phase"]: stored.result["soup"] for stored in done if "soup" in stored.result}
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
    context.take_keys(known_keys(searched))
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
        ratio = _ratio(context, {**searched["phase_steps"], phase.name: stored.result["steps"]})
        record["cost"] = stored.result["cost"] | {"declared_ratio": ratio}
    return record


def _ratio(context: Context, counts: Mapping[str, int]) -> float | None:
    """Return ``declared_ratio`` for the steps of each phase; None where nothing tells the size of an encoder."""
    method, task = context.method, context.job.task
    sizes = {name: context.project.relative_size(context.phase(name), method, task) for name in counts}
    steps, fits = list[tuple[Phase, float]](), list[tuple[Phase, int]]()
    for name, size in sizes.items():
        if size is None:
            return None
        phase = context.phase(name)
        steps.append((phase, size * _plain_steps(context, phase, counts[name])))
        teachers = phase.teachers(context.registry)
        if teachers or phase.fit_ratio(context.registry):
            rows, plain = _rows_of_a_member(context, phase), replace(phase, regularisers=())
            fits.append((phase, round(size * rows)))
            # Answers are a forward pass over the rows, a third of an epoch.
            steps += [(plain, (sizes[one] or 0.0) * epoch_steps(context.shared, rows) / 3) for one in teachers]
    rows = context.data(context.phase("finetune")).summary.length
    return declared_ratio(steps, fits, context.registry, context.shared, rows)


def _plain_steps(context: Context, phase: Phase, count: int) -> float:
    """``count`` steps of a phase in steps of plain fine-tuning over as many rows."""
    if not count or same_batches(phase.training, context.shared):
        return count
    return plain_steps(count, phase.training, context.shared, _rows_of_a_member(context, phase))


def _rows_of_a_member(context: Context, phase: Phase) -> int:
    """How many rows a member of a phase learns from."""
    return len(run_rows(phase, None, context.data(phase), context.seed(phase))[0])


def known_keys(record: dict[str, Any] | None) -> dict[str, str]:
    """Phase -> key, as the record of an earlier stage has them."""
    if record is None:
        return {}
    last = {"finetune": record["key"]} if record.get("key") else {}
    return {**record["phases"], **last}


def tuned_values(record: dict[str, Any] | None) -> dict[str, Any] | None:
    """The tuned settings of a run, as the record of an earlier stage has them; None where nothing was tuned."""
    tuned = (record or {}).get("tuned")
    return dict(tuned["values"]) if tuned else None


def declared_ratio(
    steps: Sequence[tuple[Phase, float]],
    fits: Sequence[tuple[Phase, int]],
    registry: Registry,
    shared: TrainingConfig,
    rows: int,
) -> float:
    """Declared passes of a whole method relative to plain fine-tuning under the shared protocol.

    A forward counts 1 and a backward 2.

    Args:
        steps: the steps that each phase took, all members together, in steps of plain fine-tuning over as many rows
            (``settings.cost.plain_steps``): those of a phase with batches of half the size, or with an encoder of half
            the size, are half as many.
        fits: the rows that each phase which fits something without steps goes over, per member. A pass over them
            counts as the steps that plain fine-tuning takes over as many; with half the encoder, rows are half as many.
        rows: that plain fine-tuning trains on.
    """
    vanilla = shared.max_steps or shared.epochs * epoch_steps(shared, rows)
    stepped = sum(count * phase.ratio(registry) for phase, count in steps)
    fitted = sum(epoch_steps(shared, count) * phase.members * phase.fit_ratio(registry) for phase, count in fits)
    return (stepped + fitted) / vanilla
