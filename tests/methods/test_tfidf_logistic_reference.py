"""The bag of words against numbers worked out by hand, and against scikit-learn's own pipeline."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load, save
from scipy import sparse
from scipy.special import log_softmax

from regft_core.data.examples import Example
from regft_core.errors import RunFailed
from regft_core.hooks.declare import from_tensor
from regft_core.kinds import find
from regft_core.methods.tfidf_logistic import TfidfLogistic, TfidfLogisticConfig
from regft_core.training.bag_of_words import BagOfWords
from regft_core.training.linear_solution import WORD_STRENGTHS, classify_words, regress_words, ridge, solve_words
from regft_core.training.logistic import Rows, solve
from tests.errors import raises_code
from tests.methods.chain import phase, runner
from tests.methods.harness import NO_STEPS, Bench, examples


def rows(*texts: str, second: tuple[str, ...] = (), labels: tuple[float, ...] = ()) -> list[Example]:
    pairs = second or (None,) * len(texts)
    return [
        Example(str(i), one, two, label)
        for i, (one, two, label) in enumerate(zip(texts, pairs, labels or (0,) * len(texts), strict=True))
    ]


def bag(given: list[Example], **options: int) -> BagOfWords:
    return BagOfWords.fit(given, **{"words": 1, "characters": 0, "limit": 100, **options})


def test_two_words_and_characters_are_terms_too() -> None:
    found = bag(rows("not bad"), words=2, characters=2)
    assert found.blocks[0]["terms"] == ["bad", "not", "not bad"]
    letters = [" ", " b", " n", "a", "ad", "b", "ba", "d", "d ", "n", "no", "o", "ot", "t", "t "]
    assert found.blocks[1]["terms"] == letters
    features = found.features(rows("not bad"))
    assert features.shape == (1, 3 + 15)
    assert features.multiply(features).sum() == pytest.approx(2)  # each block has length 1


def test_a_pair_by_hand() -> None:
    given = rows("red cat", "blue cat", second=("red dog", "blue cat"))
    found = bag(given)
    assert found.blocks[0]["terms"] == ["blue", "cat", "dog", "red"]
    features = found.features(given).toarray()
    assert features.shape == (2, 3 * 4 + 1)
    # Four documents: blue 2, cat 3, dog 1, red 2.
    blue, cat, dog = (math.log(5 / (1 + n)) + 1 for n in (2, 3, 1))
    first, second = math.hypot(blue, cat), math.hypot(blue, dog)
    cosine = blue * blue / (first * second)
    assert features[0, :4] == pytest.approx([0, cat / first, 0, blue / first])
    assert features[0, 4:8] == pytest.approx([0, 0, dog / second, blue / second])
    assert features[0, 8:12] == pytest.approx([0, 0, 0, cosine])
    assert features[0, 12] == pytest.approx(cosine)
    assert features[1, 12] == pytest.approx(1)


def test_texts_without_a_word_are_said_so() -> None:
    with raises_code(RunFailed, "nothing-to-count", "word"):
        bag(rows("...", "!?"))


@pytest.mark.parametrize("sublinear", [False, True])
def test_features_are_those_of_scikit_learn(sublinear: bool) -> None:
    """Of texts that it was not fitted on too, and of one without a word that it knows."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    given = [*examples(12), *rows("unseen words")]
    texts = [example.text for example in given]
    theirs = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\b\w+\b", sublinear_tf=sublinear).fit(texts[:8])
    ours = bag(given[:8], words=2, sublinear=sublinear)
    np.testing.assert_allclose(ours.features(given).toarray(), theirs.transform(texts).toarray(), rtol=0, atol=1e-12)


def test_ridge_of_one_feature_by_hand() -> None:
    # Centred: x = -1, 0, 1 and y = -2, 0, 2; w = sum(xy) / (sum(xx) + strength) = 4 / (2 + 2) = 1.
    solution = ridge(sparse.csr_matrix([[0.0], [1.0], [2.0]]), np.array([1.0, 3.0, 5.0]), 2.0)
    assert solution.weight[0, 0] == pytest.approx(1.0)
    assert solution.bias[0] == pytest.approx(3.0 - 1.0)


