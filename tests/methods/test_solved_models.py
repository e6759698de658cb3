"""The bag of words and the average of solved models, by hand and against scikit-learn."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from scipy import sparse
from scipy.special import log_softmax
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import cross_val_predict

from regft_core.data.examples import Example
from regft_core.errors import RunFailed
from regft_core.hooks.declare import Handed, from_tensor
from regft_core.kinds import find
from regft_core.methods.tfidf_logistic import TfidfLogistic, TfidfLogisticConfig
from regft_core.rng import derive
from regft_core.training.bag_of_words import BagOfWords
from regft_core.training.linear_solution import (
    WORD_STRENGTHS,
    classify_linearly,
    classify_words,
    regress_words,
    ridge,
    solve_words,
)
from regft_core.training.logistic import Rows, folds_of, solve
from regft_core.training.stacked import answers, left_out, loss, of_words, plain, probabilities, weights_of
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


CLASSES, VALUES = find("classification"), find("regression")
PAIRS: dict[str, Any] = {"pooling": "mean", "separately": True, "training": NO_STEPS, "rows": 40}


def stacked(*members: str, **options: Any) -> Bench:
    return Bench([("stacking", {"members": list(members)})], **{**PAIRS, "labels": 3, **options})


def predicted(run: Bench, count: int = 40, **options: Any) -> np.ndarray:
    given = examples(count, **{"pair": True, "labels": 3, **options})
    return run.stack.predict(run.trainee, run.stack.keep(run.trainee), given).astype(float)


def vectors(run: Bench) -> np.ndarray:
    """What the head receives of the training rows: u, v, |u - v|, u * v."""
    received: list[torch.Tensor] = []
    handle = run.model.classifier.register_forward_pre_hook(lambda _, given: received.append(given[0]))
    with torch.no_grad():
        run.model.eval()(**run.stream.collate(range(40)).model_inputs())
    handle.remove()
    return received[0].double().numpy()


def problem(kind: str = "classification", classes: int = 3) -> tuple[Rows, np.ndarray]:
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), 60 // classes)
    targets = labels if kind == "classification" else generator.standard_normal(60)
    words = sparse.csr_matrix(generator.random((60, 30)) * (generator.random((60, 30)) < 0.2) + np.eye(60)[:, :30])
    dense = generator.standard_normal((60, 8)) + targets[:, None] / 2
    return Rows(words, targets, classes if kind == "classification" else 1, seed=5), dense


def test_alone_the_members_are_the_methods_that_they_are_named_after() -> None:
    given = examples(40, pair=True, labels=3)
    labels = np.array([example.label for example in given])
    run = stacked("embeddings")
    features = vectors(run)
    solution = classify_linearly(Rows(features, labels, 3, seed=seed_of(run)), parts=(1.0,) * 4)
    expected = log_softmax(features @ solution.weight.T + solution.bias, axis=1)
    np.testing.assert_allclose(predicted(run), expected, atol=1e-4)
    run = stacked("words")
    assert run.stack.predictor.declares.reads == "text"
    words = BagOfWords.fit(given, words=2, characters=4, limit=200_000, sublinear=True).features(given)
    solution = classify_words(Rows(words, labels, 3, seed=seed_of(run)))
    expected = log_softmax(words @ solution.weight.T + solution.bias, axis=1)
    np.testing.assert_allclose(predicted(run), expected, atol=1e-5)


def seed_of(run: Bench) -> int:
    return derive(run.trainee.seed, run.trainee.phase, "stacking.folds")


def test_a_regression_s_cosine_is_the_line_through_it() -> None:
    run = stacked("cosine", kind="regression")
    u, v, _, _ = np.split(vectors(run), 4, axis=1)
    cosine = (u * v).sum(1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)
    values = np.array([example.label for example in examples(40, pair=True, kind="regression")])
    line = LinearRegression().fit(cosine[:, None], values).predict(cosine[:, None])
    assert predicted(run, kind="regression")[:, 0] == pytest.approx(line, abs=0.05)
    assert np.corrcoef(predicted(run, kind="regression")[:, 0], cosine)[0, 1] ** 2 == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_joined_features_are_one_model_of_parts_of_one_length(kind: str) -> None:
    of = find(kind)
    rows, dense = problem(kind)
    both = np.hstack([dense, rows.features.toarray()])
    member = of_words(of, replace(rows, features=sparse.csr_matrix(both)), [(8, 1.0), (30, 1.0)])
    lengths = [np.linalg.norm(part, axis=1).mean() for part in (both[:, :8], both[:, 8:])]
    scaled = sparse.csr_matrix(both / np.repeat(lengths, [8, 30]))
    own = replace(rows, features=scaled)
    solution = (classify_words if of.has_labels else regress_words)(own)
    assert member.strength == solution.strength
    np.testing.assert_allclose(answers(both, member), answers(scaled, solution), atol=1e-3)
    out = left_out(of, own, plain(of, solution.strength))
    np.testing.assert_allclose(probabilities(of, member.left_out), probabilities(of, out), atol=2e-3)


def test_answers_to_left_out_rows_are_those_of_scikit_learn() -> None:
    rows, _ = problem()
    theirs = cross_val_predict(
        LogisticRegression(C=0.5, tol=1e-6),
        rows.features,
        rows.targets,
        cv=folds_of(60, rows.targets.tolist(), None, 5, 5),
        method="predict_proba",
    )
    ours = probabilities(CLASSES, left_out(CLASSES, rows, plain(CLASSES, 2.0)))
    np.testing.assert_allclose(ours, theirs, atol=1e-3)


def test_a_label_of_one_row_leaves_folds_of_groups() -> None:
    rows, _ = problem()
    targets = np.where(np.arange(60) == 0, 2, np.arange(60) % 2)
    grouped = replace(rows, targets=targets, groups=[str(row // 2) for row in range(60)])
    assert left_out(CLASSES, grouped, plain(CLASSES, 1.0)) is not None


def test_pairs_that_are_encoded_jointly_are_joined_too() -> None:
    assert predicted(stacked("joined", separately=False, pair=True)).shape == (40, 3)


def test_where_there_are_no_folds_members_have_their_prior_weights() -> None:
    rows, _ = problem()
    single = Rows(rows.features, rows.targets, 3, groups=["one"] * 60)
    assert left_out(CLASSES, single, plain(CLASSES, 1.0)) is None
    weights, notes = weights_of(CLASSES, [None, None], rows.targets, prior=[1, 3])
    assert weights.tolist() == [0.25, 0.75]
    assert len(notes) == 1
    lonely = Rows(rows.features, np.array([1] + [0] * 59), 2)
    assert left_out(CLASSES, lonely, plain(CLASSES, 1.0)) is None  # a fold without the row has one label


def test_weights_by_hand() -> None:
    targets = np.array([0, 1] * 25)
    right, half = np.log(np.eye(2)[targets] * 0.8 + 0.1), np.zeros((50, 2))
    # The best weights are all of the first; 50 rows count as many as equal weights do.
    assert weights_of(CLASSES, [right, half], targets)[0] == pytest.approx([0.75, 0.25])
    assert weights_of(CLASSES, [right], targets)[0].tolist() == [1.0]
    values = np.linspace(0, 1, 50)
    # Errors of +1 and -3: three quarters of the first and one of the second leave none.
    found, _ = weights_of(VALUES, [(values + 1)[:, None], (values - 3)[:, None]], values)
    assert found == pytest.approx([0.75 / 2 + 0.25, 0.25 / 2 + 0.25])


def test_weights_go_by_the_metric() -> None:
    targets = np.array([0, 1] * 25)
    # The first is surer and wrong in rows 0 to 4; the second hardly decides, and is always right.
    sure, unsure = np.eye(2)[targets] * 0.98 + 0.01, np.eye(2)[targets] * 0.02 + 0.49
    sure[:5] = sure[:5, ::-1] * 0.2 + 0.4
    sure, unsure = np.log(sure), np.log(unsure)
    assert loss(CLASSES, sure, targets) < loss(CLASSES, unsure, targets)
    assert weights_of(CLASSES, [sure, unsure], targets, "accuracy")[0] == pytest.approx([0.25, 0.75])
    values = np.linspace(0, 1, 50)
    straight, curved = 0.9 * values + 0.05 * (-1) ** np.arange(50), values**9
    assert loss(VALUES, straight[:, None], values) < loss(VALUES, curved[:, None], values)
    found, _ = weights_of(VALUES, [straight[:, None], curved[:, None]], values, "spearman")
    assert found == pytest.approx([0.25, 0.75])
    assert weights_of(VALUES, [straight[:, None], curved[:, None]], values, "mse")[0][0] > 0.6


def test_prior_weights_and_rows_of_rare_classes_by_hand() -> None:
    targets = np.array([0] * 45 + [1] * 5)
    right, wrong = np.log(np.eye(2)[targets] * 0.8 + 0.1), np.log(np.eye(2)[1 - targets] * 0.8 + 0.1)
    first, _ = weights_of(CLASSES, [right, wrong], targets, "accuracy", prior=[1, 3])[0]
    assert first == pytest.approx((1 + 0.75) / 2 * 0.5 + 0.25 * 0.5)  # right with 1 and 0.75, and 50 rows are half
    # All weights are as good: the mean of the prior one and of five quarters, 2.75 / 6.
    alike, _ = weights_of(CLASSES, [right, right], targets, prior=[1, 3])
    assert alike[0] == pytest.approx(0.5 * 2.75 / 6 + 0.5 * 0.25)
    # Where classes count alike, two classes of the harmonic mean 9 count 18 rows.
    alike, _ = weights_of(CLASSES, [right, right], targets, "f1_macro", prior=[1, 3])
    assert alike[0] == pytest.approx(18 / 68 * 2.75 / 6 + 50 / 68 * 0.25)


def test_losses_by_hand() -> None:
    wanted = -(np.log(0.5) + np.log(0.8)) / 2
    assert loss(CLASSES, np.log([[0.5, 0.5], [0.2, 0.8]]), np.array([0, 1])) == pytest.approx(wanted)
    several = find("multi_label")
    wanted = -(np.log(0.9) + np.log(1 - 0.2) + np.log(1 - 0.3) + np.log(0.6)) / 2
    logits = np.log([[9, 1 / 4], [3 / 7, 3 / 2]])
    assert loss(several, logits, np.array([1, 2], np.uint64)) == pytest.approx(wanted)


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_the_average_is_that_of_its_members_alone(kind: str) -> None:
    members = ("words", "embeddings", "joined", "cosine")
    run = stacked(*members, kind=kind)
    weights = from_tensor(run.stack.keep(run.trainee)["stacking.weights"])
    assert set(weights) == set(members)
    assert sum(weights.values()) == pytest.approx(1)
    alone = [predicted(stacked(name, kind=kind), 12, kind=kind) for name in members]
    expected = sum(weights[name] * found for name, found in zip(members, alone, strict=True))
    if kind == "classification":
        expected = log_softmax(expected, axis=1)
    np.testing.assert_allclose(predicted(run, 12, kind=kind), expected, atol=1e-4)


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_a_tuned_model_beside_has_a_share_that_grows_with_the_rows(kind: str) -> None:
    alone = stacked("words", "embeddings", kind=kind)
    generator = torch.Generator().manual_seed(0)
    tuned = {
        name: value + 0.3 * torch.randn(value.shape, generator=generator)
        for name, value in alone.trainee.trained_weights().items()
    }
    options = {"members": ["words", "embeddings"], "beside": "share"}
    handed = {"share": Handed("key", {}, tuned)}
    run = Bench([("stacking", options)], **{**PAIRS, "labels": 3, "kind": kind, "handed": handed})
    found, solved = predicted(run, kind=kind), predicted(alone, kind=kind)
    alone.model.load_state_dict(tuned, strict=False)
    with torch.no_grad():
        outputs = alone.model.eval()(**run.stream.collate(range(40)).model_inputs()).logits.double().numpy()
    if kind == "classification":
        found, solved, outputs = np.exp(found), np.exp(solved), torch.from_numpy(outputs).softmax(-1).numpy()
    assert np.abs(outputs - solved).max() > 0.05
    np.testing.assert_allclose(found, (200 * solved + 40 * outputs) / 240, atol=1e-5)  # of 40 rows
    assert not any("beside" in name for name in alone.stack.keep(alone.trainee))


def test_a_single_text_has_no_cosine() -> None:
    run = Bench([("stacking", {})], pooling="mean", training=NO_STEPS, rows=30, labels=2)
    assert set(from_tensor(run.stack.keep(run.trainee)["stacking.weights"])) == {"words", "embeddings", "joined"}
