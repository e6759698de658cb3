"""Multinomial logistic regression on fixed features; its penalty is cross-validated inside the rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

from regft_core.data.examples import divide
from regft_core.errors import RunFailed
from regft_core.kinds import Kind
from regft_core.lazy import Array, np, special

FOLDS = 5
#: How far below the lowest present class the bias of a class without a row is put: it has e^-10 of its odds.
ABSENT = 10.0
HALF_DECADE = 10.0**0.5


@dataclass(frozen=True)
class Rows:
    """The rows of a linear fit.

    Attributes:
        features: [n, d], dense or sparse.
        targets: [n], classes from 0 to ``classes`` - 1, label sets of a kind with several labels, or values.
        seed: draws the folds in which the strength is chosen.
        weights: of the losses of each class's rows, in the folds too; those of ``Kind.balanced``.
        groups: [n]; rows of one group share a fold.
        what: heads notes and errors.
    """

    features: Any
    targets: Array
    classes: int = 1
    seed: int = 0
    weights: Any = None
    groups: Sequence[str] | None = None
    what: str = "linear_head"

    def folds(self, count: int, divided: Array | None = None) -> tuple[list[tuple[Any, Any]] | None, list[str]]:
        """(training rows, left-out rows) of ``count`` folds; None with a note where groups leave too few.

        ``divided``: [n] the rows that folds leave out; the others are among the training rows of each. None: all.
        """
        numbers = np.arange(len(self.targets)) if divided is None else np.flatnonzero(divided)
        always = np.setdiff1d(np.arange(len(self.targets)), numbers)
        strata = self.targets[numbers].tolist() if self.classes > 1 else None
        groups = None if self.groups is None else [self.groups[int(row)] for row in numbers]
        splits = folds_of(len(numbers), strata, groups, count, self.seed)
        if splits is not None:
            splits = [(np.concatenate([numbers[train], always]), numbers[aside]) for train, aside in splits]
        note = f"{self.what}: groups leave too few folds, so the strength was not cross-validated"
        return splits, [note] if splits is None else []


@dataclass(frozen=True)
class Solution:
    """A linear map of features: ``weight`` [K, d], ``bias`` [K].

    Attributes:
        notes: on what was not as usual.
        left_out: [n, K] logits of each row under the fit of this strength to the folds without it, NaN for rows that
            no fold leaves out; None without folds.
    """

    weight: Array
    bias: Array
    strength: float
    notes: list[str] = field(default_factory=list)
    left_out: Array | None = None


def solve(kind: Kind, rows: Rows, fit: Callable[[Rows], Solution]) -> Solution:
    """``fit`` to rows of any kind: once, or one label against the rest where an example has several.

    Of several fits, the strength is the median. A label that all rows have, or none, gets a constant; a note says so.
    Raises RunFailed where no label is in some rows only.
    """
    weights = None if rows.weights is None else np.asarray(rows.weights, dtype=np.float64)
    if kind.one_label or not kind.has_labels:
        return fit(replace(rows, weights=weights))
    columns = kind.indicators(rows.targets, rows.classes).T.astype(np.int64)
    solutions: dict[int, Solution] = {
        k: fit(replace(rows, targets=column, classes=2, weights=None if weights is None else weights[k]))
        for k, column in enumerate(columns)
        if 0 < column.sum() < len(column)
    }
    if not solutions:
        message = f"{rows.what}: every label is in all rows or in none, so there is nothing to separate"
        raise RunFailed("one-class", f"{message}\n    -> take more rows, or label some of another class")
    weight = np.zeros((rows.classes, rows.features.shape[1]))
    bias = np.where(columns.any(axis=1), ABSENT, -ABSENT)
    for k, solution in solutions.items():
        weight[k], bias[k] = solution.weight[1] - solution.weight[0], solution.bias[1] - solution.bias[0]
    notes = [note for solution in solutions.values() for note in solution.notes]
    if one_sided := rows.classes - len(solutions):
        where = "are in all rows or in none and are answered so"
        notes.append(f"{rows.what}: {one_sided} of {rows.classes} labels {where}")
    strength = float(np.median([solution.strength for solution in solutions.values()]))
    left_out = np.tile(bias, (len(rows.targets), 1))
    for k, solution in solutions.items():
        share = columns[k].mean()  # of a label that no fold leaves out, nothing else is known
        logits = solution.left_out
        left_out[:, k] = np.log(share / (1 - share)) if logits is None else logits[:, 1] - logits[:, 0]
    return Solution(weight, bias, strength, list(dict.fromkeys(notes)), left_out)


def classify(rows: Rows, strengths: Sequence[float], usual: float, per_row: bool = False, **solver: Any) -> Solution:
    """Logistic regression of classes: minimises the sum (``per_row``: mean) of the losses + strength / 2 * ||W||^2.

    The strength is that of the smallest log loss over stratified folds (``smallest_loss`` of ``strengths``), ``usual``
    where there is nothing to choose by. The row of a class that has no other is in every fit, and in no fold. With
    fewer than two other classes there are no folds. ``solver`` are options of scikit-learn's.

    Raises RunFailed when all rows have one label.
    """
    features, labels, weights, what = rows.features, rows.targets, rows.weights, rows.what
    present, counts = np.unique(labels, return_counts=True)
    if len(present) < 2:
        message = f"{what}: all {len(labels)} rows have the same label, so there is nothing to separate"
        raise RunFailed("one-class", f"{message}\n    -> take more rows, or subsample: {{stratified: true}}")
    answers: dict[float, Array] = {}
    solver = {"max_iter": 5_000, **solver}
    fit: Callable[..., Any] = partial(fit_logistic, weights=weights, per_row=per_row, **solver)

    def loss(strength: float, splits: Sequence[tuple[Any, Any]]) -> float:
        """Log loss of every row under the fit to the folds without it, summed."""
        total, answers[strength] = 0.0, np.full((len(labels), rows.classes), np.nan)
        for train, aside in splits:
            weight, bias, _ = fit(features[train], labels[train], strength)
            logits = features[aside] @ weight.T + bias
            logs = special.log_softmax(logits, axis=1)
            own = logs[np.arange(len(aside)), np.searchsorted(present, labels[aside])]
            total -= float(own.sum() if weights is None else own @ weights[labels[aside]])
            answers[strength][aside] = logits.min() - ABSENT
            answers[strength][aside[:, None], present] = logits
        return total

    notes, strength = [], usual
    repeated = present[counts > 1]
    if single := len(present) - len(repeated):
        notes.append(f"{what}: {single} of {rows.classes} classes have a single row, which no fold leaves out")
    if strengths and len(repeated) < 2:
        notes.append(f"{what}: fewer than two classes have several rows, so the strength was not cross-validated")
    elif strengths:
        splits, more = rows.folds(min(FOLDS, int(counts[counts > 1].min())), np.isin(labels, repeated))
        notes += more
        strength = strength if splits is None else smallest_loss(strengths, lambda s: loss(s, splits))
    weight, bias, converged = fit(features, labels, strength)
    if not converged:
        notes.append(f"{what}: the logistic regression did not converge in {solver['max_iter']} iterations")
    every, biases = np.zeros((rows.classes, features.shape[1])), np.full(rows.classes, bias.min() - ABSENT)
    every[present], biases[present] = weight, bias
    if absent := rows.classes - len(present):
        notes.append(f"{what}: {absent} of {rows.classes} classes have no row and are never predicted")
    return Solution(every, biases, strength, notes, answers.get(strength))


def smallest_loss(strengths: Sequence[float], loss: Callable[[float], float]) -> float:
    """The strength of the smallest ``loss``; of equal ones the stronger.

    Half a decade on either side of the best of ``strengths`` is tried, too, where that is within their range. Decades
    alone cost a probe 0.2 points of accuracy (benchmarks/README.md, "Measured earlier").
    """
    losses = {strength: loss(strength) for strength in strengths}

    def chosen() -> float:
        return min(losses, key=lambda strength: (losses[strength], -strength))

    best = chosen()
    near = (best / HALF_DECADE, best * HALF_DECADE)
    losses |= {strength: loss(strength) for strength in near if min(strengths) < strength < max(strengths)}
    return chosen()


def fit_logistic(
    features: Any, labels: Array, strength: float, *, weights: Array | None, per_row: bool, **solver: Any
) -> tuple[Array, Array, bool]:
    """(weight [K, d], bias [K], converged) for the K labels that occur, in their order; columns sum to 0."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1 / (strength * len(labels)) if per_row else 1 / strength, **solver)
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
    where there is a single row or group, or groups would leave no row of a stratum to train on.
    """
    from sklearn.model_selection import KFold, StratifiedKFold

    count = min(count, rows if groups is None else len(set(groups)))
    if count < 2:
        return None
    if groups is None:
        draw = (KFold if strata is None else StratifiedKFold)(count, shuffle=True, random_state=seed % 2**32)
        return list(draw.split(np.zeros(rows), strata))
    stratum = np.zeros(rows) if strata is None else np.asarray(strata)
    part = np.array(divide([int(one) for one in stratum], groups, [1 / count] * count, Random(seed)))
    splits = [(np.flatnonzero(part != fold), np.flatnonzero(part == fold)) for fold in range(count)]
    every = set(stratum.tolist())
    whole = all(len(left) and set(stratum[train].tolist()) == every for train, left in splits)
    return splits if whole else None
