"""Linear models solved on fixed features: logistic and ridge regression, and decisions fitted to a metric.

The strength of the L2 penalty is chosen by cross-validation inside the given rows. For heads, features are centred and
divided by one number, the root of their mean variance, so that one grid of strengths fits every encoder; both are
folded into the solution, which is a plain linear map of the raw features. They are not standardised one by one:
features that hardly vary would get huge weights, and a model that is fine-tuned from such a head diverges. The parts of
a pair's features, u, v, |u - v| and u * v, have a number each: |u - v| varies half as much as the others, and with one
number for all, six sets of 200 pairs are 1.4 points worse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from regft_core import metrics
from regft_core.hooks.declare import FitData, Setting
from regft_core.kinds import Kind, find
from regft_core.kinds._decision import Decision
from regft_core.lazy import Array, np
from regft_core.rng import derive
from regft_core.training.logistic import FOLDS, Rows, Solution, classify, smallest_loss, solve

#: Strengths tried for heads: the fit minimises the mean loss plus strength / 2 * ||W||^2 (ridge: + strength * ||W||^2).
STRENGTHS = tuple(10.0**power for power in range(-5, 3))
#: And for words: the sum of the losses plus the same.
WORD_STRENGTHS = tuple(10.0**power for power in range(-3, 3))
#: Rows up to which a fit to words runs in the space that they span, by an eigendecomposition [n, n].
SPANNED = 2_000
#: Taken for words where there is nothing to choose by (scikit-learn's C = 1).
USUAL_STRENGTH = 1.0


def rows_of(method: str, data: FitData, features: Any, labels: Any, what: str | None = None) -> Rows:
    """Return the training rows of a phase, with ``labels`` [n]; ``method`` names the stream that draws folds.

    ``what`` heads notes and errors; ``method`` when absent.
    """
    setting, trainee = data.setting, data.trainee
    return Rows(
        features,
        np.asarray(labels, np.int64 if find(setting.kind).has_labels else np.float64),
        setting.num_labels,
        seed=derive(trainee.seed, trainee.phase, f"{method}.folds"),
        weights=setting.class_weights,
        groups=data.training_groups,
        what=what or method,
    )


def classify_linearly(rows: Rows, parts: Sequence[float] = (1.0,), strength: float | None = None) -> Solution:
    """Logistic regression on dense features, in ``parts`` of equal width, each scaled to its number.

    ``strength`` is taken where it is given, else chosen. With a class of one row there are no folds: strength 1 / n
    (C = 1 in scikit-learn). Raises RunFailed when all rows have one label.
    """
    scaled, centre, scale = scaled_apart(rows.features, parts)
    # With fewer rows than features the solution lies in the span of the rows: fitted there, it is the same and faster.
    span = np.linalg.qr(scaled.T)[0] if len(scaled) < scaled.shape[1] else None
    features = scaled if span is None else scaled @ span
    strengths, usual = (STRENGTHS, 1 / len(rows.targets)) if strength is None else ((), strength)
    solution = classify(replace(rows, features=features), strengths, usual, per_row=True, tol=1e-6)
    weight = solution.weight if span is None else solution.weight @ span.T
    return _folded(replace(solution, weight=weight), centre, scale)


def classify_as_setfit(rows: Rows) -> Solution:
    """Logistic regression as the setfit package (1.2.0) fits it: scikit-learn's defaults on the features as they are.

    That is C = 1 (the sum of the losses + 1/2 * ||W||^2), lbfgs in the precision of the features, at most 100
    iterations, tolerance 1e-4, an intercept without penalty. The solution's strength is per row, as above: 1 / n.
    Raises RunFailed when all rows have one label.
    """
    solution = classify(rows, (), 1.0, tol=1e-4, max_iter=100)
    return replace(solution, strength=1 / len(rows.targets))


def regress_linearly(rows: Rows, parts: Sequence[float] = (1.0,), strength: float | None = None) -> Solution:
    """Ridge regression on dense features; strength by leave-one-out cross-validation, or as given.

    With groups by the squared error over folds of whole groups; with too few of them strength 1 / n.
    """
    from sklearn.linear_model import RidgeCV

    scaled, centre, scale = scaled_apart(rows.features, parts)
    count, notes = len(rows.targets), list[str]()
    # Scikit-learn's loss is the sum over rows.
    half_decades = np.geomspace(STRENGTHS[0], STRENGTHS[-1], 2 * len(STRENGTHS) - 1) * count
    model = RidgeCV(alphas=half_decades if strength is None else [strength * count])
    if rows.groups is not None and strength is None:
        splits, notes = rows.folds(FOLDS)
        model = RidgeCV(alphas=[1.0])
        if splits is not None:
            model = RidgeCV(alphas=half_decades, cv=splits, scoring="neg_mean_squared_error")
    return _folded(_solved(model.fit(scaled, rows.targets), float(model.alpha_) / count, notes), centre, scale)


def solve_words(kind: Kind, rows: Rows) -> Solution:
    """A linear model of sparse features, of any kind of labels or of values. Raises RunFailed as ``logistic.solve``.

    The penalised solution lies in the span of the rows. There 500 rows of 110 classes take 3 CPU seconds, not minutes.
    """
    if not kind.has_labels:
        return regress_words(rows)
    features, back = spanned(rows.features)
    solution = solve(kind, replace(rows, features=features), classify_words)
    return replace(solution, weight=back(solution.weight))


def classify_words(rows: Rows) -> Solution:
    """Logistic regression on features of words. Raises RunFailed when all rows have one label."""
    return classify(rows, WORD_STRENGTHS, USUAL_STRENGTH, tol=1e-5)


def spanned(features: Any) -> tuple[Any, Callable[[Array], Array]]:
    """Coordinates of sparse rows [n, d] in their span, where they are few, and what takes a weight [K, .] back to d."""
    if features.shape[0] > min(SPANNED, features.shape[1]):
        return features, lambda weight: weight
    values, axes = np.linalg.eigh((features @ features.T).toarray())
    real = values > 1e-10 * values.max()
    roots, axes = np.sqrt(values[real]), axes[:, real]
    return axes * roots, lambda weight: np.ascontiguousarray((weight / roots) @ axes.T @ features)


def regress_words(rows: Rows) -> Solution:
    """Ridge regression on sparse features; the strength of the smallest squared error over folds of groups."""
    features, targets = rows.features, rows.targets

    def loss(tried: float) -> float:
        total = 0.0
        for train, aside in splits or ():
            solution = ridge(features[train], targets[train], tried)
            errors = (features[aside] @ solution.weight.T + solution.bias)[:, 0] - targets[aside]
            total += float((errors**2).sum())
        return total

    splits, notes = None, [f"{rows.what}: too few rows to cross-validate the strength"]
    if len(targets) >= FOLDS:
        splits, notes = rows.folds(FOLDS)
    strength = USUAL_STRENGTH if splits is None else smallest_loss(WORD_STRENGTHS, loss)
    return replace(ridge(features, targets, strength), notes=notes)


def ridge(features: Any, targets: Array, strength: float) -> Solution:
    """Ridge regression of this strength on sparse features."""
    from sklearn.linear_model import Ridge

    return _solved(Ridge(alpha=strength, solver="sparse_cg", tol=1e-8).fit(features, targets), strength, [])


def _solved(model: Any, strength: float, notes: list[str]) -> Solution:
    return Solution(np.asarray(model.coef_).reshape(1, -1), np.asarray([float(model.intercept_)]), strength, notes)


def scaled_apart(features: Array, parts: Sequence[float]) -> tuple[Array, Array, Array]:
    """(features of mean 0, each of the parts of this root of its mean variance; their mean [d], their scale [d])."""
    centre = features.mean(0)
    centred = features - centre
    scale = np.sqrt(np.square(centred).mean(0).reshape(len(parts), -1).mean(1))
    each = np.repeat(np.where(scale > 0, scale, 1.0) / parts, features.shape[1] // len(parts))
    return centred / each, centre, each


def _folded(solution: Solution, centre: Array, scale: Array) -> Solution:
    """W ((x - centre) / scale) + b as a map of x."""
    raw = solution.weight / scale
    return replace(solution, weight=raw, bias=solution.bias - raw @ centre)


# Decisions fitted to a metric: offsets of the logits, from out-of-fold answers to the training rows. With F1 or
# Matthews' correlation the most probable label is not the best decision: with 5% positives hardly a row has a
# probability above 0.5. The offsets are one number times a direction, so that few rows of a rare label suffice: the log
# ratio of the largest class's rows to those of each class (Menon et al., ICLR 2021, whose number is 1), the positive
# class alone where the metric counts one class, and of several labels also the same offset for all. The number is the
# best on average over resampled rows; of equal ones the smallest. Where all classes count, it is drawn towards 1, right
# for the mean recall of classes: a long tail has few rows to choose by.

#: Multiples of a direction that are tried; 0, the most probable label, is one of them.
STEPS = tuple(step / 40 for step in range(-10, 61))
#: Resamples of the rows over which a multiple is judged.
RESAMPLES = 50
#: Rows of a class (in harmonic mean) that the multiple 1 counts as.
ROWS_FOR_ONE = 5


def fit_decision(kind: Kind, logits: Array, gold: Array, metric: str, positive: int | None) -> Decision:
    """Return the decision with the best ``metric``.

    Args:
        logits: [n, K] of each row under a fit that did not see it; NaN for rows that every fit saw, which are not
            counted.
        gold: [n] labels of these rows, as ``Kind.indicators`` reads them.
        positive: what F1 of one class counts.
    """
    judge, outputs = metrics.find(metric), logits.shape[1]
    present = kind.indicators(gold, outputs)
    at_least_one = not kind.one_label and bool(present.any(axis=1).all())
    rows = ~np.isnan(logits).any(axis=1)
    judged, labels = logits[rows], gold[rows].astype(kind.dtype)
    if not len(labels) or judge.weighted is None:
        return Decision((0.0,) * outputs, at_least_one)
    counts = present.sum(axis=0)
    several = _log_ratio(len(gold) - counts, counts)
    directions = [_log_ratio(counts.max(), counts)]
    if not kind.one_label:
        directions = [np.full(outputs, max(1.0, float(several.mean()))), np.maximum(several, 0.0)]
    elif judge.needs_positive_label:
        directions = [np.where(np.arange(outputs) == positive, max(1.0, abs(float(several[positive]))), 0.0)]
    offsets = np.unique([step * direction for direction in directions for step in STEPS], axis=0)
    offsets = offsets[np.argsort(np.abs(offsets).sum(axis=1), kind="stable")]  # the first of equals is the smallest
    every = np.arange(outputs)
    decided = [kind.predictions(Decision(tuple(one), at_least_one).logits(judged), every) for one in offsets]
    draws = np.random.default_rng(derive(0, "decision.resamples")).integers(0, len(labels), (RESAMPLES, len(labels)))
    weights = np.array([np.bincount(draw, minlength=len(labels)) for draw in draws], dtype=np.float64)
    sign = -1.0 if judge.lower_is_better else 1.0
    scores = sign * judge.weighted(labels, np.array(decided).astype(kind.dtype), weights, positive).mean(axis=0)
    best = offsets[int(scores.argmax())]
    if classes_count_alike(kind, metric):
        each = rows_per_class(present[rows].sum(axis=0))
        best = (each * best + ROWS_FOR_ONE * directions[0]) / (each + ROWS_FOR_ONE)
    return Decision(tuple(best.tolist()), at_least_one)


def classes_count_alike(kind: Kind, metric: str) -> bool:
    """Whether the metric is fitted by offsets and counts each class of a row's only label alike."""
    judge = metrics.find(metric)
    return kind.one_label and judge.by_offsets and not judge.needs_positive_label


def rows_per_class(counts: Array) -> float:
    """Harmonic mean of the classes' rows: the rarest classes have the most say in a mean over classes."""
    return float(1 / (1 / counts[counts > 0]).mean())


def decision_of(setting: Setting, left_out: Array | None, labels: Array) -> Decision | None:
    """Return the decision of a solved head: None where the most probable label is it, or no fold left rows out."""
    if setting.metric is None or left_out is None or not metrics.find(setting.metric).by_offsets:
        return None
    return fit_decision(find(setting.kind), left_out, labels, setting.metric, setting.positive)


def _log_ratio(above: Array, below: Array) -> Array:
    """log(above / below), 0 where either is 0."""
    ratio = np.where((above > 0) & (below > 0), above / np.maximum(below, 1), 1.0)
    return np.log(np.where(ratio > 0, ratio, 1.0))
