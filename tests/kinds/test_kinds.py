"""Every kind answers every question; several labels and ordered ones, against numbers by hand and scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, cohen_kappa_score, f1_score, mean_absolute_error

from regft_core import metrics
from regft_core.catalogue import KINDS
from regft_core.data.file_format import Row
from regft_core.data.prepare import declaration_of
from regft_core.data.read_split import to_examples
from regft_core.errors import ConfigError, DataError
from regft_core.fit.own_rows import Asked, read_own
from regft_core.kinds import find, of_model
from regft_core.kinds._judging import warn_if_permuted, warn_if_reversed
from regft_core.kinds.regression import CORRELATION_THRESHOLD
from regft_core.methods.label_smoothing import LabelSmoothing
from regft_core.metrics import find as metric
from regft_core.schema.tasks import TaskConfig
from regft_core.training.distances import divergence, kl, squared_difference, symmetric_kl
from tests.errors import raises_code
from tests.small_project import TASK, also, write_csv

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
    with pytest.raises(ValueError, match="'tags'; allowed: classification, multi_label, ordinal, regression"):
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
        torch.testing.assert_close(found, by_hand.sum(-1))
    with pytest.raises(ValueError, match="no probabilities"):
        find("regression").log_probabilities(one)


def test_answers_in_prediction_and_submission_files() -> None:
    labels, logits = ("bad", "good"), np.array([[0.0, 1.0], [2.0, 1.0]])
    classes, values = find("classification"), find("regression")
    assert classes.score_columns(labels) == ["probability_bad", "probability_good"]
    assert [classes.answer(row, labels) for row in logits.tolist()] == ["good", "bad"]
    assert classes.submitted(logits, labels, {"bad": "0"}, None) == ["good", "0"]
    assert values.score_columns(("score",)) == []
    assert values.answer([0.25], ("score",)) == 0.25
    assert values.submitted(logits[:, :1], None, {}, None) == ["0.000", "2.000"]


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
    for named in ("'neutral' -> 'entailment'", "'contradiction' -> 'neutral'", "'entailment' -> 'contradiction'"):
        assert named in warning
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


LABELS = ("fast", "cheap", "good")
KIND = find("multi_label")


TAGS: dict[str, Any] = {
    **TASK,
    "kind": "multi_label",
    "columns": {"text": "text", "label": "tags"},
    "labels": [*LABELS],
    "metrics": ["f1_micro", "f1_macro", "accuracy"],
    "primary": "f1_macro",
    "ood": {},
}


def declared(**changes: Any) -> TaskConfig:
    return TaskConfig.model_validate({**TAGS, **changes})


def read(cells: dict[str, Any], **changes: Any) -> int | float:
    rows = [Row("row 1", {"text": "a film", **cells})]
    (example,) = to_examples(rows, declaration_of(declared(**changes)), "train.csv").examples
    return example.label


def test_a_cell_is_cut_by_the_delimiter_that_the_columns_name() -> None:
    assert read({"tags": "cheap;cheap;"}) == 2
    assert read({"tags": "fast | good"}, columns={"text": "text", "label": "tags", "label_delimiter": "|"}) == 5
    assert read({"tags": "quick;good"}, label_values={"quick": "fast", "good": "good"}) == 5


FLAGS = {"text": "text", "labels": ["is_fast", "is_cheap", "is_good"]}


def test_a_column_for_each_label_holds_0_or_1() -> None:
    for flags, expected in ((("1", "0", "1"), 5), ((0, 1, 0), 2), (("True", "0.0", "1.0"), 5)):
        assert read(dict(zip(FLAGS["labels"], flags, strict=True)), columns=FLAGS) == expected
    with raises_code(DataError, "rows-do-not-match", "'is_good'", "'2'"):
        read({"is_fast": "0", "is_cheap": "1", "is_good": "2"}, columns=FLAGS)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"labels": ["fast"]}, "at least two names"),
        ({"labels": [f"l{i}" for i in range(64)]}, "at most 63 labels, and there are 64"),
        ({"labels": ["fast;cheap", "good"]}, "has a ';'"),
        ({"columns": {**FLAGS, "labels": ["a", "b"]}}, "2 columns for 3 labels"),
        ({"columns": {**FLAGS, "label": "tags"}}, "'label' is for one column"),
        ({"columns": {**FLAGS, "label_delimiter": "|"}}, "'label_delimiter' is for one column"),
        ({"kind": "classification", "columns": FLAGS}, "'labels' is for kind: multi_label"),
        ({"submission": {"format": "glue", "files": {"T.tsv": "test"}}}, "no format of a benchmark's server"),
    ],
)
def test_a_task_that_does_not_fit_the_kind_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        declared(**changes)


def test_the_loss_is_binary_cross_entropy_over_labels() -> None:
    logits, labels = torch.tensor([[0.5, -1.0], [2.0, 0.0]]), KIND.label_tensor([2, 3])
    p = logits.sigmoid()
    by_hand = -(torch.log(1 - p[0, 0]) + torch.log(p[0, 1]) + torch.log(p[1, 0]) + torch.log(p[1, 1])) / 4
    torch.testing.assert_close(KIND.task_loss(logits, labels), by_hand)
    weights = torch.tensor([[2.0, 3.0], [5.0, 7.0]])
    weighted = -(2 * torch.log(1 - p[0, 0]) + 7 * torch.log(p[0, 1]) + 3 * torch.log(p[1, 0]) + 7 * torch.log(p[1, 1]))
    torch.testing.assert_close(KIND.task_loss(logits, labels, weights), weighted / 4)


def test_balanced_weights_make_presence_and_absence_of_each_label_count_alike() -> None:
    weights = KIND.balanced([1, 0, 0, 0], 2)
    assert weights == ((4 / 6, 4 / 2), (1.0, 1.0))  # no row has the second label
    assert 3 * weights[0][0] == 1 * weights[0][1]


def test_a_stratified_draw_keeps_the_rarest_label_of_each_row() -> None:
    assert KIND.strata([0b001, 0b011, 0b111, 0b000]) == [0, 1, 2, -1]
    assert KIND.label_counts([0b001, 0b011, 0b111, 0b000], LABELS) == {"fast": 3, "cheap": 2, "good": 1}


def test_predictions_and_scores_of_a_set_whose_labels_merge_own_ones() -> None:
    logits, to_set = np.array([[1.0, -2.0, 0.5], [-1.0, -2.0, -3.0]]), np.array([1, 0, 1])
    assert KIND.predictions(logits, to_set).tolist() == [0b10, 0]
    sigmoid = 1 / (1 + np.exp(-logits))
    expected = np.stack([sigmoid[:, 1], sigmoid[:, [0, 2]].max(1)], 1)
    np.testing.assert_allclose(KIND.scores(logits, to_set, 2), expected)


def test_answers_are_names_between_semicolons() -> None:
    assert KIND.answer([0.6, 0.5, 0.9], LABELS) == "fast;good"
    assert KIND.answer([0.1, 0.5, 0.2], LABELS) == ""
    assert KIND.shown(np.uint64(6), LABELS) == "cheap;good"


def test_the_constant_baseline_is_the_best_by_f1_micro() -> None:
    rng = np.random.default_rng(0)
    score = metrics.find("f1_micro").score
    for _ in range(20):
        drawn = ((rng.random(15) < share).astype(np.uint64) for share in (0.7, 0.4, 0.1))
        gold = sum(bits << np.uint64(k) for k, bits in enumerate(drawn))
        best = max(score(gold, np.full_like(gold, answer), None) for answer in range(8))
        assert score(gold, KIND.constant(gold), None) == pytest.approx(best)


def test_collapse() -> None:
    gold = np.array([1, 1, 2, 3], dtype=np.uint64)
    assert KIND.collapsed(gold, np.array([1, 1, 1, 1], dtype=np.uint64)) == "constant"
    assert KIND.collapsed(gold, np.array([0, 0, 0, 1], dtype=np.uint64)) == "majority"
    assert KIND.collapsed(gold, gold) is None


def drawn(rng: np.random.Generator, n: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """[n, count] booleans, and the same as bits; the last label is in no row."""
    there = rng.random((n, count)) < 0.4
    there[:, -1] = False
    return there, (there.astype(np.uint64) << np.arange(count, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)


def test_metrics_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(1)
    (there, gold), (claims, predicted) = drawn(rng, 30, 5), drawn(rng, 30, 5)
    occurring = (there | claims).any(axis=0)
    expected = {
        "accuracy": accuracy_score(there, claims),
        "f1_micro": f1_score(there, claims, average="micro"),
        "f1_macro": f1_score(there[:, occurring], claims[:, occurring], average="macro", zero_division=0.0),
    }
    for name, value in expected.items():
        assert metrics.find(name).score(gold, predicted, None) == pytest.approx(value)


STARS: dict[str, Any] = {
    **TASK,
    "kind": "ordinal",
    "splits": {"train": "stars.csv", "dev": {"folds": 2}},
    "columns": {"text": "review", "label": "stars"},
    "labels": ["1", "2", "3"],
    "label_values": {"1": "1", "2": "2", "3": "3"},
    "metrics": ["kappa_quadratic", "mae"],
    "primary": "kappa_quadratic",
    "ood": {},
}


def test_the_loss_is_the_log_loss_of_every_cut() -> None:
    kind, generator = find("ordinal"), torch.Generator().manual_seed(0)
    logits = torch.randn(6, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 3, 3, 0])
    above = 1 - logits.softmax(-1).cumsum(-1)[:, :-1]  # probability to be above each of the three cuts
    right = torch.where(labels[:, None] > torch.arange(3), above, 1 - above)
    torch.testing.assert_close(kind.task_loss(logits, labels), -right.log().mean())
    assert torch.autograd.gradcheck(lambda values: kind.task_loss(values, labels), (logits,))
    weights = torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64)
    weighted = -(right.log().mean(1) * weights[labels]).mean()
    torch.testing.assert_close(kind.task_loss(logits, labels, weights), weighted)
    # A near miss costs less than a far one; of two labels it is the cross-entropy.
    sure = torch.tensor([[9.0, 0.0, 0.0]])
    assert kind.task_loss(sure, torch.tensor([1])) < kind.task_loss(sure, torch.tensor([2]))
    two = logits[:, :2]
    expected = torch.nn.functional.cross_entropy(two, labels % 2)
    torch.testing.assert_close(kind.task_loss(two, labels % 2), expected)


def test_ordinal_metrics_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    gold, predicted = rng.integers(0, 5, 40), rng.integers(0, 5, (3, 40))
    kappa, mae = metric("kappa_quadratic"), metric("mae")
    for answers in predicted:
        assert kappa.score(gold, answers, None) == pytest.approx(cohen_kappa_score(gold, answers, weights="quadratic"))
        assert mae.score(gold, answers, None) == pytest.approx(mean_absolute_error(gold, answers))
    assert kappa.score(gold, np.full(40, 3), None) == 0.0


def test_it_is_judged_by_distance() -> None:
    kind, gold = find("ordinal"), np.array([0, 1, 2, 3, 4, 4])
    assert kind.constant(gold).tolist() == [2] * 6
    assert kind.collapsed(gold, gold) is None
    assert kind.collapsed(gold, np.full(6, 2)) == "constant"
    assert kind.collapsed(gold, 4 - gold) == "majority"
    assert kind.collapsed(gold, np.minimum(gold + 1, 4)) is None  # accuracy is below the majority's
    reversed_scale = np.tile(gold, 5)
    assert "direction" in str(kind.warning(reversed_scale, 4 - reversed_scale, ("a",) * 5))


def test_what_it_needs_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least three names"):
        TaskConfig.model_validate({**STARS, "labels": ["1", "2"], "label_values": None})
    task = TaskConfig.model_validate(STARS)
    (refused,) = LabelSmoothing.check_task(LabelSmoothing.Config(), task)
    assert "ignores the order of ordinal labels" in refused
    for labels, code in ((["low", "mid", "high"], "order-unknown"), (["1", "2", "10"], "")):
        file = write_csv(tmp_path / "rows.csv", [("t", "y"), *((f"text {n}", labels[n % 3]) for n in range(12))])
        rows, problems = read_own(Asked(file, "t", "y", kind="ordinal"))
        assert [problem.code for problem in problems] == [code] * bool(code)
    assert (rows.labels, rows.metrics[0], rows.rarest) == (("1", "2", "10"), "kappa_quadratic", "")
