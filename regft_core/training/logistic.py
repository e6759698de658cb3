"""Multinomial logistic regression on fixed features, dense or sparse; its penalty is cross-validated inside the rows.

What the solved heads (``linear_solution``) and the bag of words (``bag_of_words``) share: the fit by scikit-learn,
the choice of the strength, and what is done with classes that have no row or a single one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core.data.dividing import divide
from regft_core.errors import RunFailed
from regft_core.kinds import Kind

Array = npt.NDArray[np.float64]

FOLDS = 5
#: The note of a fit whose groups leave no folds.
TOO_FEW = "groups leave too few folds, so the strength was not cross-validated"
#: How far below the lowest present class the bias of a class without a row is put: it has e^-10 of its odds.
ABSENT = 10.0
HALF_DECADE = 10.0**0.5


@dataclass(frozen=True)
class Solution:
    """A linear map of features: ``weight`` [K, d], ``bias`` [K]; ``notes`` on what was not as usual."""

    weight: Array
    bias: Array
    strength: float
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Penalty:
    """The strengths of the L2 penalty that are tried, and how the fit reads them.

    The fit minimises the sum of the losses + strength / 2 * ||W||^2, or with ``per_row`` their mean + the same.

    Attributes:
        strengths: decades, and half decades about the best (``smallest_loss``); none: ``usual`` is taken.
        usual: taken where there is nothing to choose by.
        tolerance, iterations: of scikit-learn's solver.
    """

    strengths: Sequence[float]
    usual: float
    tolerance: float
    per_row: bool = False
    iterations: int = 5_000

    def inverse(self, strength: float, rows: int) -> float:
        """Scikit-learn's C for a fit to ``rows`` rows."""
        return 1 / (strength * rows) if self.per_row else 1 / strength


#: (labels [n], number of classes, a weight of each class or None) -> the fit
Fit = Callable[[npt.NDArray[np.int64], int, "Array | None"], Solution]


def solve(
    kind: Kind, labels: npt.NDArray[np.int64], outputs: int, weights: Sequence[Any] | None, fit: Fit, what: str
) -> Solution:
    """``fit`` to labels [n] of a kind with labels: once, or one label against the rest where an example has several.

    ``weights`` are those of ``Kind.balanced``. Of several fits, the strength is the median. A label that all rows have,
    or none, gets a constant; a note says so. Raises RunFailed where no label is in some rows only.
    """
    own = None if weights is None else np.asarray(weights, dtype=np.float64)
    if kind.one_label:
        return fit(labels, outputs, own)
    columns = kind.indicators(labels, outputs).T.astype(np.int64)
    found: list[Solution | None] = [
        fit(column, 2, None if own is None else own[k]) if 0 < column.sum() < len(column) else None
        for k, column in enumerate(columns)
    ]
    fitted = [one for one in found if one is not None]
    if not fitted:
        raise RunFailed(
            "one-class",
            f"{what}: every label is in all rows or in none, so there is nothing to separate\n"
            "    -> take more rows, or label some of another class",
        )
    rows = [np.zeros(fitted[0].weight.shape[1]) if one is None else one.weight[1] - one.weight[0] for one in found]
    constants = np.where(columns.any(axis=1), ABSENT, -ABSENT)
    biases = [constants[k] if one is None else one.bias[1] - one.bias[0] for k, one in enumerate(found)]
    notes = [note for one in fitted for note in one.notes]
    if one_sided := len(found) - len(fitted):
        notes.append(f"{what}: {one_sided} of {outputs} labels are in all rows or in none and are answered so")
    strength = float(np.median([one.strength for one in fitted]))
    return Solution(np.stack(rows), np.asarray(biases), strength, list(dict.fromkeys(notes)))


def classify(
    features: Any,
    labels: npt.NDArray[np.int64],
    classes: int,
    seed: int,
    *,
    what: str,
    penalty: Penalty,
    weights: Array | None = None,
    groups: Sequence[str] | None = None,
) -> Solution:
    """Logistic regression of ``labels`` [n] in 0 to ``classes`` - 1 on ``features`` [n, d].

    The strength is that of the smallest log loss over stratified folds, drawn by ``seed``; of equal ones the
    stronger. Where a class has a single row there are no folds. Rows of one of the ``groups`` [n] share a fold.
    ``what`` heads notes and errors. ``weights`` [classes]
    multiply the losses of their rows, in the folds too.

    Raises RunFailed when all rows have one label.
    """
    present, counts = np.unique(labels, return_counts=True)
    if len(present) < 2:
        raise RunFailed(
            "one-class",
            f"{what}: all {len(labels)} rows have the same label, so there is nothing to separate\n"
            "    -> take more rows, or subsample: {stratified: true}",
        )
    notes, strength = [], penalty.usual
    folds = min(FOLDS, int(counts.min()))
    if not penalty.strengths:
        pass
    elif folds < 2:
        notes.append(f"{what}: a class has a single row, so the strength was not cross-validated")
    elif (splits := folds_of(len(labels), labels.tolist(), groups, folds, seed)) is None:
        notes.append(f"{what}: {TOO_FEW}")
    else:
        strength = smallest_loss(penalty.strengths, left_out_loss(features, labels, splits, penalty, weights))
    weight, bias, converged = _fit(features, labels, strength, penalty, weights)
    if not converged:
        notes.append(f"{what}: the logistic regression did not converge in {penalty.iterations} iterations")
    every, biases = np.zeros((classes, features.shape[1])), np.full(classes, bias.min() - ABSENT)
    every[present], biases[present] = weight, bias
    if absent := classes - len(present):
        notes.append(f"{what}: {absent} of {classes} classes have no row and are never predicted")
    return Solution(every, biases, strength, notes)


