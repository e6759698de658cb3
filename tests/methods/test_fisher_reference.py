"""The Fisher mask against gradients taken one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from regft_core.methods.fisher import Fisher, FisherConfig
from regft_core.schema import DropoutConfig
from regft_core.training.fitting import FitData
from tests.methods.chain import NO_STEPS, run_phase
from tests.methods.harness import TRAINING, Bench, same

NO_DROPOUT = DropoutConfig(hidden=0.0, attention=0.0)


def fitted(share: float = 0.3, variant: str = "paper", **more: Any) -> Bench:
    return Bench([("fisher", {"share": share, "variant": variant})], phase="fisher", final=False, **more)


def information(bench: Bench) -> dict[str, torch.Tensor]:
    data = FitData(bench.trainee, bench.setting, bench.stream)
    regulariser = bench.stack.regularisers[0]
    assert isinstance(regulariser, Fisher)
    return regulariser.information(bench.trainee, data)


def by_hand(bench: Bench, groups: list[list[int]], limit: float | None) -> dict[str, torch.Tensor]:
    """Mean over ``groups`` of rows of the squared gradient of their mean loss, clipped tensor by tensor."""
    bench.model.eval()
    found: dict[str, torch.Tensor] = {}
    for rows in groups:
        batch = bench.stream.collate(rows)
        logits = bench.model(**batch.model_inputs()).logits
        if bench.setting.kind == "regression":
            loss = ((logits[:, 0] - batch.labels) ** 2).mean()
        else:
            loss = -torch.log_softmax(logits, -1)[torch.arange(len(rows)), batch.labels].mean()
        bench.model.zero_grad()
        loss.backward()
        for name, parameter in bench.model.named_parameters():
            if ".layer." in name:
                assert parameter.grad is not None
                scale = 1.0 if limit is None else min(1.0, limit / (float(parameter.grad.norm()) + 1e-6))
                found[name] = found.get(name, 0) + (parameter.grad * scale) ** 2 / len(groups)
    bench.model.zero_grad()
    return found


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_paper_squares_the_gradient_of_every_example_without_dropout(kind: str) -> None:
    bench = fitted(kind=kind)  # the checkpoint's dropout is 0.1, which must not act
    expected = by_hand(bench, [[row] for row in range(12)], None)
    found = information(bench)
    assert set(found) == set(expected)
    for name, value in found.items():
        assert torch.allclose(value, expected[name], rtol=1e-4, atol=1e-10), name


@pytest.mark.parametrize("limit", [None, 1.0, 0.01])
def test_released_squares_clipped_gradients_of_mini_batches(limit: float | None) -> None:
    training = TRAINING.model_copy(update={"clip_norm": limit, "batch_size": 5})
    bench = fitted(variant="released", training=training, dropout=NO_DROPOUT)
    expected = by_hand(bench, [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]], limit)
    for name, value in information(bench).items():
        assert torch.allclose(value, expected[name], rtol=1e-4, atol=1e-12), name


def test_released_measures_with_dropout_on() -> None:
    on, off = fitted(variant="released"), fitted(variant="released", dropout=NO_DROPOUT)
    assert not same(information(on), information(off))
    assert same(information(on), information(fitted(variant="released")))


def test_the_order_of_the_examples_in_a_batch_does_not_matter() -> None:
    bench = fitted(variant="released", dropout=NO_DROPOUT)
    one = information(bench)
    size = TRAINING.batch_size
    bench.stream.rows = [row for start in range(0, 12, size) for row in reversed(range(start, start + size))]
    for name, value in information(bench).items():
        assert torch.allclose(value, one[name], rtol=1e-3, atol=1e-9), name


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3, 1.0])
def test_the_mask_keeps_the_largest_share_over_all_tensors_together(share: float) -> None:
    bench = fitted(share)
    values = information(bench)
    everything = np.concatenate([value.double().numpy().ravel() for value in values.values()])
    threshold = np.quantile(everything, 1 - share)
    masks = bench.stack.hand(bench.trainee)
    assert set(masks) == {f"fisher.mask/{name}" for name in values}
    kept = 0
    for name, value in values.items():
        mask = masks[f"fisher.mask/{name}"]
        assert torch.equal(mask, value.double() >= threshold)
        kept += int(mask.sum())
    assert kept / everything.size == pytest.approx(share, abs=1e-3)
    shares = [float(mask.double().mean()) for mask in masks.values()]
    # One threshold for all: tensors differ in what they keep.
    assert share == 1.0 or max(shares) - min(shares) > 0.2
    logged = {name: value for name, _, value in bench.stack.diagnostics().values}
    assert logged["fisher.kept_share"] == pytest.approx(kept / everything.size)


def test_measuring_changes_no_weight_and_leaves_the_mode() -> None:
    plain, bench = Bench(phase="fisher", final=False), fitted()
    assert same(plain.trainee.plain_weights(), bench.trainee.plain_weights())
    assert bench.model.training == plain.model.training
    assert all(parameter.grad is None for parameter in bench.model.parameters())


def test_it_measures_under_the_head_that_fine_tuning_starts_from() -> None:
    measuring = run_phase([("fisher", {})], name="fisher", training=NO_STEPS)
    assert same(measuring.weights, run_phase(training=NO_STEPS).weights)


def test_frozen_tensors_get_no_mask() -> None:
    bench = fitted()
    bench.trainee.raw("bert.encoder.layer.0.output.dense.weight").requires_grad_(False)
    assert "bert.encoder.layer.0.output.dense.weight" not in information(bench)


def test_drawn_scores_choose_as_many_entries_and_others() -> None:
    """The control of Child-Tuning-D: the same phase, share and tensors, and scores that say nothing of the task."""
    chosen = []
    for scores in ("information", "random"):
        bench = Bench([("fisher", {"share": 0.3, "scores": scores})], phase="fisher", final=False)
        regulariser = bench.stack.regularisers[0]
        assert isinstance(regulariser, Fisher)
        regulariser.fit(bench.trainee, FitData(bench.trainee, bench.setting, bench.stream))
        chosen.append(regulariser.masks)
    one, other = chosen
    assert one.keys() == other.keys()
    kept = [sum(int(mask.sum()) for mask in masks.values()) for masks in chosen]
    assert kept[1] == pytest.approx(kept[0], rel=1e-3)
    both = sum(int((one[name] & other[name]).sum()) for name in one)
    assert both == pytest.approx(0.3 * kept[0], rel=0.1)
    assert Fisher.declare(FisherConfig(scores="random")).says.fit_cost.ratio == 0
