"""Re-init against the invariants of its card."""

from __future__ import annotations

import pytest
import torch

from regft_core.errors import ModelError
from tests.errors import raises_code
from tests.methods.harness import Bench


def weights(options: dict[str, object] | None = None, **bench: object) -> dict[str, torch.Tensor]:
    stack = [] if options is None else [("re_init", options)]
    return Bench(stack, **bench).trainee.plain_weights()  # type: ignore[arg-type]


@pytest.mark.parametrize("architecture", ["bert", "roberta", "electra", "xlnet", "deberta", "bart", "modernbert"])
def test_everything_below_is_bit_identical(architecture: str) -> None:
    # ModernBERT's masked LM holds the head that its encoder alone lacks.
    model = {"architecture": architecture, "masked_lm": architecture == "modernbert"}
    plain, drawn = weights(**model), weights({"layers": 1}, **model)
    changed = {name for name in plain if not torch.equal(plain[name], drawn[name])}
    top = Bench(architecture=architecture).trainee.sites.layers[-1].name + "."
    pretrained_above = {n for n in changed if "pooler" in n or n.startswith("head.")}
    assert {name for name in changed if name.startswith(top)}
    assert all(name.startswith(top) for name in changed - pretrained_above)
    assert bool(pretrained_above) == (architecture in ("bert", "modernbert"))


def test_drawn_tensors_have_the_deviation_of_the_configuration() -> None:
    drawn = weights({"layers": 2})
    matrices = [v.flatten() for n, v in drawn.items() if n.startswith("bert.encoder.layer.") and v.dim() == 2]
    assert float(torch.cat(matrices).std()) == pytest.approx(0.1, rel=0.01)  # the tiny model's initializer_range
    vectors = {n: v for n, v in drawn.items() if n.startswith("bert.encoder.layer.") and v.dim() == 1}
    assert all(float(v.abs().max()) == 0 for n, v in vectors.items() if n.endswith("bias"))
    assert all(bool((v == 1).all()) for n, v in vectors.items() if n.endswith("weight"))
    assert len(vectors) == 2 * (6 + 2 + 2)


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


def test_the_head_is_that_of_plain_fine_tuning() -> None:
    plain, drawn = weights(), weights({"layers": 2})
    assert torch.equal(plain["classifier.weight"], drawn["classifier.weight"])


def test_a_pooler_that_the_checkpoint_lacks_is_drawn_as_in_every_arm() -> None:
    plain, drawn = weights(masked_lm=True), weights({"layers": 1}, masked_lm=True)
    assert torch.equal(plain["bert.pooler.dense.weight"], drawn["bert.pooler.dense.weight"])


def test_two_seeds_differ_and_more_layers_keep_the_top_one() -> None:
    name = "bert.encoder.layer.1.output.dense.weight"
    assert not torch.equal(weights({"layers": 1})[name], weights({"layers": 1}, seed=1)[name])
    assert torch.equal(weights({"layers": 1})[name], weights({"layers": 2})[name])


def test_only_the_decoder_of_bart_has_top_layers() -> None:
    plain, drawn = weights(architecture="bart"), weights({"layers": 2}, architecture="bart")
    changed = {name for name in plain if not torch.equal(plain[name], drawn[name])}
    assert changed
    assert all(name.startswith("model.decoder.layers.") for name in changed)
    with raises_code(ModelError, "layer-out-of-range", "has 2", "to 2"):
        Bench([("re_init", {"layers": 3})], architecture="bart")


def test_raw_matrices_of_xlnet_are_drawn() -> None:
    plain, drawn = weights(architecture="xlnet"), weights({"layers": 1}, architecture="xlnet")
    for part in ("q", "k", "v", "o", "r", "r_w_bias", "r_r_bias", "r_s_bias"):
        name = f"transformer.layer.1.rel_attn.{part}"
        assert not torch.equal(plain[name], drawn[name])
