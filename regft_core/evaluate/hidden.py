"""Insides of a finished model: embedding outputs, states of every layer; and inputs with some tokens replaced.

The first functions take the plain classifier in evaluation mode and one batch on its device. Tensors come back as
``[rows, n, H]``, with the rows and positions of the batch's tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regft_core.data.batches import Batch
from regft_core.data.encode import Encoded, Rows
from regft_core.evaluate.analysis_result import BY_WINDOWS, Unfit
from regft_core.models.architectures import architecture_of
from regft_core.models.heads import pair_features, pool
from regft_core.models.sites import LayerSite, SiteHooks, classify, find_sites, takes_token_types
from regft_core.training.perturbation import as_read

if TYPE_CHECKING:
    from regft_core.runs.finished_model import FinishedModel

#: One array [n] for each row of an example; of every example.
PerRow = Sequence["npt.NDArray[Any]"]
PerToken = list[PerRow]
#: ([rows, n, H], mask [rows, n], segment [rows, n], stack) -> what the encoder reads instead
Replace = Callable[[Tensor, Tensor, Tensor, str], Tensor]


@contextmanager
def _hooked(model: Any) -> Iterator[SiteHooks]:
    hooks = SiteHooks(model, find_sites(model))
    try:
        yield hooks
    finally:
        hooks.remove()


def _rows(tensor: Tensor, batch: Batch, site: LayerSite) -> Tensor:
    """``[rows, n, H]`` at the positions of the batch; raises Unfit where there are other positions (prompts)."""
    return _at_tokens(tensor.transpose(0, 1) if site.batch_dim == 1 else tensor, batch)


def _at_tokens(rows: Tensor, batch: Batch) -> Tensor:
    if rows.shape[1] != batch.input_ids.shape[1]:
        raise Unfit("the model reads virtual tokens, so its hidden states have other positions than the input's tokens")
    return rows


@torch.inference_mode()
def layer_states(model: Any, batch: Batch) -> list[Tensor]:
    """``[rows, n, H]`` of every layer, from the embedding output to what the head reads.

    The head is not asked: rows may be single texts where it reads pairs of rows.
    """
    found: list[Tensor] = []

    def see(tensor: Tensor, site: LayerSite) -> Tensor:
        found.append(_rows(tensor, batch, site).float())
        return tensor

    with _hooked(model) as hooks:
        hooks.on_layer_input(see, always=True)
        last = _at_tokens(model.base_model(**batch.model_inputs(takes_token_types(model)))[0], batch)
    return [*found, last.float()]


def embedding_output(model: Any, batch: Batch) -> Tensor:
    """``[rows, n, H]``: what the first layer of the encoder reads."""
    return layer_states(model, batch)[0]


@torch.inference_mode()
def summaries(model: Any, batch: Batch, pooling: str, replace: Replace | None = None) -> Tensor:
    """``[B, F]``: one vector per example, pooled from what the head reads.

    Args:
        pooling: that of the model; of ``head`` and ``mask`` the family's summary token.
        replace: gives the embedding output that the encoder reads in place of its own.
    """

    def put(tensor: Tensor, site: LayerSite) -> Tensor:
        assert replace is not None
        rows = _rows(tensor, batch, site)
        segment = as_read(batch.segment, site.stack, -1)
        given = replace(rows, batch.attention_mask, segment, site.stack).to(tensor.dtype)
        return given.transpose(0, 1) if site.batch_dim == 1 else given

    with _hooked(model) as hooks:
        if replace is not None:
            hooks.on_embedding_output(put, always=True)
        _, last = classify(model, batch.model_inputs(), need_hidden=True)
    assert last is not None
    return pooled(model, last.float(), batch, pooling)


def pooled(model: Any, states: Tensor, batch: Batch, pooling: str) -> Tensor:
    """``[B, F]`` of one layer's states; of a pair in two rows the features that a head for pairs reads."""
    summary = "last" if pooling == "last" else architecture_of(model.config.model_type).summary
    vectors = pool(states, batch.attention_mask, "cls" if pooling in ("head", "mask") else pooling, summary)
    return pair_features(vectors) if batch.rows_per_example == 2 else vectors


def mask_token(trained: FinishedModel) -> int:
    if (mask := trained.tokenizer.mask_token_id) is None:
        raise Unfit("the tokenizer has no mask token, so none was masked")
    return int(mask)


def token_confidence(trained: FinishedModel, encoded: Encoded) -> PerToken:
    """The confidence of every token of every row of each example; raises Unfit where no method has learned one."""
    found: PerToken = [[] for _ in range(len(encoded))]
    for batch in trained.batches(encoded):
        values = trained.confidence(embedding_output(trained.model, batch))
        if values is None:
            raise Unfit("no method here learns a confidence per token")
        plain, mask = values.detach().cpu().numpy(), batch.attention_mask.cpu().numpy().astype(bool)
        rows = (row[real] for row, real in zip(plain, mask, strict=True))
        for index in batch.indices.tolist():
            found[index] = list(islice(rows, sum(encoded.windows_of(index))))
    return found


# Added tokens such as [CLS] always stay. An example is one row of tokens, or two where the texts of a pair are encoded
# separately; both are edited.

#: (token ids, editable) of one example's rows -> its other token ids
Replacement = Callable[[PerRow, PerRow], PerRow]


def editable(encoded: Encoded) -> list[list[npt.NDArray[Any]]]:
    """Example -> for each of its rows ``[n]``, True on tokens of its texts. Raises Unfit for texts in windows."""
    if encoded.windows is not None:
        raise Unfit(BY_WINDOWS)
    return [[np.asarray(row) >= 0 for row in encoded.rows_of("segment", i)] for i in range(len(encoded))]


def with_replaced(encoded: Encoded, draw: Replacement) -> Encoded:
    """``encoded`` with the ids that ``draw`` gives on editable tokens; it is asked for one example after the other."""
    rows: Rows = []
    for index, free in enumerate(editable(encoded)):
        ids = [np.asarray(row) for row in encoded.rows_of("input_ids", index)]
        for before, may, after in zip(ids, free, draw(ids, free), strict=True):
            rows.append([int(token) for token in np.where(may, after, before)])
    return replace(encoded, input_ids=rows)
