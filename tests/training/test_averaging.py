"""The moving average of the weights, and passes under it."""

from __future__ import annotations

import torch

from regft_core.training.averaging import MovingAverage
from tests.methods.harness import Bench

NAME = "classifier.weight"


def test_it_starts_equal_and_follows_with_the_stated_momentum() -> None:
    bench = Bench()
    average = MovingAverage(bench.trainee)
    parameter = bench.trainee.raw(NAME)
    assert torch.equal(average.tensors[NAME], parameter)
    start = parameter.detach().clone()
    with torch.no_grad():
        parameter.add_(1.0)
    average.update(0.75)
    assert torch.allclose(average.tensors[NAME], start + 0.25)
    assert set(average.tensors) == {name for name, _ in bench.trainee.named_trainable()}
    other = MovingAverage(Bench().trainee)
    other.load(average.tensors)
    assert torch.equal(other.tensors[NAME], average.tensors[NAME])


def test_passes_under_it_leave_earlier_graphs_and_the_weights_as_they_were() -> None:
    bench, plain = Bench(), Bench()
    average = MovingAverage(bench.trainee)
    for tensor in average.tensors.values():
        tensor.zero_()
    step = bench.step()
    loss = step.task_loss(step.forward())
    with average.in_place_of_the_weights():
        under = step.forward()
        assert not under.requires_grad
        assert not under.any()
    loss.backward()
    plain.stack.backward(plain.step())
    for name, parameter in bench.trainee.named_raw():
        assert torch.equal(parameter, plain.trainee.raw(name)), name
        assert torch.equal(parameter.grad, plain.trainee.raw(name).grad), name
