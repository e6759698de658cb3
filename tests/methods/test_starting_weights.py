"""Starting weights: Re-init and NoisyTune against the numbers and invariants of their cards."""

from __future__ import annotations

import math

import pytest
import torch

from regft_core.methods.noisy_tune import deviations
from tests.methods.harness import Bench, changed

# ------------------------------------------------------------------------------------------------------------- re init


def weights(options: dict[str, object] | None = None, **bench: object) -> dict[str, torch.Tensor]:
    stack = [] if options is None else [("re_init", options)]
    return Bench(stack, **bench).trainee.plain_weights()  # type: ignore[arg-type]


@pytest.mark.parametrize("architecture", ["bert", "xlnet", "deberta", "bart", "modernbert"])
def test_everything_below_is_bit_identical(architecture: str) -> None:
    # ModernBERT's masked LM holds the head that its encoder alone lacks.
    model = {"architecture": architecture, "masked_lm": architecture == "modernbert"}
    plain, drawn = weights(**model), weights({"layers": 1}, **model)
    moved = changed(plain, drawn)
    top = Bench(architecture=architecture).trainee.sites.layers[-1].name + "."
    pretrained_above = {n for n in moved if "pooler" in n or n.startswith("head.")}
    # XLNet's raw matrices too; a tiny model's biases and norms have the values that are drawn for them.
    assert {name for name, value in plain.items() if name.startswith(top) and value.dim() > 1} <= moved
    assert all(name.startswith(top) for name in moved - pretrained_above)
    assert bool(pretrained_above) == (architecture in ("bert", "modernbert"))


def test_drawn_tensors_have_the_deviation_of_the_configuration() -> None:
    drawn = weights({"layers": 2})
    matrices = [v.flatten() for n, v in drawn.items() if n.startswith("bert.encoder.layer.") and v.dim() == 2]
    assert float(torch.cat(matrices).std()) == pytest.approx(0.1, rel=0.01)  # the tiny model's initializer_range
    vectors = {n: v for n, v in drawn.items() if n.startswith("bert.encoder.layer.") and v.dim() == 1}
    assert all(float(v.abs().max()) == 0 for n, v in vectors.items() if n.endswith("bias"))
    assert all(bool((v == 1).all()) for n, v in vectors.items() if n.endswith("weight"))
    assert len(vectors) == 2 * (6 + 2 + 2)


def test_drawn_norms_only_scale_to_one() -> None:
    trainee = Bench([("re_init", {"layers": 1})], architecture="gemma3_text").trainee
    norm = trainee.sites.layers[-1].module.input_layernorm
    assert float(norm(torch.randn(3, 32)).detach().square().mean()) == pytest.approx(1.0, abs=1e-3)


def test_the_pooler_goes_with_the_layers_or_alone_or_not_at_all() -> None:
    plain = weights()
    names = ("bert.pooler.dense.weight", "bert.encoder.layer.1.output.dense.weight")
    for options, expected in (
        ({"layers": 1}, [True, True]),
        ({"layers": 1, "pooler": False}, [False, True]),
        ({"layers": 0}, [True, False]),
    ):
        drawn = weights(options)
        assert [not torch.equal(plain[name], drawn[name]) for name in names] == expected
    assert float(weights({"layers": 0})["bert.pooler.dense.bias"].abs().max()) == 0


def test_a_pooler_that_the_checkpoint_lacks_is_drawn_as_in_every_arm() -> None:
    plain, drawn = weights(masked_lm=True), weights({"layers": 1}, masked_lm=True)
    assert torch.equal(plain["bert.pooler.dense.weight"], drawn["bert.pooler.dense.weight"])


# ---------------------------------------------------------------------------------------------------------- noisy tune


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


def test_the_noise_has_the_stated_share_of_the_deviation_and_no_more_than_half_the_intensity() -> None:
    change, plain = moved({"intensity": 0.15})
    for name, difference in change.items():
        bound = 0.075 * float(plain[name].double().std()) if plain[name].numel() > 1 else 0.0
        assert float(difference.abs().max()) <= bound * (1 + 1e-4) + 1e-8, name
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


def test_noise_is_scaled_to_layers_that_were_drawn_anew() -> None:
    drawn = Bench([("re_init", {"layers": 1})]).trainee.plain_weights()
    both = Bench([("re_init", {"layers": 1}), ("noisy_tune", {})]).trainee.plain_weights()
    name = "bert.encoder.layer.1.output.dense.weight"
    difference = (both[name] - drawn[name]).abs().max()
    assert 0 < float(difference) <= 0.075 * float(drawn[name].std()) * (1 + 1e-4)
