"""The average of solved models against scikit-learn's own, and its limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.special import log_softmax
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import cross_val_predict

from regft_core.hooks.declare import Handed, from_tensor
from regft_core.kinds import find
from regft_core.rng import derive
from regft_core.training.bag_of_words import BagOfWords
from regft_core.training.linear_solution import classify_linearly, classify_words, regress_words
from regft_core.training.logistic import Rows, folds_of
from regft_core.training.stacked import answers, left_out, loss, of_words, plain, probabilities, weights_of
from tests.methods.harness import NO_STEPS, Bench, examples

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
    np.testing.assert_allclose(
        predicted(run), log_softmax(words @ solution.weight.T + solution.bias, axis=1), atol=1e-5
    )


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
    one_row = Rows(rows.features[:1], np.array([2.0]))
    assert left_out(find("regression"), one_row, plain(find("regression"), 1.0)) is None
    weights, notes = weights_of(CLASSES, [None, None], rows.targets, prior=[1, 3])
    assert weights.tolist() == [0.25, 0.75]
    assert len(notes) == 1
    lonely = Rows(rows.features, np.array([1] + [0] * 59), 2)
    assert left_out(CLASSES, lonely, plain(CLASSES, 1.0)) is None  # a fold without the row has one label


# ------------------------------------------------------------------------------------------------------------- weights


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
    assert loss(CLASSES, np.log([[0.5, 0.5], [0.2, 0.8]]), np.array([0, 1])) == pytest.approx(
        -(np.log(0.5) + np.log(0.8)) / 2
    )
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