@pytest.mark.parametrize("kind", ["classification", "multi_label"])
def test_solved_in_the_span_of_the_rows_it_is_the_same_model(kind: str) -> None:
    drawn = np.random.default_rng(1)
    features = sparse.csr_matrix(drawn.random((40, 300)) * (drawn.random((40, 300)) < 0.2))
    labels = drawn.integers(0, 3, 40) if kind == "classification" else drawn.integers(1, 8, 40)
    given = Rows(features, labels, 3, seed=7)
    inside, outside = solve_words(find(kind), given), solve(find(kind), given, classify_words)
    assert inside.strength == outside.strength
    assert inside.weight == pytest.approx(outside.weight, abs=1e-3 * np.abs(outside.weight).max())
    assert inside.bias == pytest.approx(outside.bias, abs=1e-3)


@pytest.mark.parametrize("noise", [0.1, pytest.param(1.0, marks=pytest.mark.slow), 4.0])
def test_the_strength_is_that_of_the_smallest_loss_on_left_out_rows(noise: float) -> None:
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score

    generator = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 20)
    dense = np.eye(3)[labels] + noise * generator.standard_normal((60, 3))
    features, targets = sparse.csr_matrix(dense), dense[:, 0] + noise * generator.standard_normal(60)
    folds = StratifiedKFold(5, shuffle=True, random_state=7)
    half_decades = np.geomspace(min(WORD_STRENGTHS), max(WORD_STRENGTHS), 2 * len(WORD_STRENGTHS) - 1)
    losses = [
        -cross_val_score(LogisticRegression(C=1 / s, tol=1e-6), dense, labels, cv=folds, scoring="neg_log_loss").mean()
        for s in half_decades
    ]
    assert classify_words(Rows(features, labels, 3, seed=7)).strength == pytest.approx(half_decades[np.argmin(losses)])
    split = KFold(5, shuffle=True, random_state=7)
    losses = [
        -cross_val_score(Ridge(alpha=s), dense, targets, cv=split, scoring="neg_mean_squared_error").mean()
        for s in half_decades
    ]
    assert regress_words(Rows(features, targets, seed=7)).strength == pytest.approx(half_decades[np.argmin(losses)])


@pytest.mark.parametrize("form", [{"labels": 3}, {"kind": "regression", "pair": True}], ids=["3", "value"])
def test_what_is_kept_answers_alone(form: dict[str, Any]) -> None:
    run = Bench([("tfidf_logistic", {"characters": 2})], training=NO_STEPS, rows=24, **form)
    kept = load(save(run.stack.keep(run.trainee)))
    # Nothing of the fitted bench is used.
    alone = Bench([("tfidf_logistic", {"characters": 2})], training=NO_STEPS, rows=24, **form).stack
    alone.predictor = TfidfLogistic(TfidfLogisticConfig(characters=2), run.setting)
    given = examples(30, **{k: v for k, v in form.items() if k in ("pair", "kind", "labels")})
    answers = alone.predict(None, kept, given)
    own = run.stack.predictor
    expected = own._bag.features(given) @ own._model.weight.T + own._model.bias
    if run.setting.kind == "classification":
        expected = log_softmax(expected, axis=1)
        np.testing.assert_allclose(np.exp(answers).sum(1), 1, atol=1e-6)
    np.testing.assert_allclose(answers, expected, atol=1e-6)
    assert answers.dtype == np.float32
    assert answers.std() > 1e-3


def test_only_the_training_share_is_read() -> None:
    done = runner(rows=20).run([phase([("tfidf_logistic", {})], split=0.5, epochs=0)])["finetune"]
    terms = from_tensor(done.tensors["kept"]["tfidf_logistic.blocks"])[0]["terms"]
    whole = runner(rows=20).run([phase([("tfidf_logistic", {})], epochs=0)])["finetune"]
    every = from_tensor(whole.tensors["kept"]["tfidf_logistic.blocks"])[0]["terms"]
    assert set(terms) < set(every)
