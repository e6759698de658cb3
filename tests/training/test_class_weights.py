"""``class_weights: balanced``: a row's task loss times n / (K n_c), wherever a method computes the task's loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from regft_core.hooks import compose
from regft_core.kinds import find
from regft_core.training.linear_solution import classify_as_setfit, classify_words
from regft_core.training.logistic import Rows
from tests.methods.cases import task
from tests.methods.chain import Runner, phase
from tests.methods.harness import TRAINING, examples, source_of

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


@pytest.mark.parametrize(
    "regularisers",
    [[], [("label_smoothing", {})], [("r_drop", {})], [("freelb", {})]],
    ids=["vanilla", "label_smoothing", "r_drop", "freelb"],
)
def test_weights_reach_the_loss_of_methods(regularisers: list[Any]) -> None:
    plain, weighted = skewed(regularisers), skewed(regularisers, **BALANCED)
    assert not torch.equal(plain["classifier.weight"], weighted["classifier.weight"])


def test_solved_heads_weight_rows_as_scikit_learn_does() -> None:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [30, 10])
    features = rng.normal(size=(40, 4)) + labels[:, None]
    weights = np.asarray(find("classification").balanced(labels.tolist(), 2))
    theirs = LogisticRegression(class_weight="balanced").fit(features, labels)
    ours = classify_as_setfit(Rows(features, labels, 2, weights=weights))
    np.testing.assert_allclose(ours.weight[1] - ours.weight[0], theirs.coef_[0], rtol=1e-6)
    np.testing.assert_allclose(ours.bias[1] - ours.bias[0], theirs.intercept_[0], rtol=1e-6)
    from scipy import sparse

    bag = classify_words(Rows(sparse.csr_matrix(features), labels, 2, weights=weights))
    theirs = LogisticRegression(C=1 / bag.strength, tol=1e-5, max_iter=5000, class_weight="balanced")
    theirs.fit(sparse.csr_matrix(features), labels)
    np.testing.assert_allclose(bag.weight[1] - bag.weight[0], theirs.coef_[0], rtol=1e-3)


def test_regression_refuses_them_before_anything_is_trained() -> None:
    given = phase(**BALANCED)
    shared = TRAINING.model_copy(update=BALANCED)
    (problem,) = compose.check_phase([], given, shared, task("regression"))
    assert "training.class_weights: balanced weights classes, and a regression task has none" in problem
    assert compose.check_phase([], given, shared, task("classification")) == []
    assert compose.check_phase([], given, shared, task("multi_label")) == []
