"""Mixout, DPS and weight mixup against their authors' code: weights, gradients, the released hypergradient."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regft_core.methods.mixout import Mixout
from regft_core.models.weight_views import WeightMixing
from regft_core.training import two_level
from tests.methods.harness import TRAINING, Bench
from tests.official.releases import TOLERANCE, Release, agree, apart, gradients

pytestmark = pytest.mark.slow

MIXOUT = Release("bloodwass/mixout", "6c6a5574ce02c4be03526032f4f51b2da1e3f9bb")
MIX_LINEAR = Release("bloodwass/mixout", "b83b86438786baf143376b9fa3eaea1d43bd6035")
BLO = Release("Sai-Ashish/Attention_guided_weight_mixup_BLO", "511960603adc983d49967370bfbc94b20ce85197")
#: Version 0.2.0 of the library with which BLO was released.
BETTY = Release("leopard-ai/betty", "66b9b215d3bd29e10e1bf297006152c72d94ca03")
DPS = Release("ZhangHaojie077/DPS", "df1ea00be3424597e789d194a40cde04d77e25d1")


@pytest.mark.parametrize("variant", ["released", "paper"])
def test_mixout(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    share, masks, own_mask = 0.7, {}, Mixout._mask

    def recorded(self: Mixout, name: str) -> Any:
        draw = own_mask(self, name)

        def mask() -> Tensor | None:
            found = draw()
            if found is not None:
                masks[name.removesuffix(".weight")] = found
            return found

        return mask

    monkeypatch.setattr(Mixout, "_mask", recorded)
    bench = Bench([("mixout", {"variant": variant, "probability": share})], attention="eager")
    plain = Bench(dropout=bench.training.dropout, attention="eager")
    pretrained = {name: value.detach().clone() for name, value in plain.trainee.named_raw()}
    moved = torch.Generator().manual_seed(0)
    with torch.no_grad():  # at the pretrained weights every mix is the same
        for name, value in bench.trainee.named_raw():
            value.add_(torch.randn(value.shape, generator=moved) * 0.02)
            dict(plain.trainee.named_raw())[name].copy_(value)
    step = bench.step()
    loss = float(bench.stack.backward(step))
    named = {name: parameter.grad for name, parameter in bench.trainee.named_raw()}

    running: list[str] = []
    function = MIXOUT.definitions("mixout/mixout.py", ["Mixout", "mixout"])
    linear = MIX_LINEAR.definitions(
        "mixout/mixlinear.py", ["MixLinear"], {"mixout": function.mixout, "init": nn.init}
    ).MixLinear
    mixed = [name for name, module in plain.model.named_modules() if isinstance(module, nn.Linear)]
    assert {name.removesuffix(".weight") for name in bench.stack.regularisers[0].mixed} == set(mixed)  # type: ignore[attr-defined]
    for name in mixed:
        old = plain.model.get_submodule(name)
        new = linear(old.in_features, old.out_features, True, pretrained[f"{name}.weight"], share)
        new.weight, new.bias = old.weight, old.bias
        new.register_forward_pre_hook(lambda _module, _inputs, name=name: running.append(name))
        plain.model.set_submodule(name, new)

    def drawn(self: Tensor, _keep: float) -> Tensor:
        return self.copy_(masks[running[-1]][0])

    monkeypatch.setattr(torch.Tensor, "bernoulli_", drawn)
    plain.model.train()
    logits = plain.model(**step.batch.model_inputs()).logits
    theirs = nn.functional.cross_entropy(logits, step.batch.labels)
    theirs.backward()
    assert len(running) == len(mixed)
    released = gradients(plain.model)
    if variant == "paper":  # theirs leaves out the factor of the formula's derivative
        weights = {f"{name}.weight" for name in mixed}
        released = {n: g / (1 - share) if n in weights and g is not None else g for n, g in released.items()}
    agree(f"mixout {variant}", (theirs, loss), released, named)


def test_the_mixed_weight_of_weight_mixup() -> None:
    generator = torch.Generator().manual_seed(0)
    released = BLO.definitions("blo.py", ["Linear", "blo_linear"])
    theirs = released.blo_linear(24, 40)
    pretrained, task, bias, inputs = (torch.randn(s, generator=generator) for s in ((40, 24), (40, 24), (40,), (8, 24)))
    mixing = WeightMixing(pretrained, rank=1, form="factored", std=0.3, generator=generator)
    weight = nn.Parameter(task.clone())
    mixing.requires_grad_(True)
    with torch.no_grad():
        theirs.linear_layer.weight.copy_(task)
        theirs.linear_layer.bias.copy_(bias)
        theirs.pretrained_layer.weight.copy_(pretrained)
        theirs.alpha[0].copy_(mixing.a1)
        theirs.alpha[1].copy_(mixing.a2)
    out, own = theirs(inputs), nn.functional.linear(inputs, mixing(weight), bias)
    direction = torch.randn(out.shape, generator=generator) / out.numel()
    (out * direction).sum().backward()
    (own * direction).sum().backward()
    found = max(
        float((out - own).detach().abs().max()) / float(out.detach().abs().max()),
        apart(
            {"w": theirs.linear_layer.weight.grad, "a1": theirs.alpha[0].grad, "a2": theirs.alpha[1].grad},
            {"w": weight.grad, "a1": mixing.a1.grad, "a2": mixing.a2.grad},
        ),
    )
    print(f"weight_mixup mixed weight: {found:.1e}")
    assert found < TOLERANCE


class Lower:
    """A lower problem as betty sees one: a small network whose weights depend on attention in its loss."""

    def __init__(self, weights: list[nn.Parameter], loss: Any, optimizer: torch.optim.Optimizer) -> None:
        self.config = SimpleNamespace(darts_alpha=0.01, darts_preconditioned=True)
        self._strategy, self.cur_batch = "default", None
        self.weights, self.loss, self.optimizer = weights, loss, optimizer

    def trainable_parameters(self) -> list[nn.Parameter]:
        return self.weights

    def get_opt_param_group_for_param(self, _parameter: nn.Parameter) -> dict[str, Any]:
        return self.optimizer.param_groups[0]

    def get_opt_state_for_param(self, parameter: nn.Parameter) -> dict[str, Any]:
        return {**self.optimizer.state[parameter], "step": int(self.optimizer.state[parameter]["step"])}

    def training_step_exec(self, _batch: None) -> Tensor:
        loss: Tensor = self.loss(self.weights)
        return loss


def problem() -> tuple[list[nn.Parameter], list[nn.Parameter], Any, torch.optim.Optimizer, list[Tensor]]:
    """Weights, attention, the training loss, an optimiser with moments, and a direction; in float64."""
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    weights = [nn.Parameter(draw(6, 5) * 0.5), nn.Parameter(draw(3, 6) * 0.5)]
    attention = [nn.Parameter(draw(6, 1).sigmoid()), nn.Parameter(draw(1, 5).sigmoid())]
    inputs, targets = draw(16, 5), torch.arange(16) % 3

    def loss(given: list[nn.Parameter]) -> Tensor:
        hidden = torch.tanh(inputs @ ((attention[0] @ attention[1]) * given[0]).T)
        return nn.functional.cross_entropy(hidden @ given[1].T, targets)

    optimizer = torch.optim.AdamW(weights, lr=1e-2, weight_decay=0.0)
    for _ in range(3):
        optimizer.zero_grad()
        loss(weights).backward()
        optimizer.step()
    optimizer.zero_grad()
    for parameter in attention:
        parameter.grad = None
    return weights, attention, loss, optimizer, [draw(6, 5), draw(3, 6)]


def test_the_implicit_term_of_released_weight_mixup() -> None:
    """Direction, finite difference and the weights that are left behind, as betty 0.2.0 has them."""
    weights, attention, loss, optimizer, gradient = problem()
    own_direction = two_level._preconditioned(optimizer, list(weights), gradient)
    start = [weight.detach().clone() for weight in weights]
    own = two_level.mixed_term(lambda: loss(weights), lambda: loss(weights), weights, own_direction, attention, 0.01)
    left = [weight.detach().clone() for weight in weights]

    weights, attention, loss, optimizer, gradient = problem()
    assert all(torch.equal(weight, before) for weight, before in zip(weights, start, strict=True))
    to_vec = {"to_vec": lambda tensors: torch.cat([tensor.reshape(-1) for tensor in tensors])}
    none_is_zero = {"replace_none_with_zero": lambda tensors, _: list(tensors)}
    utilities = BETTY.definitions("betty/hypergradient/utils.py", ["precondition", "get_optimzer_type"], to_vec)
    given = {**to_vec, **none_is_zero, "precondition": utilities.precondition}
    darts = BETTY.definitions("betty/hypergradient/darts.py", ["darts"], given).darts
    upper = SimpleNamespace(trainable_parameters=lambda: attention, _strategy="default")
    theirs = darts([one.clone() for one in gradient], Lower(weights, loss, optimizer), upper, False)
    size = max(float(one.abs().max()) for one in theirs)
    # Theirs comes with the sign with which it is added.
    found = max(float((one + two).abs().max()) for one, two in zip(theirs, own, strict=True)) / size
    displaced = max(float((one - two).detach().abs().max()) for one, two in zip(weights, left, strict=True))
    print(f"weight_mixup implicit term: {found:.1e} of {size:.1e}, displaced weights {displaced:.1e}")
    assert found < TOLERANCE
    assert displaced < TOLERANCE
    assert max(float((one - two).abs().max()) for one, two in zip(left, start, strict=True)) > 1e-3


def test_dps_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradients of six steps in blocks of two: which entries are trained is chosen in every second block."""
    training = TRAINING.model_copy(update={"clip_norm": None})
    options = {"mode": "dense", "variant": "released", "drop": 0.3, "block": 1 / 3}
    # With two classes the rows of the head have equal squares, and rounding would choose among them.
    bench = Bench([("dps", options)], training=training, attention="eager", labels=3)
    plain = Bench(dropout=bench.training.dropout, attention="eager", labels=3)
    operation = DPS.definitions("transformers/DPSDense/grads_ops.py", ["Grads_Ops", "grads_ops"])
    names = {"grads_ops": operation.grads_ops, "init": nn.init}
    linear = DPS.definitions("transformers/DPSDense/moudle.py", ["DPSDense"], names).DPSDense
    for name in [name for name, module in plain.model.named_modules() if isinstance(module, nn.Linear)]:
        old = plain.model.get_submodule(name)
        new = linear(old.in_features, old.out_features, True, p=0.3, max_steps=6, update_ratio=0.34)
        new.weight, new.bias = old.weight, old.bias
        plain.model.set_submodule(name, new)
    found: list[float] = []
    left_out: list[float] = []
    loop, after_clip = bench.loop(), bench.stack.after_clip

    def compared(step: Any, norm: Tensor) -> None:
        after_clip(step, norm)
        plain.model.train().zero_grad()
        with torch.no_grad():
            for name, weight in plain.model.named_parameters():
                weight.copy_(bench.model.get_parameter(name))
        step.task_loss(plain.model(**step.batch.model_inputs()).logits).backward()
        found.append(apart(gradients(plain.model), gradients(bench.model)))
        left_out.append(float((bench.model.bert.encoder.layer[0].output.dense.weight.grad == 0).float().mean()))

    monkeypatch.setattr(bench.stack, "after_clip", compared)
    loop.train()
    print(f"dps dense: {max(found):.1e}")
    assert left_out == pytest.approx([0, 0, 0.3, 0.3, 0, 0], abs=0.01)
    assert max(found) < TOLERANCE
