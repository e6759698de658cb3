"""Logits of a whole encoded set, in its order."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from regft_core.errors import RunFailed

if TYPE_CHECKING:
    from regft_core.data.encode import Encoded

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def predict(
    model: torch.nn.Module,
    encoded: Encoded,
    *,
    batch_size: int,
    device: str | torch.device = "cpu",
    precision: str = "fp32",
    pad_id: int,
    pad_token_type_id: int = 0,
    padding_side: str = "right",
    kind: str = "classification",
) -> npt.NDArray[np.float32]:
    """Return logits [n, K] in the order of ``encoded``.

    Batches hold examples of similar length, so little is computed on padding; logits do not depend
    on which examples share a batch beyond the rounding of matrix products (about 1e-6 in fp32).
    ``model`` must already be on ``device``. Every submodule's training flag is as before afterwards.

    Raises:
        RunFailed: a logit is NaN or infinite.
        ValueError: an unknown ``precision``, or a batch size below 1.
    """
    from regft_core.data.batches import collate

    if precision != "fp32" and precision not in _AUTOCAST:
        raise ValueError(f"precision {precision!r} is not one of fp32, {', '.join(_AUTOCAST)}")
    if batch_size < 1:
        raise ValueError(f"batch_size {batch_size} is below 1")
    device = torch.device(device)
    # Longest first: if memory does not suffice, that shows at once. A stable sort keeps this deterministic.
    order = np.argsort([-len(ids) for ids in encoded.input_ids], kind="stable")
    parts: list[npt.NDArray[np.float32]] = []
    with _evaluating(model), torch.inference_mode(), _autocast(device, precision):
        for start in range(0, len(order), batch_size):
            indices = order[start : start + batch_size].tolist()
            batch = collate(encoded, indices, pad_id, pad_token_type_id, padding_side, kind).to(device)
            parts.append(model(**batch.model_inputs()).logits.float().cpu().numpy())
    if not parts:
        raise ValueError("the set has no examples to predict")
    logits = np.empty((len(order), parts[0].shape[1]), dtype=np.float32)
    logits[order] = np.concatenate(parts)
    bad: npt.NDArray[np.bool_] = np.logical_not(np.isfinite(logits)).any(axis=1)
    if bad.any():
        raise RunFailed(
            f"the model's logits are NaN or infinite on {int(bad.sum())} of {len(bad)} examples (first: "
            f"idx {encoded.ids[int(bad.argmax())]}); lower the learning rate"
            + (f" or use precision fp32 instead of {precision}" if precision != "fp32" else "")
        )
    return logits


def _autocast(device: torch.device, precision: str) -> contextlib.AbstractContextManager[Any]:
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=_AUTOCAST[precision])


@contextlib.contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Put ``model`` in evaluation mode; afterwards each submodule gets its own flag back, not the root's."""
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, flag in flags:
            module.training = flag
