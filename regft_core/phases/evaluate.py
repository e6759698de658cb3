"""The evaluation of one run, on the development set and on every out-of-distribution set."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from regft_core.data.examples import Example, read_jsonl
from regft_core.errors import CodeChanged, ModelError, RunFailed
from regft_core.phases.context import Context, Job
from regft_core.phases.evaluation_key import evaluation_identity, evaluation_key, scope_of, set_files
from regft_core.phases.holds import release_model
from regft_core.phases.run_phase import fetch
from regft_core.runs.guard import LoadedCode
from regft_core.runs.stored import StoredRun

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from regft_core.training.stack import Stack
    from regft_core.training.trainee import Trainee

#: Gives answers [n, K] to n examples.
Answering = Callable[[Sequence[Example]], "npt.NDArray[np.float32]"]


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
    """The plain model of the finished run, with what it needs for inference put back in; on its device.

    Raises ModelError when a regulariser answers in the place of the model.
    """
    stack, trainee, _ = _restored(context)
    if stack.predictor is not None:
        raise ModelError(
            f"{context.job.method} has no model of its own to give: '{stack.predictor.name}' answers in its place, "
            "which no Hugging Face directory can hold; its predictions are in work/evaluate"
        )
    assert trainee is not None
    return trainee.model


def answering(context: Context) -> Answering:
    """What answers for the finished run: its model, or the regulariser that owns the prediction."""
    stack, trainee, kept = _restored(context)
    if stack.predictor is not None:
        return lambda examples: stack.predict(trainee, kept, examples)
    assert trainee is not None
    return _model_answers(context, trainee.model)


def _restored(context: Context) -> tuple[Stack, Trainee | None, dict[str, Tensor]]:
    """The regularisers of the finished run, its model (None where none was stored) and what was kept for inference."""
    import torch

    from regft_core.config.schema import DropoutConfig
    from regft_core.models.load import load_classifier
    from regft_core.training.stack import Stack
    from regft_core.training.trainee import Trainee

    phase = context.phase("finetune")
    stack = Stack(context.entries(phase), context.setting(phase))
    wanted = context.weights_wanted(phase)
    tensors = context.store.read_intact(
        lambda: fetch(context, "finetune", "weights" if wanted else "state"),
        lambda run: {name: run.load_tensors(name) for name in ("weights", "kept") if name in run.tensor_names},
    )
    kept = tensors.get("kept", {})
    if not wanted:
        return stack, None, kept
    model = load_classifier(
        context.source,
        kind=context.task["kind"],
        labels=context.task["labels"],
        dropout=DropoutConfig(),
        head_seed=0,
        pooling=context.encoder.pooling,
        rows_per_example=context.rows_per_example(context.data(phase).examples),
    )
    model.load_state_dict(tensors["weights"])
    model.to(context.device)
    trainee = Trainee(
        model, context.tokenizer, context.source, context.seed(phase), phase.name, torch.device(context.device)
    )
    stack.rebuild(trainee, kept)
    return stack, trainee, kept


def _model_answers(context: Context, model: Any) -> Answering:
    from regft_core.data.batches import padding_of
    from regft_core.evaluation.predict import EVALUATION_BATCH, predict

    padding = padding_of(context.tokenizer)

    def answer(examples: Sequence[Example]) -> npt.NDArray[np.float32]:
        return predict(
            model,
            context.encode(list(examples)),
            batch_size=EVALUATION_BATCH,
            device=context.device,
            pad_id=padding.pad_id,
            pad_token_type_id=padding.pad_token_type_id,
            padding_side=padding.side,
            kind=context.task["kind"],
        )

    return answer


def _evaluate(context: Context, working: Any) -> StoredRun:
    from regft_core.evaluation.evaluate import SetInfo, evaluate_run

    answer = answering(context)
    logits, sets = {}, {}
    for name, file in set_files(context.task).items():
        examples = read_jsonl(context.dataset / file)
        logits[name] = answer(examples)
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
