"""NoisyTune against the numbers and invariants of its card."""

from __future__ import annotations

import math

import pytest
import torch

from regft_core.methods.noisy_tune import deviations
from tests.methods.harness import Bench, same


def moved(options: dict[str, object], **bench: object) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """(change of every tensor before training, tensors without noise)."""
    plain = Bench(**bench).trainee.plain_weights()  # type: ignore[arg-type]
    noisy = Bench([("noisy_tune", options)], **bench).trainee.plain_weights()  # type: ignore[arg-type]
    names = [name for name, value in plain.items() if value.is_floating_point()]
    return {name: noisy[name].double() - plain[name].double() for name in names}, plain


def test_worked_numbers_of_the_deviation() -> None:
    # Entries 1, 2, 3, 4: the squares of the distances to 2.5 sum to 5, so std is sqrt(5 / 3).
    tensors = {"four": torch.tensor([1.0, 2.0, 3.0, 4.0]), "one": torch.tensor([7.0]), "flat": torch.ones(4)}
    assert deviations(tensors, "tensor") == pytest.approx({"four": math.sqrt(5 / 3), "flat": 0.0})
    # One size for all: 4 entries of variance 5 / 3 and 4 of variance 0.
    assert deviations(tensors, "global") == pytest.approx({"four": math.sqrt(5 / 6), "flat": math.sqrt(5 / 6)})


def test_no_entry_moves_further_than_half_the_intensity() -> None:
    change, plain = moved({"intensity": 0.15})
    for name, difference in change.items():
        bound = 0.075 * float(plain[name].double().std()) if plain[name].numel() > 1 else 0.0
        assert float(difference.abs().max()) <= bound * (1 + 1e-4) + 1e-8, name


def test_tied_tensors_are_perturbed_once() -> None:
    """BART's encoder and decoder look words up in one table, which its state lists under three names."""
    change, plain = moved({"intensity": 0.15}, architecture="bart")
    names = [name for name in plain if name.endswith(("shared.weight", "embed_tokens.weight"))]
    assert len(names) == 3
    one, *others = (change[name] for name in names)
    assert all(torch.equal(one, other) for other in others)
    # Uniform noise of one draw; the sum of two would be larger by the root of 2.
    std = float(plain[names[0]].double().std())
    assert float(one.std()) == pytest.approx(0.15 / math.sqrt(12) * std, rel=0.05)


def test_the_noise_has_the_stated_share_of_the_deviation() -> None:
    change, plain = moved({"intensity": 0.15})
    relative = torch.cat(
        [
            (value / plain[name].double().std()).flatten()
            for name, value in change.items()
            if plain[name].dim() > 1 and float(value.abs().max()) > 0
        ]
    )
    assert float(relative.std()) == pytest.approx(0.15 / math.sqrt(12), rel=0.02)  # 0.0433
    assert float(relative.mean()) == pytest.approx(0.0, abs=3 * 0.0433 / math.sqrt(relative.numel()))


def test_the_paper_spares_the_new_head_and_the_release_does_not() -> None:
    paper, plain = moved({"variant": "paper"})
    released, _ = moved({"variant": "released"})
    assert float(paper["classifier.weight"].abs().max()) == 0
    assert float(released["classifier.weight"].abs().max()) > 0
    # The head's biases are 0: they have no deviation.
    assert float(released["classifier.bias"].abs().max()) == 0
    inside = [name for name in plain if name.startswith("bert.") and name in paper]
    assert all(torch.equal(paper[name], released[name]) for name in inside)


def test_a_head_of_one_output_stays_finite() -> None:
    bench = Bench([("noisy_tune", {"variant": "released"})], kind="regression", pair=True)
    assert all(value.isfinite().all() for value in bench.train().values())


def test_constant_tensors_stay() -> None:
    change, plain = moved({"intensity": 0.2})
    norms = [name for name in plain if name.endswith("LayerNorm.weight")]
    assert norms
    assert all(float(change[name].abs().max()) == 0 for name in norms)


def test_one_size_for_all_moves_constant_tensors_too_and_has_the_same_energy() -> None:
    by_tensor, _ = moved({})
    overall, _ = moved({"scaling": "global"})
    energy = [sum(float(v.square().sum()) for v in change.values()) for change in (by_tensor, overall)]
    assert energy[1] == pytest.approx(energy[0], rel=0.05)
    assert float(overall["bert.embeddings.LayerNorm.weight"].abs().max()) > 0


def test_seeds_differ_and_a_seed_repeats() -> None:
    once, again = Bench([("noisy_tune", {})]), Bench([("noisy_tune", {})])
    assert same(once.trainee.plain_weights(), again.trainee.plain_weights())
    other = Bench([("noisy_tune", {})], seed=1)
    name = "bert.encoder.layer.0.output.dense.weight"
    assert not torch.equal(once.model.get_parameter(name), other.model.get_parameter(name))


def test_the_anchor_of_other_methods_is_without_noise() -> None:
    bench = Bench([("noisy_tune", {}), ("l2_sp", {})])
    plain = Bench().trainee.plain_weights()
    anchor = bench.trainee.anchor("checkpoint")
    assert all(torch.equal(anchor[name], plain[name]) for name in anchor)
    name = "bert.encoder.layer.0.output.dense.weight"
    assert not torch.equal(bench.model.get_parameter(name), anchor[name])


def test_noise_is_scaled_to_layers_that_were_drawn_anew() -> None:
    drawn = Bench([("re_init", {"layers": 1})]).trainee.plain_weights()
    both = Bench([("re_init", {"layers": 1}), ("noisy_tune", {})]).trainee.plain_weights()
    name = "bert.encoder.layer.1.output.dense.weight"
    difference = (both[name] - drawn[name]).abs().max()
    assert 0 < float(difference) <= 0.075 * float(drawn[name].std()) * (1 + 1e-4)
