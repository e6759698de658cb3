"""What determines an evaluation: the run, every set, the task's metrics, the code."""

from __future__ import annotations

from typing import Any

from regft_core.data import splits
from regft_core.io.file_states import content_sha256
from regft_core.runs.context import Context
from regft_core.runs.identity.fingerprint import Scope
from regft_core.runs.scopes import evaluation_scope, scope_sha256


def scope_of(context: Context) -> Scope:
    """The code that evaluates this run."""
    return evaluation_scope([context.task["kind"]], context.task["metrics"], context.source)


def evaluation_identity(context: Context, finetuned: str) -> dict[str, Any]:
    """Everything that determines the evaluation of the run with the key ``finetuned``."""
    return {"format": 3, "phase": "evaluate", "run": finetuned, **evaluation_settings(context)}


def evaluation_settings(context: Context) -> dict[str, Any]:
    """What determines an evaluation beside the run: the same for every seed."""
    return {
        "task": {key: context.task[key] for key in ("kind", "labels", "metrics", "primary", "positive_label", "sets")},
        "sets": {name: content_sha256(context.dataset / file) for name, file in set_files(context.task).items()},
        # The run's key has these too; here they are what the evaluation really reads the sets with.
        "model": {
            "tokenizer": context.source.tokenizer_sha256,
            "max_length": context.encoder.max_length,
            "pooling": context.encoder.pooling,
            "pairs": context.encoder.pairs,
            **context.encoder.reading,
        },
        **({"rows_alone": True} if context.rows_alone else {}),
        "code": scope_sha256(scope_of(context)),
    }


def evaluation_key(context: Context, finetuned: str) -> str:
    """Key of the evaluation of a run."""
    return context.store.run_key(evaluation_identity(context, finetuned))


def set_files(task: dict[str, Any]) -> dict[str, str]:
    """Name of each evaluation set of ``Context.task`` and its file in the dataset folder."""
    return splits.set_files(task)
