"""The evaluation of one run, on the development set and on every out-of-distribution set."""

from __future__ import annotations

import json
from typing import Any

from regft_core.errors import RunFailed
from regft_core.io import sha256_file
from regft_core.phases.context import Context, Job
from regft_core.phases.facts import evaluation_code
from regft_core.phases.finetune import evaluated
from regft_core.phases.run_phase import fetch
from regft_core.runs.stored import StoredRun


def evaluation_identity(context: Context, run_key: str) -> dict[str, Any]:
    """What determines an evaluation: the run, every set, the task's metrics, the code."""
    return {
        "format": 1,
        "phase": "evaluate",
        "run": run_key,
        "task": {key: context.task[key] for key in ("metrics", "positive_label", "sets")},
        "sets": {name: sha256_file(context.dataset / file) for name, file in set_files(context.task).items()},
        "code": evaluation_code(context.task["metrics"], context.source),
    }


def set_files(task: dict[str, Any]) -> dict[str, str]:
    """Name of each evaluation set of ``task.json`` and its file in the dataset folder."""
    return {name: "dev.jsonl" if name == "dev" else f"ood/{name}.jsonl" for name in task["sets"]}


def evaluate(job: Job, trained: dict[str, Any], *, device: str = "cpu") -> dict[str, Any]:
    """Evaluate (or find the evaluation of) one seed.

    Args:
        trained: the record of the finetune stage for this size and seed.

    Returns the entry of ``runs`` in ``result.json``, plus ``predictions``: the lines of each
    set's prediction file. A failed run gives its record with ``status: failed`` and no sets.
    """
    context = Context(job, device)
    kept = ("size", "seed", "key", "status", "error", "variant", "degraded", "environment")
    record = {key: trained[key] for key in kept}
    record["cost"] = _cost(trained)
    if trained["status"] != "ok":
        return record | {"collapsed": {}, "sets": {}, "predictions": {}}
    identity = evaluation_identity(context, trained["key"])
    with context.store.open(context.store.run_key(identity), identity) as working:
        stored = working.finished
        if stored is None:
            try:
                stored = _evaluate(context, working)
            except RunFailed as error:
                stored = working.commit({"status": "failed", "error": str(error), "collapsed": {}, "sets": {}})
    evaluated(context, trained["key"])
    predictions = {name.split("/")[1].removesuffix(".jsonl"): stored.read_text(name) for name in stored.files}
    return record | stored.result | {"predictions": predictions}


def _cost(trained: dict[str, Any]) -> dict[str, Any]:
    cost = dict(trained.get("cost") or {})
    search = trained.get("search_cost")
    cost["search_seconds"] = search["train_seconds"] + search["fit_seconds"] if search else 0.0
    return cost


def trained_model(context: Context) -> Any:
    """The plain model of the finished run, with what it needs for inference put back in; on its device."""
    import torch

    from regft_core.config.schema import DropoutConfig
    from regft_core.models.load import load_classifier
    from regft_core.training.stack import Stack
    from regft_core.training.trainee import Trainee

    phase = context.phase("finetune")
    model = load_classifier(
        context.source,
        kind=context.task["kind"],
        labels=context.task["labels"],
        dropout=DropoutConfig(),
        head_seed=0,
        pooling=context.encoder.pooling,
        rows_per_example=context.rows_per_example(context.data(phase).examples),
    )
    tensors = context.store.read_intact(
        lambda: fetch(context, "finetune", weights=True),
        lambda run: {name: run.load_tensors(name) for name in ("weights", "kept") if name in run.tensor_names},
    )
    model.load_state_dict(tensors["weights"])
    model.to(context.device)
    if "kept" in tensors:
        trainee = Trainee(
            model, context.tokenizer, context.source, context.seed(phase), phase.name, torch.device(context.device)
        )
        Stack(context.entries(phase), context.setting(phase)).rebuild(trainee, tensors["kept"])
    return model


def _evaluate(context: Context, working: Any) -> StoredRun:
    from regft_core.data.batches import padding_of
    from regft_core.data.examples import read_jsonl
    from regft_core.evaluation.evaluate import SetInfo, evaluate_run
    from regft_core.evaluation.predict import EVALUATION_BATCH, predict

    model = trained_model(context)
    padding = padding_of(context.tokenizer)
    logits, sets = {}, {}
    for name, file in set_files(context.task).items():
        examples = read_jsonl(context.dataset / file)
        encoded = context.encode(examples)
        logits[name] = predict(
            model,
            encoded,
            batch_size=EVALUATION_BATCH,
            device=context.device,
            pad_id=padding.pad_id,
            pad_token_type_id=padding.pad_token_type_id,
            padding_side=padding.side,
            kind=context.task["kind"],
        )
        declared = context.task["sets"][name]
        sets[name] = SetInfo(
            labels=[example.label for example in examples],
            ids=[example.idx for example in examples],
            label_map=declared.get("label_map"),
            label_names=declared.get("labels"),
        )
    found = evaluate_run(logits, sets, context.task)
    files: dict[str, str | bytes] = {
        f"predictions/{name}.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        for name, rows in found.rows.items()
    }
    return working.commit({"status": "ok", "error": None, "sets": found.sets, "collapsed": found.collapsed}, {}, files)
