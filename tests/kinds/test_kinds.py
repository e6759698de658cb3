"""Kinds of task are found by their files, and what a file must have is said where it is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from regft_core.catalogue import KINDS
from regft_core.errors import ConfigError
from regft_core.kinds import find, of_model
from regft_core.schema.tasks import TaskConfig
from regft_core.training.distances import divergence, kl, squared_difference, symmetric_kl

MORE = Path(__file__).parent / "more"


def test_names_are_those_of_the_files() -> None:
    assert KINDS.names() == ("classification", "multi_label", "ordinal", "regression")
    with KINDS.also(MORE):
        assert KINDS.names() == ("classification", "multi_label", "ordinal", "regression", "tags")
        assert not find("tags").one_label
    with pytest.raises(ValueError, match=r"unknown kind of task 'classifcation'; did you mean 'classification'\?"):
        find("classifcation")


def test_a_kind_answers_every_question(tmp_path: Path) -> None:
    whole = (MORE / "tags.py").read_text()
    less = whole.replace('    dtype = "int64"\n', "").replace("    def answer(", "    def says(")
    (tmp_path / "half.py").write_text(less)
    with KINDS.also(tmp_path), pytest.raises(ConfigError, match=r"half.py.*Tags does not say: answer, dtype"):
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
    declared = {
        "source": {"kind": "files"},
        "splits": {"dev": "dev.csv"},
        "columns": {"text": "text"},
        "labels": ["a"],
        "metrics": ["exact"],
        "primary": "exact",
        "kind": "tags",
    }
    with pytest.raises(
        ValueError, match="unknown kind of task 'tags'; allowed: classification, multi_label, ordinal, regression"
    ):
        TaskConfig.model_validate(declared)
    with pytest.raises(ValueError, match="needs 'labels' with at least two names"):
        TaskConfig.model_validate({**declared, "kind": "classification"})
    with pytest.raises(ValueError, match="a regression task has no 'labels'"):
        TaskConfig.model_validate({**declared, "kind": "regression"})
    with KINDS.also(MORE):
        assert TaskConfig.model_validate(declared).kind == "tags"


def test_labels_of_a_batch_are_what_the_loss_takes() -> None:
    classes, values = find("classification"), find("regression")
    assert classes.label_tensor([0, 2]).dtype == torch.int64
    assert values.label_tensor([0.5, 2]).dtype == torch.float32
    logits = torch.tensor([[0.0, 0.0], [0.0, 0.0]])
    assert float(classes.task_loss(logits, torch.tensor([0, 1]))) == pytest.approx(np.log(2))
    assert float(values.task_loss(torch.tensor([[1.0], [3.0]]), torch.tensor([0.0, 1.0]))) == 2.5
    with pytest.raises(ValueError, match="predictions"):  # would broadcast
        values.task_loss(torch.zeros(3, 1), torch.zeros(2))


def test_divergences_are_of_what_a_kind_reads_logits_as() -> None:
    one, two = torch.tensor([[0.3, -1.0], [2.0, 0.5]]), torch.tensor([[1.0, 0.0], [-0.4, 0.5]])
    assert torch.equal(divergence(one, two, "classification"), symmetric_kl(one, two))
    values = one[:, :1], two[:, :1]
    assert torch.equal(divergence(*values, "regression", kl), squared_difference(*values))
    with KINDS.also(MORE):
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
