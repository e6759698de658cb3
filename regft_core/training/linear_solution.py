"""Linear heads solved on fixed features: multinomial logistic regression and ridge regression.

The strength of the L2 penalty is chosen by cross-validation inside the given rows (``classify_as_setfit`` leaves it
at that of the setfit package). For that fit, features
are centred and divided by one number, the root of their mean variance, so that one grid of strengths fits
every encoder; both are folded into the solution, which is a plain linear map of the raw features. They are
not standardised one by one: features that hardly vary would get huge weights, and a model that is
fine-tuned from such a head diverges. The parts of a pair's features, u, v, |u - v| and u * v, have a number each:
|u - v| varies half as much as the others, and with one number for all, six sets of 200 pairs are 1.4 points worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from regft_core.training.logistic import FOLDS, TOO_FEW, Penalty, Solution, classify, folds_of

Array = npt.NDArray[np.float64]

#: Strengths tried: the fit minimises the mean loss plus strength / 2 * ||W||^2 (ridge: + strength * ||W||^2).
STRENGTHS = tuple(10.0**power for power in range(-5, 3))


def classify_linearly(
    features: Array,
    labels: npt.NDArray[np.int64],
    classes: int,
    seed: int,
    weights: Array | None = None,
    groups: Sequence[str] | None = None,
    parts: int = 1,
) -> Solution:
    """Logistic regression of ``labels`` [n] in 0 to ``classes`` - 1 on ``features`` [n, d].

    The strength is that of the smallest cross-validated log loss over stratified folds, drawn by ``seed``; the
    stronger one in a tie. With a class of one row there are no folds: strength 1 / n (C = 1 in scikit-learn).
    ``weights`` [classes]: of the losses of each class's rows. Rows of one of the ``groups`` [n] share a fold.
    ``parts``: of d / parts features each, scaled apart.

    Raises RunFailed when all rows have one label.
    """
    scaled, centre, scale = scaled_apart(features, parts)
    # With fewer rows than features the solution lies in the span of the rows: fitted there, it is the same and faster.
    span = np.linalg.qr(scaled.T)[0] if len(scaled) < scaled.shape[1] else None
    rows = scaled if span is None else scaled @ span
    penalty = Penalty(STRENGTHS, usual=1 / len(labels), tolerance=1e-6, per_row=True)
    found = classify(rows, labels, classes, seed, what="linear_head", penalty=penalty, weights=weights, groups=groups)
    weight = found.weight if span is None else found.weight @ span.T
    return _folded(weight, found.bias, centre, scale, found.strength, found.notes)


def classify_as_setfit(
    features: npt.NDArray[np.float32], labels: npt.NDArray[np.int64], classes: int, weights: Array | None = None
) -> Solution:
    """Logistic regression as the setfit package (1.2.0) fits it: scikit-learn's defaults on the features as they are.

    That is C = 1 (the sum of the losses + 1/2 * ||W||^2), lbfgs in the precision of ``features`` [n, d], at most 100
    iterations, tolerance 1e-4, an intercept without penalty. The solution's strength is per row, as above: 1 / n.

    Raises RunFailed when all rows have one label.
    """
    penalty = Penalty((), usual=1.0, tolerance=1e-4, iterations=100)
    found = classify(features, labels, classes, 0, what="linear_head", penalty=penalty, weights=weights)
    return replace(found, strength=1 / len(labels))


def regress_linearly(
    features: Array, targets: Array, seed: int = 0, groups: Sequence[str] | None = None, parts: int = 1
) -> Solution:
    """Ridge regression of ``targets`` [n] on ``features`` [n, d]; strength by leave-one-out cross-validation.

    With ``groups`` [n] by the squared error over folds of whole groups, drawn by ``seed``; with too few of them
    strength 1 / n. ``parts`` as for labels.
    """
    from sklearn.linear_model import RidgeCV

    scaled, centre, scale = scaled_apart(features, parts)
    half_decades = np.geomspace(STRENGTHS[0], STRENGTHS[-1], 2 * len(STRENGTHS) - 1)
    # Scikit-learn's loss is the sum over rows.
    strengths = half_decades * len(targets)
    notes = []
    if groups is None:
        model = RidgeCV(alphas=strengths)
    elif splits := folds_of(len(targets), None, groups, FOLDS, seed):
        model = RidgeCV(alphas=strengths, cv=splits, scoring="neg_mean_squared_error")
    else:
        model, notes = RidgeCV(alphas=[1.0]), [f"linear_head: {TOO_FEW}"]
    model.fit(scaled, targets)
    weight, bias = np.asarray(model.coef_).reshape(1, -1), np.asarray([float(model.intercept_)])
    return _folded(weight, bias, centre, scale, float(model.alpha_) / len(targets), notes)


def scaled_apart(features: Array, parts: int) -> tuple[Array, Array, Array]:
    """(features of mean 0, each of the ``parts`` of mean variance 1; their mean [d], their scale [d])."""
    centre = features.mean(0)
    centred = features - centre
    scale = np.sqrt(np.square(centred).mean(0).reshape(parts, -1).mean(1))
    each = np.repeat(np.where(scale > 0, scale, 1.0), features.shape[1] // parts)
    return centred / each, centre, each


def _folded(weight: Array, bias: Array, centre: Array, scale: Array, strength: float, notes: list[str]) -> Solution:
    """W ((x - centre) / scale) + b as a map of x."""
    raw = weight / scale
    return Solution(raw, bias - raw @ centre, strength, notes)
