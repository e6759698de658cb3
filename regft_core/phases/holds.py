"""Which weights a run still needs: pins in the run store, against pruning.

A phase is held for the fine-tuning that starts from it, a fine-tuned model for its evaluation. The owner of
a pin is the key of what comes next: projects that share a store and compute the same share the pin too, and
whoever has what comes next needs the weights no longer.
"""

from __future__ import annotations

from regft_core.phases.context import Context
from regft_core.phases.evaluation_key import evaluation_key


def hold_phase(context: Context, key: str) -> None:
    """Keep the weights of an earlier phase until fine-tuning is done."""
    context.store.pin(key, context.key("finetune"))


def release_phases(context: Context, finetuned: str) -> None:
    """Fine-tuning (whose key is ``finetuned``) is done: it no longer needs the earlier phases."""
    for earlier in context.method.earlier:
        if earlier.name in context.job.keys:
            context.store.unpin(context.job.keys[earlier.name], finetuned)


def hold_model(context: Context, finetuned: str) -> None:
    """Keep the fine-tuned weights until they are evaluated."""
    if _only_tells(context):
        return
    context.store.pin(finetuned, evaluation_key(context, finetuned))


def release_model(context: Context, finetuned: str) -> None:
    """The evaluation is done: it no longer needs the fine-tuned weights."""
    if _only_tells(context):
        return
    context.store.unpin(finetuned, evaluation_key(context, finetuned))


def _only_tells(context: Context) -> bool:
    """Whether a trial is only looked up: it reads no weights, and the run that it may have become may hold them."""
    return context.job.stored_only and context.job.trial is not None
