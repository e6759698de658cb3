"""Linear heads solved on fixed features, against hand-made cases and stationarity conditions; weights of classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import cross_entropy

from regft_core.errors import RunFailed
from regft_core.hooks import compose
from regft_core.kinds import find
from regft_core.training.linear_solution import (
    STRENGTHS,
    classify_as_setfit,
    classify_linearly,
    classify_words,
    regress_linearly,
)
from regft_core.training.logistic import ABSENT, Rows, smallest_loss
from tests.errors import raises_code
from tests.methods.cases import task
from tests.methods.chain import Runner, phase
from tests.methods.harness import examples, source_of


def blobs(count: int, classes: int, seed: int = 0) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    generator = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    centres = generator.normal(size=(classes, 6)) * 1.5
    scale = np.asarray([1.0, 100.0, 0.01, 1.0, 5.0, 1.0])
    return (centres[labels] + generator.normal(size=(count, 6))) * scale + 3.0, labels


def loss_gradient(
    features: npt.NDArray[np.float64], labels: npt.NDArray[np.int64], solution: Any, parts: int = 1
) -> np.ndarray:
    """Gradient of mean loss + strength / 2 * ||W||^2 in the weights of the features, scaled in each of ``parts``."""
    weight, bias, strength = solution.weight, solution.bias, solution.strength
    variances, centre = features.var(0), features.mean(0)
    scale = np.repeat(np.sqrt(variances.reshape(parts, -1).mean(1)), len(variances) // parts)
    logits = features @ weight.T + bias
    odds = np.exp(logits - logits.max(1, keepdims=True))
    odds /= odds.sum(1, keepdims=True)
    odds[np.arange(len(labels)), labels] -= 1
    gradient = odds.T @ ((features - centre) / scale) / len(labels)
    scaled = weight * scale
    # Two classes: scikit-learn penalises the one weight w of the logit, and W = (-w / 2, w / 2).
    factor = 2.0 if len(weight) == 2 else 1.0
    return gradient + factor * strength * scaled


@pytest.mark.parametrize(("classes", "width"), [(2, 6), (3, 6), (5, 6), (3, 80)])
def test_the_solution_is_stationary_on_raw_features(classes: int, width: int) -> None:
    """Also where it is solved in the span of the rows, of which there are fewer than features."""
    features, labels = blobs(60, classes)
    if width > 60:
        features = np.random.default_rng(3).normal(size=(60, width)) + 1.0
    solution = classify_linearly(Rows(features, labels, classes))
    assert solution.weight.shape == (classes, width)
    assert np.abs(loss_gradient(features, labels, solution)).max() < 1e-4
    assert np.allclose(solution.weight.sum(0), 0, atol=1e-8)
    assert solution.strength in np.geomspace(STRENGTHS[0], STRENGTHS[-1], 2 * len(STRENGTHS) - 1)
    assert not solution.notes


def test_parts_are_scaled_apart_and_one_number_is_not() -> None:
    features, labels = blobs(60, 3)
    smaller = features * np.repeat([1.0, 1e-3], 3)
    targets = labels + 0.1 * features[:, 3]
    for solve in (
        lambda x, parts: classify_linearly(Rows(x, labels, 3), parts),
        lambda x, parts: regress_linearly(Rows(x, targets), parts),
    ):
        whole, other = solve(features, (1.0, 1.0)), solve(smaller, (1.0, 1.0))
        expected = features @ whole.weight.T + whole.bias
        assert smaller @ other.weight.T + other.bias == pytest.approx(expected, abs=1e-3)
        one = solve(smaller, (1.0,))
        assert abs(smaller @ one.weight.T + one.bias - expected).max() > 1e-2
        light = solve(smaller, (1.0, 1e-6))  # a part of hardly any weight is hardly read
        assert abs(light.weight[:, 3:] * 1e-3).max() < 1e-3 * abs(light.weight[:, :3]).max()


@pytest.mark.parametrize("optimum", [1.0, 10**0.5, 10**-0.5, 10**1.2, 1e-9, 1e9])
def test_half_decades_about_the_best_decade_are_tried_and_none_outside(optimum: float) -> None:
    asked: list[float] = []

    def loss(strength: float) -> float:
        asked.append(strength)
        return float(abs(np.log10(strength / optimum)))

    decades = [0.1, 1.0, 10.0, 100.0]
    found = smallest_loss(decades, loss)
    assert abs(np.log10(found / np.clip(optimum, 0.1, 100.0))) <= 0.25 + 1e-9
    assert min(asked) >= 0.1
    assert max(asked) <= 100.0
    assert len(asked) <= len(decades) + 2


def test_classes_of_no_row_and_of_one_row_are_noted_and_one_class_alone_is_a_failed_run() -> None:
    features, labels = blobs(30, 2)
    solution = classify_linearly(Rows(features, labels * 2, 3))  # 0 and 2 of 0, 1, 2
    assert not solution.weight[1].any()
    assert 1 not in (features @ solution.weight.T + solution.bias).argmax(1)
    assert "1 of 3 classes have no row" in solution.notes[0]
    solution = classify_linearly(Rows(features[:12], np.where(np.arange(12) == 3, 1, 0), 2))
    assert solution.strength == pytest.approx(1 / 12)
    assert "single row" in solution.notes[0]
    with raises_code(RunFailed, "one-class"):
        classify_linearly(Rows(np.ones((4, 2)), np.zeros(4, dtype=np.int64), 2))


def test_features_that_hardly_vary_get_no_large_weights() -> None:
    features, labels = blobs(30, 2)
    features[:, 0] = 7.0
    features[:, 1] = 1e-6 * (labels - 0.5)  # tells the classes apart, by a hair
    solution = classify_linearly(Rows(features, labels, 2))
    assert solution.weight[:, 0] == pytest.approx([0, 0], abs=1e-9)
    assert np.abs(solution.weight[:, 1]).max() < np.abs(solution.weight).max()
    constant = classify_linearly(Rows(np.full((30, 2), 3.0), labels, 2))
    assert not constant.weight.any()


def test_ridge_is_stationary_on_raw_features() -> None:
    generator = np.random.default_rng(0)
    features = generator.normal(size=(40, 5)) * np.asarray([1, 10, 0.1, 1, 1]) + 2
    targets = features[:, 0] + generator.normal(size=40)
    solution = regress_linearly(Rows(features, targets))
    scale, centre = np.sqrt(features.var(0).mean()), features.mean(0)
    residual = (features @ solution.weight.T + solution.bias)[:, 0] - targets
    gradient = ((features - centre) / scale).T @ residual / 40 + solution.strength * (solution.weight[0] * scale)
    assert np.abs(gradient).max() < 1e-8
    assert residual.mean() == pytest.approx(0.0, abs=1e-10)


@pytest.mark.parametrize("balanced", [None, "balanced"])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_package_s_head_is_scikit_learn_s_default_on_the_features_as_they_are(classes: int, balanced: Any) -> None:
    features, labels = blobs(60, classes)
    labels[:9] = 0
    single = (features / 100).astype(np.float32)
    weights = np.asarray(find("classification").balanced(labels.tolist(), classes)) if balanced else None
    solution = classify_as_setfit(Rows(single, labels, classes, weights=weights))
    theirs = LogisticRegression(class_weight=balanced).fit(single, labels)
    logits = single @ solution.weight.T + solution.bias
    odds = np.exp(logits - logits.max(1, keepdims=True))
    assert odds / odds.sum(1, keepdims=True) == pytest.approx(theirs.predict_proba(single), abs=1e-6)
    assert solution.strength == 1 / 60
    assert not solution.notes


def test_the_package_s_head_says_what_it_could_not_do() -> None:
    features, labels = blobs(60, 3)
    unlike = np.random.default_rng(2).normal(size=(60, 20)) * np.logspace(0, 4, 20)
    assert classify_as_setfit(Rows(unlike.astype(np.float32), labels, 3)).notes == [
        "linear_head: the logistic regression did not converge in 100 iterations"
    ]
    found = classify_as_setfit(Rows(features.astype(np.float32) / 100, labels, 4))
    assert found.notes == ["linear_head: 1 of 4 classes have no row and are never predicted"]
    assert found.bias[3] == pytest.approx(found.bias[:3].min() - ABSENT)


BALANCED: dict[str, Any] = {"class_weights": "balanced"}
#: Three rows of one class to one of the other: n / (K n_c) is 4 / 6 and 4 / 2.
LABELS, WEIGHTS = [0, 0, 1, 0], (2 / 3, 2.0)


def test_three_to_one_by_hand() -> None:
    kind = find("classification")
    assert kind.balanced(LABELS, 2) == pytest.approx(WEIGHTS)
    assert np.mean([WEIGHTS[label] for label in LABELS]) == pytest.approx(1.0)
    logits, labels = torch.tensor([[0.3, -0.2], [1.0, 0.0], [0.5, 2.0], [0.0, 0.0]]), torch.tensor(LABELS)
    each = cross_entropy(logits, labels, reduction="none")
    by_hand = (2 / 3 * (each[0] + each[1] + each[3]) + 2 * each[2]) / 4
    torch.testing.assert_close(kind.task_loss(logits, labels, torch.tensor(WEIGHTS)), by_hand)
    # Part of a batch alone: the weights are those of all rows, so a batch of one class does not cancel them.
    torch.testing.assert_close(kind.task_loss(logits[2:3], labels[2:3], torch.tensor(WEIGHTS)), 2 * each[2])


def test_a_class_without_a_row_leaves_the_mean_weight_1() -> None:
    assert find("classification").balanced([0, 0, 0, 2], 3) == pytest.approx((4 / 6, 1.0, 4 / 2))
    with pytest.raises(ValueError, match="labels"):
        find("regression").balanced([0.5], 1)


def skewed(regularisers: list[Any], **training: Any) -> dict[str, torch.Tensor]:
    """Weights after two steps on rows whose classes are three to one."""
    rows = tuple(replace(row, label=int(i % 4 == 0)) for i, row in enumerate(examples(12)))
    runner = Runner(source_of("bert"), given=rows)
    return runner.run([phase(regularisers, **training)], steps=2)["finetune"].tensors["weights"]


@pytest.mark.parametrize("regularisers", [[], [("label_smoothing", {})]], ids=["vanilla", "label_smoothing"])
def test_weights_reach_the_loss_of_methods(regularisers: list[Any]) -> None:
    """All other methods take the task's loss of the step (``tests/methods/test_kinds_of_hooks.py``)."""
    plain, weighted = skewed(regularisers), skewed(regularisers, **BALANCED)
    assert not torch.equal(plain["classifier.weight"], weighted["classifier.weight"])


def test_models_of_words_weight_rows_as_scikit_learn_does() -> None:
    labels = np.repeat([0, 1], [30, 10])
    features = np.random.default_rng(0).normal(size=(40, 4)) + labels[:, None]
    weights = np.asarray(find("classification").balanced(labels.tolist(), 2))
    bag = classify_words(Rows(sparse.csr_matrix(features), labels, 2, weights=weights))
    theirs = LogisticRegression(C=1 / bag.strength, tol=1e-5, max_iter=5000, class_weight="balanced")
    theirs.fit(sparse.csr_matrix(features), labels)
    np.testing.assert_allclose(bag.weight[1] - bag.weight[0], theirs.coef_[0], rtol=1e-3)


def test_regression_refuses_them_before_anything_is_trained() -> None:
    given = phase(**BALANCED)
    (problem,) = compose.check_phase([], given, task("regression"))
    assert "training.class_weights: balanced weights classes, and a regression task has none" in problem
    assert compose.check_phase([], given, task("classification")) == []
    assert compose.check_phase([], given, task("multi_label")) == []
