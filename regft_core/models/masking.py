"""Masking tokens, and masked language models beside (or on top of) a classifier."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from regft_core.data.batches import Batch
from regft_core.errors import ModelError
from regft_core.hooks.base import Regulariser
from regft_core.hooks.declare import Handed, Step, Tensor
from regft_core.lazy import np, torch

#: Mark of a result.
TRAINED_HEAD = "its masked-LM head was trained on the task's training text, the checkpoint has none"


def choose_positions(maskable: Tensor, rate: float, rule: str, generator: torch.Generator) -> Tensor:
    """Choose positions to mask, as booleans ``[B, n]``: a ``rate`` of each row (``count``), or each with it."""
    scores = torch.rand(maskable.shape, generator=generator, device=maskable.device)
    if rule == "bernoulli":
        return (scores < rate) & maskable
    available = maskable.sum(1)
    wanted = (available * rate).round().clamp_min(1 if rate > 0 else 0)
    ranks = scores.masked_fill(~maskable, 2.0).argsort(1).argsort(1)
    return (ranks < wanted.unsqueeze(1)) & maskable


def maskable(batch: Batch, keywords: int) -> Tensor:
    """Booleans ``[B, n]``: tokens of the texts, those of the segment ``keywords`` left out (``Setting.keywords``)."""
    return (batch.segment >= 0) & (batch.segment != keywords)


def masked_positions(method: Regulariser, step: Step) -> tuple[Tensor, Tensor]:
    """(rows, columns) of the tokens to mask in a step, by the method's options ``mask_rate`` and ``selection``.

    Only ``bernoulli`` waits for a device.
    """
    batch, keywords, rate, rule = step.batch, step.setting.keywords, method.options.mask_rate, method.options.selection
    chosen = choose_positions(maskable(batch, keywords), rate, rule, step.generator(f"{method.name}.positions"))
    if rule == "bernoulli" or not batch.ordinary:
        rows, columns = chosen.nonzero(as_tuple=True)
        return rows, columns
    # Counted in fp32 as in `choose_positions`, but on the host, from what was known when the batch was built.
    kept = [part for part in (0, 1) if part != keywords]
    available = np.array([sum(counts[part] for part in kept) for counts in batch.ordinary], dtype=np.int64)
    wanted = np.rint(available.astype(np.float32) * np.float32(rate)).clip(min=1 if rate > 0 else 0)
    found = torch.nonzero_static(chosen, size=int(np.minimum(wanted, available).sum()))
    return found[:, 0], found[:, 1]


def with_tokens(batch: Batch, positions: tuple[Tensor, Tensor], tokens: Tensor | int) -> Batch:
    """A copy of the batch with ``tokens`` (one, or one per position) at ``positions``: rows and columns ``[m]``."""
    ids = batch.input_ids.clone()
    # One token is written by a kernel; a tensor made of it on the host would have to be waited for.
    ids[positions] = tokens.to(ids.dtype) if isinstance(tokens, torch.Tensor) else ids.new_full((), tokens)
    return dataclasses.replace(batch, input_ids=ids)


def own_parameters(head: torch.nn.Module, model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Parameters of a masked-LM head that the model does not have: all but the tied embedding."""
    shared = {id(parameter) for parameter in model.parameters()}
    return {name: parameter for name, parameter in head.named_parameters() if id(parameter) not in shared}


def take_head(method: Regulariser, head: torch.nn.Module, model: torch.nn.Module, handed: Mapping[str, Handed]) -> None:
    """Give a masked-LM head that the checkpoint lacks the weights of the phase of the option ``head``."""
    own, phase, name = own_parameters(head, model), method.options.head, method.trainee.source.name
    state = {} if phase is None else handed[phase].of("masked_lm")
    if not own:
        text = f"{method.name}: the checkpoint '{name}' has no masked-LM head, and its family none that can be trained"
        raise ModelError("masked-lm-untrainable", f"{text}\n    -> use a checkpoint that has one")
    if any(f"head/{key}" not in state for key in own):
        text = f"{method.name}: the checkpoint '{name}' has no masked-LM head and no phase trained one"
        hint = "add a phase with masked_lm: {trains: head}, named as head (pipelines/methods/mask_tuning.yaml)"
        raise ModelError("masked-lm-head-missing", f"{text}\n    -> {hint}")
    with torch.no_grad():
        for key, parameter in own.items():
            parameter.copy_(state[f"head/{key}"])
