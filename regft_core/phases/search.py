"""The search phase of one run: K training runs, each stored on its own, then combined."""

from __future__ import annotations

from typing import Any

from regft_core.errors import RunFailed
from regft_core.methods.base import SearchRun
from regft_core.methods.stack import Stack
from regft_core.phases.context import Context, Job
from regft_core.runs.stored import StoredRun


def search_identity(context: Context) -> dict[str, Any]:
    return context.identity("search")


def _part_identity(context: Context, run: SearchRun) -> dict[str, Any]:
    """Identity of one of the K runs: more repeats later reuse the earlier ones."""
    identity = context.identity("search-run", part=run.name, part_training=run.training.model_dump(mode="json"))
    identity["rows"] = [identity["rows"], list(run.train_rows), list(run.validation_rows)]
    for key in ("repeats", "average"):
        (identity["search"] or {}).pop(key, None)
    return identity


def search(job: Job, *, device: str = "cpu") -> dict[str, Any]:
    """Run (or find) the search phase of one seed and return its record.

    The state that fine-tuning starts from is in the run store, under the record's ``key``. A
    run whose loss became NaN gives a record with ``status: failed``.
    """
    return ensure_search(Context(job, device)).result


def ensure_search(context: Context, weights: bool = False) -> StoredRun:
    """The finished search run of this seed; trained first when it is not in the store.

    Args:
        weights: the caller needs its tensors, which may have been pruned.
    """
    from regft_core.phases.training_run import make_deterministic

    identity = search_identity(context)
    key = context.store.run_key(identity)
    with context.store.open(key, identity) as working:
        found = working.finished
        if found is not None and (found.has_weights or not weights or found.result["status"] != "ok"):
            return found
        encoded = context.encode(context.examples())
        stack = Stack(context.entries, context.method.search, context.setting("search", context.training))
        runs = stack.search_runs(len(encoded.input_ids))
        record = context.record(key)
        parts = []
        try:
            for run in runs:
                part = _ensure_part(context, run, encoded)
                parts.append(part)
                if part.result["status"] != "ok":
                    raise RunFailed(f"{run.name}: {part.result['error']}")
        except RunFailed as error:
            return working.commit(record | {"status": "failed", "error": str(error)} | _merged(parts))
        assert stack.searcher is not None
        state = stack.searcher.combine([part.load_tensors("result") for part in parts])
        return working.commit(
            record | {"status": "ok", "error": None} | _merged(parts),
            {"weights": state},
            require_same_tensors=make_deterministic(context),
        )


def _ensure_part(context: Context, run: SearchRun, encoded: Any) -> StoredRun:
    from regft_core.phases.training_run import cost, curve_rows, make_deterministic, train_phase

    identity = _part_identity(context, run)
    key = context.store.run_key(identity)
    with context.store.open(key, identity) as working:
        found = working.finished
        if found is not None and (found.has_weights or found.result["status"] != "ok"):
            return found
        try:
            trained = train_phase(
                context,
                run.name,
                run.training,
                encoded,
                checkpointer=working,
                rows=run.train_rows,
                validation_rows=run.validation_rows,
            )
        except RunFailed as error:
            return working.commit({"status": "failed", "error": str(error), "name": run.name})
        assert trained.stack.searcher is not None
        done = trained.progression
        result = {
            "status": "ok",
            "error": None,
            "name": run.name,
            "steps": done.step,
            "cost": cost(done, 0.0, trained.peak_memory_bytes),
            "curve": curve_rows(run.name, done),
            "diagnostics": [[run.name, s, n, v] for n, s, v in trained.stack.diagnostics().values],
        }
        tensors = trained.stack.searcher.search_result(trained.trainee)
        return working.commit(result, {"result": tensors}, require_same_tensors=make_deterministic(context))


def _merged(parts: list[StoredRun]) -> dict[str, Any]:
    """Costs, curves and diagnostics of the K runs as one record."""
    done = [part.result for part in parts if part.result["status"] == "ok"]
    summed = ("train_seconds", "real_tokens", "padded_tokens")
    steps = sum(result["steps"] for result in done)
    total: dict[str, Any] = {name: sum(result["cost"][name] for result in done) for name in summed}
    for name in ("forward_passes_per_step", "backward_passes_per_step"):
        total[name] = sum(r["cost"][name] * r["steps"] for r in done) / max(1, steps)
    total["seconds_per_step"] = total["train_seconds"] / max(1, steps)
    total["declared_ratio"] = 0.0
    peaks = [r["cost"]["peak_memory_bytes"] for r in done if r["cost"]["peak_memory_bytes"] is not None]
    total["peak_memory_bytes"] = max(peaks) if peaks else None
    return {
        "steps": steps,
        "seconds": total["train_seconds"],
        "cost": total,
        "curve": [row for result in done for row in result["curve"]],
        "diagnostics": [row for result in done for row in result["diagnostics"]],
        "final_loss": done[-1]["curve"][-1][3] if done and done[-1]["curve"] else None,
    }
