"""The answers of an earlier phase to the rows of a phase that learns them; this code is in that phase's key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from regft_core.runs.context import Context
from regft_core.runs.encoder_tensors import load_pretrained
from regft_core.schema.method import Phase

if TYPE_CHECKING:
    from torch import Tensor


def earlier_answers(context: Context, earlier: Phase, weights: Mapping[str, Tensor], phase: Phase) -> Tensor:
    """Return the outputs [n, K] of an ``earlier`` phase with these weights for the rows of ``phase``.

    Texts are encoded as the earlier phase reads them, by its encoder's tokenizer; there is no dropout.
    """
    import torch

    from regft_core.data.batches import padding_of
    from regft_core.evaluate.predict import predict

    model = load_pretrained(context, earlier)
    model.load_state_dict(model.state_dict() | weights)
    answers = predict(
        model.to(context.device),
        context.encode(context.data(phase).examples, earlier),
        device=context.device,
        precision=earlier.training.precision,
        padding=padding_of(context.tokenizer_of(earlier)),
        kind=context.data(earlier).kind,
    )
    return torch.from_numpy(answers)
