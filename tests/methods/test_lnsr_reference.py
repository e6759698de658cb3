"""LNSR against a computation by hand and the invariants of its formula."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.hooks.declare import MainPass
from regft_core.methods.lnsr import NOISED, Lnsr, movement
from regft_core.schema import DropoutConfig
from regft_core.training.perturbation import token_draws
from tests.methods.harness import Bench
from tests.tiny import ARCHITECTURES

STILL = DropoutConfig(hidden=0.0, attention=0.0)


def lnsr(bench: Bench) -> Lnsr:
    found = next(r for r in bench.stack.regularisers if r.name == "lnsr")
    assert isinstance(found, Lnsr)
    return found


def term(bench: Bench) -> tuple[Tensor, Any]:
    """R of the first batch, and its step."""
    step = bench.step()
    logits, hidden = step.forward(hidden=True)
    return lnsr(bench).terms(step, MainPass(logits, hidden, logits.sum())), step


def value(**options: Any) -> float:
    more = {name: options.pop(name) for name in ("architecture", "dropout", "pair") if name in options}
    return float(term(Bench([("lnsr", options)], **more))[0].detach())


def test_movement_is_the_mean_squared_distance_of_real_tokens() -> None:
    clean = torch.tensor([[[1.0, 2.0], [0.0, 0.0]], [[1.0, 1.0], [5.0, 5.0]]])
    noised = torch.tensor([[[4.0, 6.0], [1.0, 0.0]], [[1.0, 2.0], [9.0, 9.0]]])
    # Distances 25, 1 and 1; the last token is padding.
    assert float(movement(clean, noised, torch.tensor([[1, 1], [1, 0]]))) == pytest.approx(9.0)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_without_noise_nothing_moves_although_dropout_is_on(architecture: str) -> None:
    assert value(scale=0.0, architecture=architecture) == 0.0
    assert value(scale=0.01, architecture=architecture) > 0.0


def test_the_term_is_quadratic_in_the_noise_and_linear_in_its_weight() -> None:
    once = value(scale=1e-3)
    assert value(scale=2e-3) / once == pytest.approx(4.0, rel=0.02)
    assert value(scale=1e-3, weight=3.0) / once == pytest.approx(3.0, rel=1e-4)


@pytest.mark.parametrize("layer", [0, 1])
def test_value_and_gradient_are_those_of_the_layers_above_alone(layer: int) -> None:
    """The branches share everything below the noise: computed by hand from there on."""
    bench = Bench([("lnsr", {"layer": layer, "scale": 0.05})], dropout=STILL)
    found, step = term(bench)
    found.backward()
    gradients = {name: p.grad.clone() for name, p in bench.trainee.named_raw() if p.grad is not None}
    bench.model.zero_grad(set_to_none=True)

    mask = step.batch.attention_mask
    noise = 0.05 * token_draws(mask.bool(), 32, step.batch.real_tokens, "normal", step.generator("lnsr.noise"))
    bert = bench.model.bert
    states: list[Tensor] = []
    handle = bert.encoder.layer[layer].register_forward_pre_hook(lambda _module, args: states.append(args[0]))
    bench.model(**step.batch.model_inputs())
    handle.remove()
    blocked = torch.zeros(mask.shape[0], 1, 1, mask.shape[1]).masked_fill(mask[:, None, None] == 0, -1e9)
    clean, noised, outputs = states[0], states[0] + noise, []
    for module in bert.encoder.layer[layer:]:
        clean, noised = (module(state, blocked) for state in (clean, noised))
        outputs.append(((noised - clean).square().sum(-1) * mask).sum() / mask.sum())
    by_hand = torch.stack(outputs).mean()
    assert float(found.detach()) == pytest.approx(float(by_hand.detach()), rel=1e-4)
    by_hand.backward()
    for name, gradient in gradients.items():
        other = bench.trainee.raw(name).grad
        expected = torch.zeros_like(gradient) if other is None else other
        assert torch.allclose(gradient, expected, atol=1e-5, rtol=1e-3), name


def test_only_layers_from_the_noise_on_are_compared() -> None:
    bench = Bench([("lnsr", {"layer": 1, "scale": 0.05})], dropout=STILL)
    found, _ = term(bench)
    assert not lnsr(bench).states
    found.backward()
    norms = {name: float(p.grad.norm()) for name, p in bench.trainee.named_raw() if p.grad is not None}
    assert norms["bert.encoder.layer.1.output.dense.weight"] > 0
    assert norms.get("classifier.weight", 0.0) == 0.0  # the head is no layer
    assert value(layer=-1, scale=0.05, dropout=STILL) == pytest.approx(float(found.detach()))


def test_noise_of_hype_is_shared_by_both_passes() -> None:
    hype = ("hype", {"scale": 0.1})
    assert float(term(Bench([("lnsr", {"scale": 0.0}), hype]))[0].detach()) == 0.0


def test_padding_gets_no_noise() -> None:
    bench = Bench([("lnsr", {"scale": 0.5})], dropout=STILL)
    inputs: dict[str, list[Tensor]] = {}

    def keep(tensor: Tensor, site: Any) -> Tensor:
        assert bench.trainee.current is not None
        inputs.setdefault(bench.trainee.current.name, []).append(tensor.detach())
        return tensor

    bench.trainee.hooks.on_layer_input(keep, [0])
    _, step = term(bench)
    added = inputs[NOISED][0] - inputs["main"][0]
    mask = step.batch.attention_mask.bool()
    assert not mask.all()
    assert not added[~mask].any()
    assert added[mask].std().item() == pytest.approx(0.5, rel=0.1)
