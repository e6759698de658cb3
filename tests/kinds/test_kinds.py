"""Every kind answers every question; predictions that look wrong are told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from regft_core.catalogue import KINDS
from regft_core.errors import ConfigError
from regft_core.kinds import find, of_model
from regft_core.kinds._judging import warn_if_permuted, warn_if_reversed
from regft_core.kinds.regression import CORRELATION_THRESHOLD
from regft_core.schema.tasks import TaskConfig
from regft_core.training.distances import divergence, kl, squared_difference, symmetric_kl
from tests.small_project import TASK, also

MORE = Path(__file__).parent / "more"


def test_a_kind_answers_every_question(tmp_path: Path) -> None:
    whole = (MORE / "tags.py").read_text()
    less = whole.replace('    dtype = "int64"\n', "").replace("    def answer(", "    def says(")
    (tmp_path / "half.py").write_text(less)
    with also(KINDS, tmp_path), pytest.raises(ConfigError, match=r"half.py.*Tags does not say: answer, dtype"):
        find("half")


@pytest.mark.parametrize(
    ("problem_type", "outputs", "expected"),
    [
        (None, 1, "regression"),
        (None, 3, "classification"),
        ("single_label_classification", 1, "regression"),  # a softmax over one output says nothing
        ("regression", 1, "regression"),
        ("regression", 2, None),
        ("multi_label_classification", 3, "multi_label"),
        ("token_classification", 3, None),
    ],
)
def test_models_from_elsewhere_are_of_the_kind_that_they_say(
    problem_type: str | None, outputs: int, expected: str | None
) -> None:
    assert of_model(problem_type, outputs) == expected


def test_a_task_names_its_kind_by_a_file() -> None:
    declared = {**TASK, "kind": "tags", "labels": ["a"], "metrics": ["exact"], "primary": "exact", "ood": {}}
    with pytest.raises(
        ValueError, match="unknown kind of task 'tags'; allowed: classification, multi_label, ordinal, regression"
    ):
        TaskConfig.model_validate(declared)
    with pytest.raises(ValueError, match="needs 'labels' with at least two names"):
        TaskConfig.model_validate({**declared, "kind": "classification"})
    with pytest.raises(ValueError, match="a regression task has no 'labels'"):
        TaskConfig.model_validate({**declared, "kind": "regression"})
    with also(KINDS, MORE):
        assert TaskConfig.model_validate(declared).kind == "tags"


def test_a_loss_that_would_broadcast_is_refused() -> None:
    with pytest.raises(ValueError, match="predictions"):
        find("regression").task_loss(torch.zeros(3, 1), torch.zeros(2))


def test_divergences_are_of_what_a_kind_reads_logits_as() -> None:
    one, two = torch.tensor([[0.3, -1.0], [2.0, 0.5]]), torch.tensor([[1.0, 0.0], [-0.4, 0.5]])
    assert torch.equal(divergence(one, two, "classification"), symmetric_kl(one, two))
    values = one[:, :1], two[:, :1]
    assert torch.equal(divergence(*values, "regression", kl), squared_difference(*values))
    with also(KINDS, MORE):
        found = divergence(one, two, "tags", kl)
        p, q = one.sigmoid(), two.sigmoid()
        by_hand = p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()
        torch.testing.assert_close(found, by_hand.mean(-1))  # as the loss of the task is a mean over labels
    with pytest.raises(ValueError, match="no probabilities"):
        find("regression").log_probabilities(one)


def test_answers_in_prediction_files() -> None:
    labels, logits = ("bad", "good"), np.array([[0.0, 1.0], [2.0, 1.0]])
    classes, values = find("classification"), find("regression")
    assert classes.score_columns(labels) == ["probability_bad", "probability_good"]
    assert [classes.answer(row, labels) for row in logits.tolist()] == ["good", "bad"]
    assert values.score_columns(("score",)) == []
    assert values.answer([0.25], ("score",)) == 0.25


MNLI = ["entailment", "neutral", "contradiction"]
HANS = ["entailment", "non-entailment"]


def simulated(n, k, accuracy, seed=0):
    rng = np.random.default_rng(seed)
    gold = rng.integers(k, size=n)
    wrong = (gold + rng.integers(1, k, size=n)) % k
    return gold, np.where(rng.random(n) < accuracy, gold, wrong)


def test_a_permuted_model_is_caught_and_the_permutation_named():
    gold, predicted = simulated(300, 3, 0.84)
    assert warn_if_permuted(gold, predicted, MNLI) is None
    rotated = np.array([1, 2, 0])[predicted]
    warning = warn_if_permuted(gold, rotated, MNLI)
    assert "below chance" in warning
    assert "'neutral' -> 'entailment', 'contradiction' -> 'neutral', 'entailment' -> 'contradiction'" in ", ".join(
        [warning.split("as ")[1].split(" would")[0].split(", ")[i] for i in (1, 2, 0)]
    )
    assert f"{np.mean(gold == predicted):.3f}" in warning
    swapped = warn_if_permuted(gold, np.array([2, 1, 0])[predicted], MNLI)  # accuracy is about chance
    assert "'entailment' -> 'contradiction'" in swapped
    assert "neutral" not in swapped


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("k", [2, 3, 40])
def test_random_and_constant_predictions_are_at_chance(k, seed):
    names = [str(i) for i in range(k)]
    rng = np.random.default_rng(seed)
    gold = rng.choice(k, p=np.arange(1, k + 1) / (k * (k + 1) / 2), size=600)
    assert warn_if_permuted(gold, rng.integers(k, size=600), names) is None
    assert warn_if_permuted(gold, np.zeros(600, dtype=int), names) is None
    assert warn_if_permuted(gold, np.full(600, k - 1), names) is None


def test_the_hans_failure_of_real_models_is_at_chance_not_below():
    gold = np.repeat([0, 1], 500)  # nearly everything called entailment, as lexical overlap suggests
    predicted = np.r_[np.zeros(495), np.ones(5), np.zeros(480), np.ones(20)].astype(int)
    assert warn_if_permuted(gold, predicted, HANS) is None
    assert "below chance" in warn_if_permuted(gold, 1 - gold, HANS)


def test_reversed_regression_scale():
    values = np.linspace(0, 5, 50)
    assert "negative" in warn_if_reversed(values, 5 - values)
    assert warn_if_reversed(values, values) is None
    assert warn_if_reversed(values, np.full(50, 2.0)) is None


@pytest.mark.parametrize(
    ("labels", "predictions", "expected"),
    [
        ([0, 1, 1, 1], [1, 1, 1, 1], "constant"),  # 0.75, the majority class
        ([0, 1, 1, 1], [0, 0, 0, 0], "constant"),
        ([0, 1, 1, 1], [1, 0, 1, 1], "majority"),  # 0.5 < 0.75
        ([0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 0], "majority"),  # exactly the majority rate
        ([0, 1, 1, 1], [0, 1, 1, 1], None),
        ([1, 1, 1], [1, 1, 1], None),  # one gold label: right is not collapsed
        ([1, 1, 1], [0, 0, 0], "constant"),
        ([1, 1, 1], [0, 1, 1], None),
    ],
)
def test_classification(labels, predictions, expected):
    assert find("classification").collapsed(np.array(labels), np.array(predictions)) == expected


def test_regression():
    collapsed = find("regression").collapsed
    rng = np.random.default_rng(0)
    labels = rng.normal(size=400)
    noise = rng.normal(size=400)
    noise -= labels * (noise @ (labels - labels.mean())) / (labels @ (labels - labels.mean()))
    assert abs(np.corrcoef(labels, noise)[0, 1]) < CORRELATION_THRESHOLD
    assert collapsed(labels, np.full(400, 2.5)) == "constant"
    assert collapsed(labels, 2.5 + 1e-8 * labels) == "constant"  # float32 rounding, not signal
    assert collapsed(labels, noise) == "constant"
    assert collapsed(labels, noise - labels) == "majority"  # worse than a constant
    assert collapsed(labels, noise / 2 + labels) is None
    assert collapsed(labels, 1e-3 * labels) is None  # small but informative
    assert collapsed(labels + 5, 1e-3 * labels) == "majority"  # ranked right, but no better than the mean
