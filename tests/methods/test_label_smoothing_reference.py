"""Label smoothing against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from tests.methods.harness import Bench, same


def smoothed(logits: torch.Tensor, labels: torch.Tensor, smoothing: float) -> torch.Tensor:
    """The loss of these logits, as a step computes it."""
    bench = Bench([("label_smoothing", {"smoothing": smoothing})], labels=logits.shape[1])
    return bench.step().task_loss(logits, labels)


def test_worked_numbers() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25]]))
    label = torch.tensor([0])
    # CE = ln 2; mean of -log p = (ln 2 + 2 ln 4) / 3 = 5/3 ln 2; the difference is 2/3 ln 2.
    assert float(smoothed(logits, label, 0.3)) == pytest.approx((1 + 0.3 * 2 / 3) * math.log(2))
    # The true class is the least likely: smoothing lowers the loss.
    assert float(smoothed(torch.log(torch.tensor([[0.1, 0.9]])), label, 0.3)) < math.log(10)


@pytest.mark.parametrize("smoothing", [0.05, 0.1, 0.5])
def test_the_loss_is_that_against_the_mixed_targets(smoothing: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(8, 5, generator=generator, requires_grad=True)
    labels = torch.randint(5, (8,), generator=generator)
    targets = (1 - smoothing) * torch.nn.functional.one_hot(labels, 5) + smoothing / 5
    expected = -(targets * logits.log_softmax(-1)).sum(-1).mean()
    ours = smoothed(logits, labels, smoothing)
    assert torch.allclose(ours, expected, atol=1e-6)
    assert torch.allclose(*(torch.autograd.grad(loss, logits)[0] for loss in (ours, expected)), atol=1e-6)


def test_equal_logits_are_not_changed() -> None:
    labels = torch.tensor([0, 1, 2, 0])
    assert float(smoothed(torch.zeros(4, 3), labels, 0.4)) == pytest.approx(math.log(3))


def test_drawn_labels_have_the_same_loss_on_average() -> None:
    smooth = Bench([("label_smoothing", {"smoothing": 0.4})], labels=3)
    drawn = Bench([("label_smoothing", {"smoothing": 0.4, "targets": "drawn"})], labels=3)
    with torch.no_grad():
        logits = smooth.step().forward()
    losses, step = [], drawn.step(0)
    for index in range(4000):
        step.index = index
        losses.append(float(step.task_loss(logits)))
    expected = float(smooth.step(0).task_loss(logits))
    spread = float(torch.tensor(losses).std()) / math.sqrt(len(losses))
    assert sum(losses) / len(losses) == pytest.approx(expected, abs=4 * spread)
    assert float(torch.tensor(losses).std()) > 0


def test_drawn_labels_repeat_with_the_seed() -> None:
    options = {"smoothing": 0.5, "targets": "drawn"}
    assert same(Bench([("label_smoothing", options)]).train(), Bench([("label_smoothing", options)]).train())
