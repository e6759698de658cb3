"""Every example has one of at least three labels that have an order (stars, grades); ``labels`` lists the lowest first.

The head has a logit per label, and the largest wins, as for classes. The loss is the mean log loss of the questions "is
it above label k?" (the decomposition of Frank and Hall, ECML 2001, section 2), all answered from one distribution. What
is fitted without steps (the probe, TF-IDF) is fitted as for classes.
"""

from __future__ import annotations

from collections.abc import Sequence

from regft_core.kinds._base import Array, Collapse
from regft_core.kinds._judging import warn_if_reversed
from regft_core.kinds.classification import Classification
from regft_core.lazy import Tensor, np, torch


class Ordinal(Classification):
    ordered = True
    label_keys = "'labels' lists every label, the lowest first, 'label_values' maps other spellings, "

    def wrong_labels(self, labels: Sequence[str] | None) -> str | None:
        if labels is None or len(labels) < 3:
            return "an ordinal task needs 'labels' with at least three names, the lowest first; two are classes"
        return None

    def task_loss(self, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        """Log loss of the side of the K - 1 cuts, a mean over cuts and examples; of two labels cross-entropy."""
        classes = torch.arange(logits.shape[1], device=logits.device)
        above = classes > classes[:-1, None]  # [K - 1, K]
        right = labels[:, None] > classes[:-1]  # [B, K - 1]
        side = above == right[:, :, None]  # [B, K - 1, K]: labels on the side of the right one
        each = -logits.log_softmax(-1)[:, None].masked_fill(~side, -torch.inf).logsumexp(-1).mean(1)
        return (each if weights is None else each * weights[labels]).mean()

    def constant(self, gold: Array) -> Array:
        """The set's median label, the lower of two."""
        return np.full(gold.shape, np.sort(gold)[(len(gold) - 1) // 2], dtype=np.int64)

    def warning(self, gold: Array, predictions: Array, names: Sequence[str]) -> str | None:
        return warn_if_reversed(gold, predictions)

    def collapsed(self, gold: Array, predictions: Array) -> Collapse | None:
        """``majority``: the mean distance is not below that of ``constant``."""
        if np.all(predictions == predictions[0]):
            return None if np.all(gold == predictions[0]) else "constant"
        distance, alone = (np.abs(gold - guessed).sum() for guessed in (predictions, self.constant(gold)))
        return "majority" if distance >= alone else None


KIND = Ordinal
