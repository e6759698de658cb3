"""The answers of an earlier phase to the rows of a phase that learns them; this code is in that phase's key."""

from __future__ import annotations

from dataclasses import replace

from regft_core.hooks.declare import Handed
from regft_core.runs.context import Context
from regft_core.runs.encoder_tensors import load_pretrained
from regft_core.schema.method import Phase


def earlier_answers(context: Context, earlier: Phase, given: Handed, phase: Phase, *, hidden: bool) -> Handed:
    """Return what an ``earlier`` phase has ``given`` with its outputs for the rows of ``phase``, and ``hidden`` states.

    Texts are encoded as the earlier phase reads them, by its encoder's tokenizer; there is no dropout.
    """
    import torch

    from regft_core.data.batches import padding_of
    from regft_core.evaluate.predict import predict

    model = load_pretrained(context, earlier)
    model.load_state_dict(model.state_dict() | given.weights)
    outputs = predict(
        model.to(context.device),
        context.encode(context.data(phase).examples, earlier),
        device=context.device,
        precision=earlier.training.precision,
        padding=padding_of(context.tokenizer_of(earlier)),
        kind=context.data(earlier).kind,
        hidden=hidden,
    )
    answers, states = torch.from_numpy(outputs).tensor_split([model.config.num_labels], 1)
    return replace(given, answers=answers.contiguous(), hidden=states.contiguous() if hidden else None)
