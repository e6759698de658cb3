"""Several labels of an example: read from files, trained, judged and written, against numbers by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score

from regft_core import metrics
from regft_core.data.file_format import Row
from regft_core.data.prepare import declaration_of
from regft_core.data.read_split import to_examples
from regft_core.errors import DataError
from regft_core.kinds import find
from regft_core.schema.tasks import TaskConfig
from tests.errors import raises_code
from tests.small_project import TASK

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
        gold = sum(
            (rng.random(15) < share).astype(np.uint64) << np.uint64(k) for k, share in enumerate((0.7, 0.4, 0.1))
        )
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
