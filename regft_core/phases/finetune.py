"""The fine-tuning phase of one run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from regft_core.config.grid import Cell
from regft_core.config.load import Project
from regft_core.errors import RunFailed
from regft_core.methods import compose
from regft_core.phases.context import Context, Job
from regft_core.phases.search import ensure_search, search_identity
from regft_core.runs.stored import StoredRun


def finetune_identity(context: Context) -> dict[str, Any]:
    """Identity of the fine-tuning run, which includes the key of the search it starts from."""
    searches = context.method.protocol == "search_finetune"
    return context.identity("finetune", start=context.store.run_key(search_identity(context)) if searches else None)


def cached_seeds(root: Path, project: Project, cell: Cell) -> set[int]:
    """Seeds of a cell whose runs are in the run store under the present configuration; no torch."""
    found = set()
    for seed in project.params.grid.seeds:
        context = Context(Job(str(root), cell.method, cell.task, str(cell.size), seed), project=project)
        code = root / "work" / "code" / f"method-{cell.method}.json"
        if not (code.is_file() and context.rows_file.is_file() and (context.dataset / "task.json").is_file()):
            continue  # not even the rows are there yet
        if context.store.get(context.store.run_key(finetune_identity(context))) is not None:
            found.add(seed)
    return found


def finetune(job: Job, *, device: str = "cpu") -> dict[str, Any]:
    """Run (or find) the fine-tuning of one seed and return its record.

    The plain weights (weight views folded) are in the run store under the record's ``key``.
    A run whose loss became NaN gives a record with ``status: failed``; other seeds go on.
    """
    return ensure_finetuned(Context(job, device)).result


def ensure_finetuned(context: Context, weights: bool = False) -> StoredRun:
    """The finished run of this seed; trained first when it is not in the store.

    Args:
        weights: the caller needs the weights; a run whose weights were pruned is trained
            again and must give the same weights.
    """
    # Torch comes with this import; planning, which needs the identity only, does without.
    from regft_core.phases.training_run import cost, curve_rows, make_deterministic, train_phase

    identity = finetune_identity(context)
    key = context.store.run_key(identity)
    with context.store.open(key, identity) as working:
        found = working.finished
        if found is not None and (found.has_weights or not weights or found.result["status"] != "ok"):
            return found
        record = context.record(key) | {"search_key": None, "search_cost": None}
        handed = None
        if context.method.protocol == "search_finetune":
            searched = ensure_search(context, weights=True)
            record["search_key"] = searched.key
            record["search_cost"] = searched.result["cost"] | {"steps": searched.result["steps"]}
            if searched.result["status"] != "ok":
                error = f"search failed: {searched.result['error']}"
                return working.commit(record | {"status": "failed", "error": error, "curve": [], "diagnostics": []})
            handed = searched.load_tensors()
        encoded = context.encode(context.examples())
        try:
            trained = train_phase(context, "finetune", context.training, encoded, checkpointer=working, handed=handed)
        except RunFailed as error:
            return working.commit(record | {"status": "failed", "error": str(error), "curve": [], "diagnostics": []})
        done = trained.progression
        trained.stack.export(trained.trainee)
        declared = declared_ratio(context, done.step, record["search_cost"], len(encoded.input_ids))
        result = record | {
            "status": "ok",
            "error": None,
            "steps": done.step,
            "seconds": done.seconds,
            "cost": cost(done, declared, trained.peak_memory_bytes),
            "final_loss": done.curve[-1][2] if done.curve else None,
            "curve": curve_rows("finetune", done),
            "diagnostics": [["finetune", s, n, v] for n, s, v in trained.stack.diagnostics().values],
        }
        return working.commit(
            result,
            {"weights": trained.trainee.plain_weights()},
            require_same_tensors=make_deterministic(context),
        )


def declared_ratio(context: Context, steps: int, search_cost: dict[str, Any] | None, rows: int) -> float:
    """Passes of the whole method relative to plain fine-tuning under the shared protocol.

    A forward counts 1 and a backward 2, as declared by the regularisers; the search counts.
    """
    shared = context.params.training
    vanilla = shared.max_steps or shared.epochs * math.ceil(math.ceil(rows / shared.batch_size) / shared.accumulation)
    total = steps * compose.declared_cost(context.entries).ratio
    if search_cost is not None and context.method.search is not None:
        owner, options = next(entry for entry in context.entries if entry[0].search_phase(entry[1]))
        total += search_cost["steps"] * owner.search_cost(options, context.method.search).ratio
    return total / vanilla
