"""Model soups: the mean of whole models, against the invariants of their card."""

from __future__ import annotations

import pytest
import torch

from regft_core.runs.merge import merge_mean
from tests.methods.chain import NO_STEPS, Outcome, run_phase
from tests.methods.harness import same


def member(index: int, head: bool = False) -> Outcome:
    """Member ``index`` of a repeated phase; ``head``: with a head of its own."""
    label = f"members-{index}"
    streams = {"noise": label, "order": label, "head": f"head/{index}" if head else "head"}
    return run_phase(name="members", streams=streams)


def soup(*members: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return merge_mean([{"weights": one} for one in members])["weights"]


def test_the_mean_of_two_is_the_midpoint() -> None:
    found = soup({"w": torch.tensor([1.0, -2.0])}, {"w": torch.tensor([4.0, 0.0])})
    assert found["w"].tolist() == [2.5, -1.0]


def test_identical_models_are_their_own_soup_and_integers_stay() -> None:
    one = {"w": torch.randn(50, generator=torch.Generator().manual_seed(0)), "positions": torch.arange(7)}
    found = soup(one, one, one)
    assert same(found, one)
    assert found["positions"].dtype == torch.int64


def test_the_order_of_members_does_not_matter() -> None:
    weights = [member(index).weights for index in range(3)]
    forth, back = soup(*weights), soup(*reversed(weights))
    assert max(float((forth[name] - back[name]).abs().max()) for name in forth) == pytest.approx(0.0, abs=1e-7)


def test_heads_over_one_encoder_average_to_the_mean_of_their_logits() -> None:
    plain = run_phase(training=NO_STEPS)
    heads = [dict(plain.weights) for _ in range(2)]
    for index, weights in enumerate(heads):
        generator = torch.Generator().manual_seed(index)
        weights["classifier.weight"] = torch.randn(2, 32, generator=generator)
    inputs = {"input_ids": torch.tensor([plain.encoded.input_ids[0]])}

    def logits(weights: dict[str, torch.Tensor]) -> torch.Tensor:
        plain.model.load_state_dict(weights)
        with torch.no_grad():
            return plain.model(**inputs).logits

    mean = (logits(heads[0]) + logits(heads[1])) / 2
    assert torch.allclose(logits(soup(*heads)), mean, atol=1e-6)


def test_members_of_a_uniform_soup_share_the_drawn_head_and_others_do_not() -> None:
    def start(index: int, head: bool) -> torch.Tensor:
        label = f"members-{index}"
        streams = {"noise": label, "order": label, "head": f"head/{index}" if head else "head"}
        return run_phase(name="members", streams=streams, training=NO_STEPS).weights["classifier.weight"]

    assert torch.equal(start(0, head=False), start(1, head=False))
    assert not torch.equal(start(0, head=True), start(1, head=True))
    assert not same(member(0).weights, member(1).weights)


def test_the_last_phase_without_steps_gives_the_soup_itself() -> None:
    averaged = soup(member(0).weights, member(1).weights)
    assert same(run_phase(start=averaged, training=NO_STEPS).weights, averaged)
