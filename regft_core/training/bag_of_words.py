"""Texts as weighted counts of words and characters, and linear models on them; numpy, scipy, scikit-learn.

What is fitted is plain: a list of terms, their inverse document frequencies, a weight matrix, a bias.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core.data.examples import Example
from regft_core.errors import RunFailed

Array = npt.NDArray[np.float64]

#: Penalties tried: the fit minimises the sum of the losses + strength / 2 * ||W||^2 (ridge: + strength * ||W||^2).
STRENGTHS = tuple(10.0**power for power in range(-3, 3))
#: Taken where there is nothing to choose by (scikit-learn's C = 1).
USUAL_STRENGTH = 1.0
FOLDS = 5
#: How far below the lowest present class the bias of a class without a row is put.
ABSENT = 10.0
#: Words of one character count too (negations, pronouns, digits); scikit-learn drops them by default.
WORD = r"(?u)\b\w+\b"


@dataclass
class BagOfWords:
    """TF-IDF of word and character n-grams.

    One block per kind of n-gram, each of length 1 (as in scikit-learn: smoothed idf, natural logarithm). Of a
    pair, the features are those of both texts, their product entry by entry (what they share) and its sum (the
    cosine of each block, added up).

    Attributes:
        blocks: ``analyzer`` (word, char_wb), ``longest`` n-gram and ``terms`` in the order of the columns.
        idf: inverse document frequency of every term of every block, one block after the other.
    """

    blocks: list[dict[str, Any]]
    idf: Array

    @classmethod
    def fit(cls, examples: Sequence[Example], *, words: int, characters: int, limit: int) -> BagOfWords:
        """The terms of these texts; every text, also the second of a pair, is one document.

        Args:
            words, characters: longest n-gram; 0 leaves the block out.
            limit: most frequent terms of each block that are kept.

        Raises RunFailed when the texts hold no term at all.
        """
        texts = [text for example in examples for text in (example.text, example.text_pair) if text is not None]
        blocks, weights = [], []
        for analyzer, longest in (("word", words), ("char_wb", characters)):
            if not longest:
                continue
            vectoriser = _vectoriser(analyzer, longest, max_features=limit)
            try:
                vectoriser.fit(texts)
            except ValueError as error:  # scikit-learn: empty vocabulary
                raise RunFailed(f"tfidf: no {analyzer} n-gram occurs in the training rows ({error})") from error
            terms = [str(term) for term in vectoriser.get_feature_names_out()]
            blocks.append({"analyzer": analyzer, "longest": longest, "terms": terms})
            weights.append(np.asarray(vectoriser.idf_, dtype=np.float64))
        return cls(blocks, np.concatenate(weights))

    def features(self, examples: Sequence[Example]) -> Any:
        """Sparse features [n, d] of single texts, [n, 3d + 1] of pairs."""
        from scipy import sparse

        first = self._texts([example.text for example in examples])
        second_texts = [example.text_pair for example in examples if example.text_pair is not None]
        if not second_texts:
            return first
        second = self._texts(second_texts)
        shared = first.multiply(second).tocsr()
        cosine = sparse.csr_matrix(np.asarray(shared.sum(axis=1)).reshape(-1, 1))
        return sparse.hstack([first, second, shared, cosine], format="csr")

    def _texts(self, texts: Sequence[str]) -> Any:
        from scipy import sparse

        parts, start = [], 0
        for block in self.blocks:
            vectoriser = _vectoriser(block["analyzer"], block["longest"], vocabulary=block["terms"])
            vectoriser.idf_ = self.idf[start : start + len(block["terms"])]
            start += len(block["terms"])
            parts.append(vectoriser.transform(texts))
        return sparse.hstack(parts, format="csr")


def _vectoriser(analyzer: str, longest: int, **options: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    if analyzer == "word":
        options["token_pattern"] = WORD
    return TfidfVectorizer(analyzer=analyzer, ngram_range=(1, longest), **options)


@dataclass(frozen=True)
class LinearModel:
    """``weight`` [K, d] and ``bias`` [K]; ``notes`` on what was not as usual."""

    weight: Array
    bias: Array
    strength: float
    notes: list[str] = field(default_factory=list)


def classify(features: Any, labels: npt.NDArray[np.int64], classes: int, seed: int) -> LinearModel:
    """Multinomial logistic regression of ``labels`` [n] on sparse ``features`` [n, d].

    The strength is that of the smallest log loss over stratified folds, drawn by ``seed``; of equal ones the
    stronger. Where a class has a single row there are no folds and the strength is the usual one.

    Raises RunFailed when all rows have one label.
    """
    from sklearn.model_selection import StratifiedKFold

    present, counts = np.unique(labels, return_counts=True)
    if len(present) < 2:
        raise RunFailed(f"tfidf: all {len(labels)} training rows have the same label; there is nothing to separate")
    notes, strength = [], USUAL_STRENGTH
    folds = min(FOLDS, int(counts.min()))
    if folds < 2:
        notes.append("tfidf: a class has a single row, so the strength was not cross-validated")
    else:
        splits = list(StratifiedKFold(folds, shuffle=True, random_state=seed % 2**32).split(features, labels))

        def loss(tried: float) -> float:
            total = 0.0
            for train, left_out in splits:
                weight, bias, _ = _logistic(features[train], labels[train], tried)
                answers = log_probabilities(features[left_out] @ weight.T + bias)
                own = answers[np.arange(len(left_out)), np.searchsorted(present, labels[left_out])]
                total -= float(own.sum())
            return total

        strength = _best(loss)
    weight, bias, converged = _logistic(features, labels, strength)
    if not converged:
        notes.append("tfidf: the logistic regression did not converge")
    every, biases = np.zeros((classes, features.shape[1])), np.full(classes, bias.min() - ABSENT)
    every[present], biases[present] = weight, bias
    if absent := classes - len(present):
        notes.append(f"tfidf: {absent} of {classes} classes have no training row and are never predicted")
    return LinearModel(every, biases, strength, notes)


def regress(features: Any, targets: Array, seed: int) -> LinearModel:
    """Ridge regression of ``targets`` [n]; the strength is that of the smallest squared error over folds."""
    from sklearn.model_selection import KFold

    notes, strength = [], USUAL_STRENGTH
    if len(targets) < FOLDS:
        notes.append("tfidf: too few rows to cross-validate the strength")
    else:
        splits = list(KFold(FOLDS, shuffle=True, random_state=seed % 2**32).split(features))

        def loss(tried: float) -> float:
            total = 0.0
            for train, left_out in splits:
                weight, bias = _ridge(features[train], targets[train], tried)
                errors = (features[left_out] @ weight.T + bias)[:, 0] - targets[left_out]
                total += float((errors**2).sum())
            return total

        strength = _best(loss)
    weight, bias = _ridge(features, targets, strength)
    return LinearModel(weight, bias, strength, notes)


def log_probabilities(logits: Array) -> Array:
    """Log-softmax over the last axis of [n, K]."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    found: Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return found


def _best(loss: Any) -> float:
    losses = {strength: loss(strength) for strength in STRENGTHS}
    return min(losses, key=lambda strength: (losses[strength], -strength))


def _logistic(features: Any, labels: npt.NDArray[np.int64], strength: float) -> tuple[Array, Array, bool]:
    """(weight [K, d], bias [K], converged) of the labels that occur; biases sum to 0, and so do weights."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1 / strength, tol=1e-5, max_iter=5_000)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(features, labels)
    converged = not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    weight, bias = np.asarray(model.coef_), np.asarray(model.intercept_)
    if len(bias) == 1:  # two classes: scikit-learn gives the logit of the second over the first
        weight, bias = np.vstack([-weight / 2, weight / 2]), np.concatenate([-bias / 2, bias / 2])
    return weight, bias - bias.mean(), converged


def _ridge(features: Any, targets: Array, strength: float) -> tuple[Array, Array]:
    """(weight [1, d], bias [1])."""
    from sklearn.linear_model import Ridge

    model = Ridge(alpha=strength, solver="sparse_cg", tol=1e-8).fit(features, targets)
    return np.asarray(model.coef_).reshape(1, -1), np.asarray([float(model.intercept_)])
