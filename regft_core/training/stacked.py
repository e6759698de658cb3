"""Linear models of several sets of features, and the weights of their average (stacking; Wolpert 1992, Breiman 1996).

Each member is a linear map of its own features, solved on all rows. Its answers to rows that a fit had not seen, from
folds of the same rows, give the weights of the average.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from typing import Any

from regft_core import metrics
from regft_core.errors import RunFailed
from regft_core.kinds import Kind
from regft_core.lazy import Array, np, special
from regft_core.training.linear_solution import (
    classes_count_alike,
    classify_words,
    fit_decision,
    regress_words,
    ridge,
    rows_per_class,
    spanned,
)
from regft_core.training.logistic import FOLDS, Rows, Solution, classify, folds_of, solve

#: The strength for a single feature: it keeps separable rows from infinite weights.
LIGHT = 1e-3
#: Weights are multiples of a quarter, and then drawn towards prior ones as if so many rows spoke for those.
STEPS, ROWS_FOR_PRIOR = 4, 50
#: Smallest probability that has a logit of its own; scores that differ by less are equal.
TINY = 1e-12

Fit = Callable[[Rows], Solution]


def plain(kind: Kind, strength: float) -> Fit:
    """Logistic or ridge regression of one strength: the sum of the losses + strength / 2 * ||W||^2 (ridge: * 1)."""
    if kind.has_labels:
        return partial(classify, strengths=(), usual=strength, tol=1e-5)
    return lambda rows: ridge(rows.features, rows.targets, strength)


def answers(features: Any, solution: Solution) -> Array:
    """[n, K] logits, or [n, 1] values."""
    return np.asarray(features @ solution.weight.T + solution.bias)


def probabilities(kind: Kind, logits: Array) -> Array:
    """[n, K] probabilities of logits; values as they are."""
    if not kind.has_labels:
        return logits
    return np.exp(special.log_softmax(logits, axis=1)) if kind.one_label else 1 / (1 + np.exp(-logits))


def logits_of(kind: Kind, found: Array) -> Array:
    """[n, K] logits of probabilities, or [n, 1] values as they are."""
    if not kind.has_labels:
        return found
    logs = np.log(np.maximum(found, TINY))
    return logs if kind.one_label else np.asarray(logs - np.log(np.maximum(1 - found, TINY)))


def left_out(kind: Kind, rows: Rows, fit: Fit) -> Array | None:
    """[n, K] answers to every row by the fit to the folds without it; None where the rows allow no folds."""
    strata = rows.targets.tolist() if kind.has_labels and kind.one_label else None
    if strata is not None and max(map(strata.count, set(strata))) < FOLDS:
        strata = None
    elif strata is not None and rows.groups is not None:  # a label with one row would leave no folds of groups
        usual = max(strata, key=strata.count)
        strata = [label if strata.count(label) > 1 else usual for label in strata]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # scikit-learn's, of classes with fewer rows than folds
        splits = folds_of(len(rows.targets), strata, rows.groups, FOLDS, rows.seed)
    parts: list[tuple[Any, Array]] = []
    for train, aside in splits or ():
        groups = None if rows.groups is None else [rows.groups[row] for row in train]
        part = replace(rows, features=rows.features[train], targets=rows.targets[train], groups=groups)
        try:
            parts.append((aside, answers(rows.features[aside], solve(kind, part, fit))))
        except RunFailed:  # one label is left
            return None
    if not parts:
        return None
    result = np.empty((len(rows.targets), parts[0][1].shape[1]))
    for aside, found in parts:
        result[aside] = found
    return result


def loss(kind: Kind, logits: Array, targets: Any) -> float:
    """Mean log loss of logits [n, K], or squared error of values [n, 1]."""
    if not kind.has_labels:
        return float(np.square(logits[:, 0] - targets).mean())
    found, right = probabilities(kind, logits), kind.indicators(targets, logits.shape[1])
    wrong = 0 if kind.one_label else np.log(np.maximum(1 - found, TINY)) * ~right
    return -float((np.log(np.maximum(found, TINY)) * right + wrong).sum(axis=1).mean())


def chosen(kind: Kind, rows: Rows, fit: Fit, again: Callable[[float], Fit]) -> Solution:
    """A member whose ``fit`` chooses its strength; ``left_out`` [n, K] are its answers by fits without the row.

    ``again`` is the fit of one strength. Where choosing it left out every row, those answers are taken.
    """
    solution = solve(kind, rows, fit)
    if solution.left_out is None or np.isnan(solution.left_out).any():
        return replace(solution, left_out=left_out(kind, rows, again(solution.strength)))
    return solution


def of_words(kind: Kind, rows: Rows, parts: Sequence[tuple[int, float]] = ()) -> Solution:
    """One model of sparse features, [K, d]; its strength is chosen.

    With ``parts`` (columns, length) a row of each part has that length on average.
    """
    scale = np.ones(rows.features.shape[1])
    if parts:
        widths, wanted = zip(*parts, strict=True)
        squares, starts = rows.features.multiply(rows.features).tocsc(), np.cumsum([0, *widths])
        lengths = [float(np.sqrt(squares[:, start:end].sum(axis=1)).mean()) for start, end in pairwise(starts)]
        scale = np.repeat(np.divide(wanted, [length or 1.0 for length in lengths]), widths)
    features, back = spanned(rows.features.multiply(scale).tocsr())
    solver = classify_words if kind.has_labels else regress_words
    member = chosen(kind, replace(rows, features=features), solver, partial(plain, kind))
    return replace(member, weight=back(member.weight) * scale)


def score(kind: Kind, logits: Array, targets: Any, metric: str | None, positive: int | None) -> float:
    """The metric of answers [n, K], with decisions fitted to it where they can be, or the negative loss without one.

    The larger the better.
    """
    if metric is None:
        return -loss(kind, logits, targets)
    judge = metrics.find(metric)
    if judge.by_offsets:
        logits = fit_decision(kind, logits, targets, metric, positive).logits(logits)
    predicted = kind.predictions(logits, np.arange(logits.shape[1])).astype(kind.dtype)
    value = judge.score(targets.astype(kind.dtype), predicted, positive)
    return -value if judge.lower_is_better else value


def weights_of(
    kind: Kind,
    members: Sequence[Array | None],
    targets: Any,
    metric: str | None = None,
    positive: int | None = None,
    prior: Sequence[float] | None = None,
) -> tuple[Array, list[str]]:
    """Weights [M] of the members' average by their answers to left-out rows [n, K], and notes.

    Of all weights in quarters the mean of those of the best metric (of the smallest loss without one), drawn towards
    ``prior`` (equal when absent) as if 50 rows spoke for it. Where the metric counts classes alike, the rows count as
    classes times the harmonic mean of their rows: the rarest have the most say.
    """
    count = len(members)
    usual = np.ones(count) if prior is None else np.asarray(prior, dtype=np.float64)
    usual = usual / usual.sum()
    known = [found for found in members if found is not None]
    if count == 1:
        return usual, []
    if len(known) < count:
        return usual, ["stacking: the rows allow no folds, so members have their prior weights"]
    quarters = [np.array(steps) / STEPS for steps in product(range(STEPS + 1), repeat=count) if sum(steps) == STEPS]
    tried = np.array([usual, *quarters])
    averages = (np.tensordot(weights, known, 1) for weights in tried)
    scores = np.array([score(kind, average, targets, metric, positive) for average in averages])
    best = tried[scores >= scores.max() - TINY].mean(axis=0)
    rows = float(len(targets))
    if metric is not None and classes_count_alike(kind, metric):
        counts = np.unique(targets, return_counts=True)[1]
        rows = len(counts) * rows_per_class(counts)
    share = rows / (rows + ROWS_FOR_PRIOR)
    return share * best + (1 - share) * usual, []
