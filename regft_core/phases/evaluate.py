"""The evaluation of one run, on the development set and on every out-of-distribution set."""

from __future__ import annotations

import json
from typing import Any

from regft_core.errors import CodeChanged, RunFailed
from regft_core.phases.context import Context, Job
from regft_core.phases.evaluation_key import evaluation_identity, evaluation_key, scope_of, set_files
from regft_core.phases.holds import release_model
from regft_core.phases.run_phase import fetch
from regft_core.progress import ProgressWriter
from regft_core.runs.guard import LoadedCode
from regft_core.runs.stored import StoredRun


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
    result, predictions = context.store.read_intact(
        lambda: _ensure(context, trained["key"]),
        lambda run: (run.result, {_set_name(file): run.read_text(file) for file in run.files}),
    )
    release_model(context, trained["key"])
    return record | result | {"predictions": predictions}


def _set_name(file: str) -> str:
    return file.removeprefix("predictions/").removesuffix(".jsonl")


def _ensure(context: Context, finetuned: str) -> StoredRun:
    """The evaluation of a run, from the store or made now.

    Raises CodeChanged when the evaluation's code is edited while it runs.
    """
    stored = context.store.get(evaluation_key(context, finetuned))
    if stored is not None:
        return stored
    guard = LoadedCode(scope_of(context))
    identity = evaluation_identity(context, finetuned)
    if identity["code"] != guard.sha256:
        raise CodeChanged("the code that evaluates was edited a moment ago; run `dvc repro` again")
    with context.store.open(context.store.run_key(identity), identity, guard=guard.check) as working:
        if working.finished is not None:
            return working.finished
        try:
            return _evaluate(context, working)
        except RunFailed as error:
            return working.commit({"status": "failed", "error": str(error), "collapsed": {}, "sets": {}})


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
        lambda: fetch(context, "finetune", "weights"),
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
    progress = ProgressWriter(context.job.progress, context.job.run, "evaluate", unit="row")
    seen, total = 0, sum(declared["n"] for declared in context.task["sets"].values())

    def show(rows: int) -> None:
        progress(seen + rows, total, 0, None, 0.0)

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
            on_batch=show,
        )
        seen += len(examples)
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
