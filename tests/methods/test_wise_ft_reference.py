"""WiSE-FT: interpolation of weights, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regft_core.hooks.base import Handed
from regft_core.methods.wise_ft import WiseFt, WiseFtConfig
from regft_core.schema.method import Phase
from regft_core.schema.methods import DataConfig
from regft_core.schema.training import TrainingConfig
from tests.methods.harness import Bench, same


def floats(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in weights.items() if value.is_floating_point()}


@pytest.mark.parametrize("alpha", [0.25, 0.5, 0.9])
def test_every_tensor_lies_between_start_and_end(alpha: float) -> None:
    start, end = floats(Bench().trainee.plain_weights()), floats(Bench().train())
    found = Bench([("wise_ft", {"alpha": alpha})]).train()
    for name in end:
        assert torch.allclose(found[name], (1 - alpha) * start[name] + alpha * end[name], atol=1e-7), name


def test_half_way_is_the_midpoint() -> None:
    bench = Bench([("wise_ft", {})])
    with torch.no_grad():
        bench.model.classifier.bias.copy_(bench.trainee.anchor("start")["classifier.bias"] + torch.tensor([4.0, -2.0]))
    before = bench.trainee.anchor("start")["classifier.bias"].clone()
    bench.stack.finish(bench.trainee)
    assert torch.equal(bench.model.classifier.bias.detach(), before + torch.tensor([2.0, -1.0]))


def test_the_head_may_stay_as_it_was_trained() -> None:
    end = Bench().train()
    found = Bench([("wise_ft", {"head": "trained"})]).train()
    assert torch.equal(found["classifier.weight"], end["classifier.weight"])
    assert not torch.equal(found["bert.pooler.dense.weight"], end["bert.pooler.dense.weight"])


def test_start_is_where_the_phase_began() -> None:
    start = {name: value + 0.1 for name, value in floats(Bench().trainee.plain_weights()).items()}
    end = Bench(start=start).train()
    found = Bench([("wise_ft", {"alpha": 0.5})], start=start).train()
    name = "bert.encoder.layer.0.output.dense.weight"
    assert torch.allclose(found[name], (start[name] + end[name]) / 2, atol=1e-7)


def test_training_itself_is_plain_fine_tuning() -> None:
    whole, plain = Bench([("wise_ft", {})]).loop().train(), Bench().loop().train()
    assert whole.curve == plain.curve
    assert same(Bench([("wise_ft", {"alpha": 1.0})]).train(), Bench().train())


def test_frozen_tensors_are_not_touched_and_a_view_is_interpolated_behind() -> None:
    stack: list[tuple[str, dict[str, Any]]] = [("wise_ft", {}), ("top_k_layers", {"layers": 1})]
    bench = Bench(stack)
    before = bench.trainee.plain_weights()["bert.encoder.layer.0.output.dense.weight"]
    assert torch.equal(bench.train()["bert.encoder.layer.0.output.dense.weight"], before)
    mixed = Bench([("wise_ft", {}), ("weight_mixup", {"attention": "random"})])
    mixed.loop().train()
    name = "bert.encoder.layer.0.output.dense.weight"
    raw = mixed.trainee.raw(name).detach().clone()
    alone = Bench([("weight_mixup", {"attention": "random"})])
    alone.loop().train()
    middle = (alone.trainee.raw(name).detach() + mixed.trainee.anchor("start")[name]) / 2
    assert torch.allclose(raw, middle, atol=1e-7)


def test_an_earlier_phase_may_be_the_start_of_a_phase_without_steps() -> None:
    first = {name: value + 1 for name, value in floats(Bench().trainee.plain_weights()).items()}
    end, handed = Bench().train(), {"head": Handed("key", {}, first)}
    bench = Bench([("wise_ft", {"alpha": 0.25, "start": "head"})], handed=handed, start=end)
    bench.stack.finish(bench.trainee)  # mixed before, and not a second time
    for name, value in floats(bench.trainee.plain_weights()).items():
        assert torch.allclose(value, 0.75 * first[name] + 0.25 * end[name], atol=1e-6), name
    assert WiseFt.declare(WiseFtConfig(start="head")).needs == {"head": "weights"}
    assert "without steps" in WiseFt.check_options(WiseFtConfig(start="head"), phase(2))[0]
    for alpha in (0.0, 0.5):  # 0 is the start itself, which is an answer there
        assert WiseFt.check_options(WiseFtConfig(alpha=alpha, start="head"), phase(0)) == []


def phase(epochs: int) -> Phase:
    training = TrainingConfig().model_copy(update={"epochs": epochs})
    return Phase("finetune", DataConfig(), "checkpoint", None, None, (), training, {})
