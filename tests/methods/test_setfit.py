"""SetFit as two phases of the one loop: the encoder is tuned on pairs, then a head is fitted to it."""

from __future__ import annotations

import numpy as np
import torch

from regft_core.methods.contrastive import ContrastiveConfig
from tests.methods.chain import method, runner
from tests.methods.harness import same


def test_the_declared_protocol_is_the_package_s() -> None:
    given = method("setfit")
    pairs = given.phases[0]
    # R = 20 pairs of each kind per row; 8 anchors with two pairs each are 16 pairs in a step.
    assert (pairs.training.epochs, pairs.training.batch_size, pairs.training.learning_rate) == (20, 8, 2e-5)
    assert given.finetune.training.epochs == 0
    assert given.config.model["pooling"] == "unit_mean"
    control = method("setfit_random_pairs")
    assert dict(control.phases[0].regularisers) == {"contrastive": ContrastiveConfig(partners="random")}
    assert control.phases[0].training == pairs.training
    assert control.finetune.regularisers == given.finetune.regularisers


def test_the_head_is_fitted_to_the_encoder_that_the_pairs_left() -> None:
    done = runner(pooling="unit_mean", rows=24).run(method("setfit").phases, steps=6)
    pairs, result = done["contrastive"].handed.weights, done["finetune"].handed.weights
    plain = runner(pooling="mean", rows=24).run(method("linear_probe").phases, steps=6)["finetune"].handed.weights
    head = {"classifier.weight", "classifier.bias"}
    encoder = {name for name in result if name not in head}
    assert same({n: result[n] for n in encoder}, {n: pairs[n] for n in encoder})
    assert any(not torch.equal(result[name], plain[name]) for name in encoder)
    assert not torch.equal(result["classifier.weight"], pairs["classifier.weight"])
    assert np.isfinite(result["classifier.weight"].numpy()).all()
