"""Logits of a whole encoded set, in its order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from regft_core.data.batches import Batch, Padding, collate, evaluation_tokens, fitting, longest_first
from regft_core.data.encode import Encoded
from regft_core.data.prompts import appended
from regft_core.errors import ModelError, OutOfMemory
from regft_core.evaluate.evaluated import require_finite
from regft_core.kinds import find
from regft_core.models.features import answers
from regft_core.models.heads import answering_in_fp32, autocast, evaluating, last_linear
from regft_core.models.sites import classify

if TYPE_CHECKING:
    from regft_core.models.features import Features


def predict(
    model: torch.nn.Module,
    encoded: Encoded,
    *,
    device: str | torch.device = "cpu",
    precision: str = "fp32",
    padding: Padding,
    kind: str = "classification",
    on_batch: Callable[[int], None] | None = None,
    batch_tokens: int | None = None,
    features: Features | None = None,
    hidden: bool = False,
) -> npt.NDArray[np.float32]:
    """Return logits [n, K] in the order of ``encoded``.

    Logits depend on which examples share a batch by the rounding of matrix products only (about 1e-6 in fp32).
    ``on_batch`` is called after each batch with the number of examples so far. A batch has at most ``batch_tokens``
    (by default :func:`evaluation_tokens`), padding included; half as many whenever memory runs out.
    ``features`` are kept vectors of a frozen encoder. With ``hidden`` the last hidden states follow the logits,
    [n, K + H], as ``Batch.mean`` has them. ``model`` must already be on ``device``.

    Raises:
        RunFailed: a logit is NaN or infinite.
        OutOfMemory: one example alone does not fit.
    """
    device = torch.device(device)
    tokens = evaluation_tokens(device) if batch_tokens is None else batch_tokens
    order, answer, done = longest_first(encoded), _answer(model, features, precision, hidden), 0
    parts: list[torch.Tensor] = []  # stay on the device, so that no batch waits for the one before
    values = not find(kind).has_labels and precision != "fp32"
    exact = answering_in_fp32(model) if values else contextlib.nullcontext()
    with evaluating(model), torch.inference_mode(), autocast(device, precision), exact:
        while done < len(order):
            indices = order[done : done + fitting(encoded, order[done], tokens)]
            batch = collate(encoded, indices, padding, kind).to(device)
            try:
                parts.append(answer(batch).float())
            except torch.OutOfMemoryError as error:
                longest = encoded.lengths[indices[0]] * encoded.rows_per_example
                if len(indices) == 1:
                    raise OutOfMemory(
                        "out-of-memory",
                        f"out of memory on {device} while predicting one example of {longest} tokens; "
                        f"lower model.max_length, or use a device with more memory ({error})",
                    ) from error
                # Longest first: what fits now fits to the end.
                tokens = longest * (len(indices) // 2)
                continue
            done += len(indices)
            if on_batch is not None:
                on_batch(done)
        found = torch.cat(parts).cpu().numpy()
    logits = np.empty_like(found)
    logits[order] = found
    other = "" if precision == "fp32" else f" or use precision fp32 instead of {precision}"
    require_finite(logits, encoded.ids, "the model", f"lower the learning rate{other}")
    return logits


def _answer(model: Any, features: Features | None, precision: str, hidden: bool) -> Callable[[Batch], torch.Tensor]:
    """A function of a batch: its logits [B, K]. Heads that do not end with a linear run with their encoder."""
    if features is not None:
        with contextlib.suppress(ModelError):
            linear = last_linear(model, model.regft_new_parameters, model.config.num_labels)
            answer = answers(model, linear, features, precision)
            return lambda batch: answer(batch)[1]

    def classified(batch: Batch) -> torch.Tensor:
        logits, states = classify(model, batch.model_inputs(), need_hidden=hidden, padded=batch.padded)
        return logits if states is None else torch.cat([logits.float(), batch.mean(states)], dim=1)

    return classified


def over_sets(
    encoded: Encoded, sets: Sequence[Sequence[int]], logits: Callable[[Encoded], npt.NDArray[Any]]
) -> npt.NDArray[Any]:
    """Mean ``logits`` [n, K] of the rows with each set of demonstrations behind them; without sets, of the rows."""
    if not sets:
        return logits(encoded)
    total = sum(logits(appended(encoded, [tokens] * len(encoded))).astype(np.float64) for tokens in sets)
    return np.asarray(total / len(sets), dtype=np.float32)
