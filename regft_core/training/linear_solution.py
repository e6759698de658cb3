"""Linear heads solved on fixed features: multinomial logistic regression and ridge regression.

The strength of the L2 penalty is chosen by cross-validation inside the given rows. For the fit, features
are centred and divided by one number, the root of their mean variance, so that one grid of strengths fits
every encoder; both are folded into the solution, which is a plain linear map of the raw features. They are
not standardised one by one: features that hardly vary would get huge weights, and a model that is
fine-tuned from such a head diverges.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from regft_core.errors import RunFailed

Array = npt.NDArray[np.float64]

#: Strengths tried: the fit minimises the mean loss plus strength / 2 * ||W||^2 (ridge: + strength * ||W||^2).
STRENGTHS = tuple(10.0**power for power in range(-5, 3))
FOLDS = 5
#: How far below the lowest present class the bias of a class without a row is put: it has e^-10 of its odds.
ABSENT = 10.0


@dataclass(frozen=True)
class Solution:
    """A linear map of raw features: ``weight`` [K, d], ``bias`` [K]; ``notes`` on what was not as usual."""

    weight: Array
    bias: Array
    strength: float
    notes: list[str] = field(default_factory=list)


def classify_linearly(features: Array, labels: npt.NDArray[np.int64], classes: int, seed: int) -> Solution:
    """Logistic regression of ``labels`` [n] in 0 to ``classes`` - 1 on ``features`` [n, d].

    The strength is that of the smallest cross-validated log loss over stratified folds, drawn by ``seed``; the
    stronger one in a tie. With a class of one row there are no folds: strength 1 / n (C = 1 in scikit-learn).

    Raises RunFailed when all rows have one label.
    """
    present, counts = np.unique(labels, return_counts=True)
    if len(present) < 2:
        raise RunFailed(f"linear_head: all {len(labels)} rows have the same label, so there is nothing to separate")
    scaled, centre, scale = _scaled(features)
    notes = []
    folds = min(FOLDS, int(counts.min()))
    if folds < 2:
        strength = 1 / len(labels)
        notes.append("linear_head: a class has a single row, so the strength was not cross-validated")
    else:
        strength = _validated(scaled, labels, folds, seed)
    weight, bias, converged = _logistic(scaled, labels, strength)
    if not converged:
        notes.append("linear_head: the logistic regression did not converge")
    absent = np.setdiff1d(np.arange(classes), present)
    every, biases = np.zeros((classes, features.shape[1])), np.full(classes, bias.min() - ABSENT)
    every[present], biases[present] = weight, bias
    if len(absent):
        notes.append(f"linear_head: {len(absent)} of {classes} classes have no row and are never predicted")
    return _folded(every, biases, centre, scale, strength, notes)


def regress_linearly(features: Array, targets: Array) -> Solution:
    """Ridge regression of ``targets`` [n] on ``features`` [n, d]; strength by leave-one-out cross-validation."""
    from sklearn.linear_model import RidgeCV

    scaled, centre, scale = _scaled(features)
    # Scikit-learn's loss is the sum over rows.
    strengths = [strength * len(targets) for strength in STRENGTHS]
    model = RidgeCV(alphas=strengths).fit(scaled, targets)
    weight, bias = np.asarray(model.coef_).reshape(1, -1), np.asarray([float(model.intercept_)])
    return _folded(weight, bias, centre, scale, float(model.alpha_) / len(targets), [])


def _scaled(features: Array) -> tuple[Array, Array, float]:
    """(features of mean 0 and mean variance 1, their mean [d], the one scale)."""
    centre = features.mean(0)
    centred = features - centre
    scale = float(np.sqrt(np.square(centred).mean())) or 1.0
    return centred / scale, centre, scale


def _folded(weight: Array, bias: Array, centre: Array, scale: float, strength: float, notes: list[str]) -> Solution:
    """W ((x - centre) / scale) + b as a map of x."""
    raw = weight / scale
    return Solution(raw, bias - raw @ centre, strength, notes)


def _logistic(features: Array, labels: npt.NDArray[np.int64], strength: float) -> tuple[Array, Array, bool]:
    """(weight [K, d], bias [K], converged) for the K labels that occur, in their order; rows sum to 0."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1 / (strength * len(labels)), tol=1e-6, max_iter=5_000)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(features, labels)
    converged = not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    weight, bias = np.asarray(model.coef_), np.asarray(model.intercept_)
    if len(bias) == 1:  # two classes: scikit-learn gives the logit of the second over the first
        weight, bias = np.vstack([-weight / 2, weight / 2]), np.concatenate([-bias / 2, bias / 2])
    return weight, bias - bias.mean(), converged


def _validated(features: Array, labels: npt.NDArray[np.int64], folds: int, seed: int) -> float:
    """The strength of the smallest log loss on left-out rows."""
    from sklearn.model_selection import StratifiedKFold

    splits = list(StratifiedKFold(folds, shuffle=True, random_state=seed % 2**32).split(features, labels))
    present = np.unique(labels)
    losses = {}
    for strength in STRENGTHS:
        total = 0.0
        for train, left_out in splits:
            weight, bias, _ = _logistic(features[train], labels[train], strength)
            logits = features[left_out] @ weight.T + bias
            logits -= logits.max(1, keepdims=True)
            own = logits[np.arange(len(left_out)), np.searchsorted(present, labels[left_out])]
            total += float((np.log(np.exp(logits).sum(1)) - own).sum())
        losses[strength] = total
    return min(losses, key=lambda strength: (losses[strength], -strength))
