"""Vectors of a frozen encoder, computed once for each batch and kept.

The bits of a row's vector depend on its batch. So whole batches are kept, under a key of all that determines them:
encoder, parameters drawn before the last linear, kernels, precision, tokens. Rows of folds are read ``alone``, each a
batch of its own, so that all folds and the model of all rows share them.

Callers make sure that the encoder has the weights of its checkpoint and that nothing hooks into the model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from regft_core.data.batches import Batch
from regft_core.disk.canonical import canonical_json
from regft_core.models.poolings import mean
from regft_core.models.sites import classify, takes_token_types


@dataclass(frozen=True)
class Features:
    """A place for vectors; those of one model (:meth:`of`) can be kept. ``alone``: rows are encoded one by one."""

    kept: MutableMapping[Hashable, Tensor]
    about: Mapping[str, Any]
    alone: bool = False
    digest: Any = None

    def of(self, model: Any, what: str, precision: str, drawn: Mapping[str, Tensor]) -> Features:
        """The kept vectors ``what`` of a model; ``drawn``: parameters that they depend on and no checkpoint has."""
        settings = {
            "what": what,
            "about": self.about,
            "class": type(model).__qualname__,
            "pooling": [getattr(model, name, None) for name in ("pooling", "rows_per_example")],
            "attention": str(model.config._attn_implementation),
            "precision": precision,
        }
        digest = hashlib.sha256(canonical_json(settings).encode())
        for name in sorted(drawn):
            _add(digest, name, drawn[name])
        return replace(self, digest=digest)

    def key(self, batch: Batch) -> str:
        """The key of a batch's vectors; labels and numbers of its examples are no part of it."""
        digest = self.digest.copy()
        digest.update(str(batch.padded).encode())
        for name, tensor in sorted(batch.model_inputs().items()):
            _add(digest, name, tensor)
        return str(digest.hexdigest())

    def get(self, batch: Batch) -> Tensor | None:
        """Kept vectors ``[B, H]`` of a batch, on its device; None where there are none."""
        found = self.kept.get(self.key(batch))
        return None if found is None else found.to(batch.input_ids.device)

    def put(self, batch: Batch, vectors: Tensor) -> None:
        """Keep the vectors ``[B, H]`` of a batch."""
        key, value = self.key(batch), vectors.detach().to("cpu", copy=True).contiguous()
        with suppress(ValueError):  # larger than the memory
            self.kept[key] = value


def _add(digest: Any, name: str, tensor: Tensor) -> None:
    digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
    digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())


def answers(
    model: Any, linear: str, features: Features | None, precision: str = "fp32"
) -> Callable[[Batch], tuple[Tensor, Tensor]]:
    """Return a function of a batch: what the linear of that name receives [B, d], and logits [B, K].

    Where the head maps tokens and averages their logits (EuroBERT), the vector is the mean over the real tokens.
    With ``features``, kept vectors are read, and the linear is all that runs. They are kept where the logits are what
    the linear alone gives, bit for bit: not of heads that do more behind it.
    """
    module: nn.Linear = model.get_submodule(linear)
    vectors = None
    if features is not None:  # exported models have none, and no list of what was drawn
        below = (name for name in model.regft_new_parameters if not name.startswith(f"{linear}."))
        drawn = {name: model.get_parameter(name) for name in below}
        vectors = features.of(model, f"input of {linear}", precision, drawn)

    def answer(batch: Batch) -> tuple[Tensor, Tensor]:
        if vectors is not None and (found := vectors.get(batch)) is not None:
            return found, module(found)
        received: list[Tensor] = []
        handle = module.register_forward_pre_hook(lambda _module, args: received.append(args[0].detach()))
        try:
            logits, _ = classify(model, batch.model_inputs(), padded=batch.padded)
        finally:
            handle.remove()
        rows = received[-1]
        if rows.dim() == 3:
            rows = mean(rows, batch.attention_mask, "first")
        if vectors is not None and torch.equal(module(rows), logits):
            vectors.put(batch, rows)
        return rows, logits

    def answers_alone(batch: Batch) -> tuple[Tensor, Tensor]:
        received, logits = zip(*map(answer, batch.one_by_one()), strict=True)
        return torch.cat(received), torch.cat(logits)

    return answers_alone if features is not None and features.alone else answer


def token_means(model: Any, features: Features | None) -> Callable[[Batch], Tensor]:
    """A function of a batch: the mean over its tokens' last states [texts, H], in fp32, on the CPU."""
    vectors = None if features is None else features.of(model, "means of the tokens", "fp32", {})

    def means(batch: Batch) -> Tensor:
        if vectors is not None and (found := vectors.get(batch)) is not None:
            return found.cpu()
        inputs = batch.model_inputs(takes_token_types(model))
        windows = inputs.pop("windows", None)
        hidden = model.base_model(**inputs)[0].float()
        pooled = mean(hidden, inputs["attention_mask"], "first")
        found = (pooled if windows is None else windows @ pooled).cpu()
        if vectors is not None:
            vectors.put(batch, found)
        return found

    if features is not None and features.alone:
        return lambda batch: torch.cat([means(one) for one in batch.one_by_one()])
    return means
