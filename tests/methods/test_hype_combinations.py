"""HyPe's combinations as they are shipped: without one ingredient the other is left (card of table 16)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regft_core.methods.r_drop import RDrop
from regft_core.schema import DropoutConfig
from tests.methods.chain import method
from tests.methods.harness import Bench, Listed, same

NO_HIDDEN = DropoutConfig(hidden=0.0)
#: Large enough to be seen in the weights of a tiny encoder.
SCALE = 1e-2


def shipped(name: str, **hype: Any) -> list[Listed]:
    """The regularisers of a YAML, with other options of HyPe."""
    listed = [(r, options.model_dump(exclude_unset=True)) for r, options in method(name).finetune.regularisers]
    return [(r, {**options, **hype} if r == "hype" else options) for r, options in listed]


@pytest.mark.parametrize("name", ["hype_n_r_drop", "hype_n_r3f", "hype_n_noisy_tune"])
def test_without_noise_the_partner_is_left(name: str) -> None:
    """Without hidden dropout, which HyPe switches off."""
    partner = [entry for entry in shipped(name) if entry[0] != "hype"]
    assert len(partner) == 1
    alone = Bench(partner, dropout=NO_HIDDEN).train()
    assert same(Bench(shipped(name, scale=0.0)).train(), alone)
    assert not same(Bench(shipped(name, scale=SCALE)).train(), alone)


@pytest.mark.parametrize("partner", [("noisy_tune", {"intensity": 0.0}), ("r3f", {"weight": 0.0})])
def test_without_the_partner_hype_is_left(partner: Listed) -> None:
    hype: Listed = ("hype", {"scale": SCALE})
    assert same(Bench([hype, partner]).train(), Bench([hype]).train())


def test_r_drop_without_its_divergence_is_the_task_loss_of_two_noises() -> None:
    bench = Bench(shipped("hype_n_r_drop_no_kl", scale=SCALE))
    total = bench.stack.backward(bench.step())
    alone = Bench([("hype", {"scale": SCALE})]).step()
    first, second = alone.forward(), alone.forward("r_drop.second", draw="r_drop.second")
    assert not torch.equal(first, second)
    expected = alone.task_loss(first) + alone.task_loss(second)
    assert float(total) == pytest.approx(float(expected.detach()), rel=1e-6)


def test_the_passes_of_r_drop_draw_noise_of_their_own_and_its_size_decides() -> None:
    """With attention dropout off as well, the divergence is of the order of the squared noise: inert at 1e-5."""
    still = DropoutConfig(hidden=0.0, attention=0.0)
    found = {}
    for scale in (1e-5, SCALE):
        bench = Bench(shipped("hype_n_r_drop", scale=scale), dropout=still)
        assert any(isinstance(regulariser, RDrop) for regulariser in bench.stack.regularisers)
        bench.stack.backward(bench.step())
        ((_, _, found[scale]),) = bench.stack.diagnostics().values
    assert 0 <= abs(found[1e-5]) < 1e-7
    assert found[SCALE] > 1e-6
