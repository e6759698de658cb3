"""The evaluation of one run, on the development set and on every out-of-distribution set."""

from __future__ import annotations

import json
from typing import Any

from regft_core.data.examples import read_jsonl
from regft_core.data.splits import set_files
from regft_core.output import ProgressWriter
from regft_core.runs.analyses import JudgedRun, from_npy, to_npy
from regft_core.runs.code import Scope, code_of
from regft_core.runs.context import Context
from regft_core.runs.finished_model import FinishedModel
from regft_core.runs.keys import RUN_FORMAT, scope_of
from regft_core.runs.made_once import Made, made_once
from regft_core.runs.outputs import reads_text


def _scope(context: Context) -> Scope:
    task = context.task
    return scope_of("evaluate", (), [task["kind"]], task["metrics"], context.last.source)


def evaluation_identity(context: Context) -> dict[str, Any]:
    return {"format": RUN_FORMAT, "phase": "evaluate", "run": context.last.key(), **evaluation_settings(context)}


def evaluation_settings(context: Context) -> dict[str, Any]:
    """Return the identity of an evaluation without the run: the same for every seed."""
    return {
        "task": {key: context.task[key] for key in ("kind", "labels", "metrics", "primary", "positive_label", "sets")},
        "sets": context.sets_sha256,
        # The run's key has these too; here they are what the evaluation really reads the sets with.
        "model": context.last.reading,
        "rows_alone": context.rows_alone,
        "code": code_of(_scope(context)).sha256,
    }


#: One row of predictions as a line; ``json.dumps`` makes an encoder for every call.
_ROW = json.JSONEncoder(ensure_ascii=False).encode
#: Where a set's files are in the store.
PREDICTIONS, LOGITS = "predictions/", "logits/"


def evaluate(context: Context, trained: dict[str, Any]) -> dict[str, Any]:
    """Evaluate, or look up, one run: its entry in ``result.json``, ``predictions`` and ``evaluations``."""
    shared = ("size", "seed", "key", "status", "error", "variant", "degraded", "environment")
    record = {key: trained[key] for key in shared} | {"cost": _cost(trained), "collapsed": None, "sets": {}}
    if trained["status"] != "ok":
        return record | {"predictions": {}, "evaluations": {}}
    model = FinishedModel(context)
    result, files = context.store.read_intact(
        lambda: made_once(context, evaluation_identity, _scope, "the evaluation", lambda *_: _evaluate(context, model)),
        lambda run: (run.result, {file: run.read_bytes(file) for file in run.files}),
    )
    logits = {name: from_npy(files[f"{LOGITS}{name}.npy"]) for name in result.get("sets", ())}
    predictions = {name: files[f"{PREDICTIONS}{name}.jsonl"].decode() for name in logits}
    record |= result | {"environment": trained["environment"], "predictions": predictions}
    record["evaluations"] = JudgedRun(context, model, logits).findings() if logits else {}
    return record


def _cost(trained: dict[str, Any]) -> dict[str, Any]:
    """Of all phases, where fine-tuning's own record has the last one: seconds of the search, the largest peak."""
    cost = dict(trained.get("cost") or {})
    search = trained.get("search_cost")
    cost["search_seconds"] = search["train_seconds"] + search["fit_seconds"] if search else 0.0
    if search and cost.get("peak_memory_bytes") is not None:
        cost["peak_memory_bytes"] = max(cost["peak_memory_bytes"], search.get("peak_memory_bytes") or 0)
    return cost


def _evaluate(context: Context, model: FinishedModel) -> Made:
    """Evaluate a run; returns its result, and the files beside it."""
    from regft_core.evaluate.evaluated import evaluate_run, evaluated_set

    progress = ProgressWriter(context.job.progress, context.job.name, "evaluate")
    seen, total = 0, sum(declared["n"] for declared in context.task["sets"].values())

    def show(rows: int) -> None:
        progress(seen + rows, total, 0, None, 0.0)

    sets = {}
    for name, file in set_files(context.task).items():
        examples = read_jsonl(context.dataset / file)
        sets[name] = evaluated_set(name, examples, model.answer(examples, show), context.task, model.decision)
        seen += len(examples)
    scores, rows = evaluate_run(sets, context.task, reads_text=reads_text(context))
    files: dict[str, str | bytes] = {
        f"{PREDICTIONS}{name}.jsonl": "".join(_ROW(row) + "\n" for row in of_set) for name, of_set in rows.items()
    }
    files |= {f"{LOGITS}{name}.npy": to_npy(judged.logits) for name, judged in sets.items()}
    return scores, {}, files