def smallest_loss(strengths: Sequence[float], loss: Callable[[float], float]) -> float:
    """The strength of the smallest ``loss``; of equal ones the stronger.

    Half a decade on either side of the best of ``strengths`` is tried, too, where that is within their range. Decades
    alone cost a probe 0.2 points of accuracy (benchmarks/README.md, "Strength").
    """
    losses = {strength: loss(strength) for strength in strengths}

    def chosen() -> float:
        return min(losses, key=lambda strength: (losses[strength], -strength))

    best = chosen()
    near = (best / HALF_DECADE, best * HALF_DECADE)
    losses |= {strength: loss(strength) for strength in near if min(strengths) < strength < max(strengths)}
    return chosen()


def log_probabilities(logits: Array) -> Array:
    """Log-softmax over the last axis of [n, K]."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    found: Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return found


def left_out_loss(
    features: Any,
    labels: npt.NDArray[np.int64],
    splits: Sequence[tuple[Any, Any]],
    penalty: Penalty,
    weights: Array | None,
) -> Callable[[float], float]:
    """Strength -> log loss of every row of ``features`` [n, d] under the fit to the folds without it, summed.

    Args:
        labels: [n], as numbers.
        splits: (rows to fit, rows that are left out) of each fold.
        weights: [K], of the classes; None: all rows count alike.
    """
    present = np.unique(labels)

    def loss(strength: float) -> float:
        total = 0.0
        for train, left_out in splits:
            weight, bias, _ = _fit(features[train], labels[train], strength, penalty, weights)
            answers = log_probabilities(features[left_out] @ weight.T + bias)
            own = answers[np.arange(len(left_out)), np.searchsorted(present, labels[left_out])]
            total -= float(own.sum() if weights is None else own @ weights[labels[left_out]])
        return total

    return loss


def _fit(
    features: Any, labels: npt.NDArray[np.int64], strength: float, penalty: Penalty, weights: Array | None = None
) -> tuple[Array, Array, bool]:
    """(weight [K, d], bias [K], converged) for the K labels that occur, in their order; columns sum to 0."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    inverse = penalty.inverse(strength, len(labels))
    model = LogisticRegression(C=inverse, tol=penalty.tolerance, max_iter=penalty.iterations)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(features, labels, sample_weight=None if weights is None else weights[labels])
    converged = not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    weight, bias = np.asarray(model.coef_), np.asarray(model.intercept_)
    if len(bias) == 1:  # two classes: scikit-learn gives the logit of the second over the first
        weight, bias = np.vstack([-weight / 2, weight / 2]), np.concatenate([-bias / 2, bias / 2])
    return weight, bias - bias.mean(), converged


def folds_of(
    rows: int, strata: Sequence[int] | None, groups: Sequence[str] | None, count: int, seed: int
) -> list[tuple[Any, Any]] | None:
    """(training rows, left-out rows) of ``count`` folds, fewer where there are fewer groups, drawn by ``seed``.

    ``strata`` [rows], if there are any, keep their shares; rows of one of the ``groups`` [rows] share a fold. None
    where there is a single group, or groups would leave no row of a stratum to train on.
    """
    from sklearn.model_selection import KFold, StratifiedKFold

    if groups is None:
        draw = (KFold if strata is None else StratifiedKFold)(count, shuffle=True, random_state=seed % 2**32)
        return list(draw.split(np.zeros(rows), strata))
    count = min(count, len(set(groups)))
    if count < 2:
        return None
    stratum = np.zeros(rows) if strata is None else np.asarray(strata)
    part = np.array(divide([int(one) for one in stratum], groups, [1 / count] * count, Random(seed)))
    splits = [(np.flatnonzero(part != fold), np.flatnonzero(part == fold)) for fold in range(count)]
    every = set(stratum.tolist())
    whole = all(len(left) and set(stratum[train].tolist()) == every for train, left in splits)
    return splits if whole else None
