"""Labels with an order: the loss in closed form, metrics against scikit-learn, a task from a table to answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import cohen_kappa_score, mean_absolute_error

from regft_core.fit.own_rows import Asked, read_own
from regft_core.kinds import find
from regft_core.methods.label_smoothing import LabelSmoothing
from regft_core.metrics import find as metric
from regft_core.schema.tasks import TaskConfig
from tests.small_project import TASK, write_csv

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


def test_metrics_are_those_of_scikit_learn() -> None:
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
