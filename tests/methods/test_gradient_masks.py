"""Masked gradients: Child-Tuning and the Fisher mask against gradients taken one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from regft_core.methods.fisher import Fisher, FisherConfig
from regft_core.training.step import FitData
from regft_core.training.trainee import Trainee
from tests.methods.harness import STILL, TRAINING, Bench, close, gradients, masks_of, same

NO_DECAY = TRAINING.model_copy(update={"weight_decay": 0.0})


def masked_gradients(options: dict[str, Any], seed: int = 0) -> dict[str, torch.Tensor]:
    """What is left of a gradient of ones."""
    bench = Bench([("child_tuning", options)], seed=seed)
    for _, parameter in bench.trainee.named_trainable():
        parameter.grad = torch.ones_like(parameter)
    bench.stack.after_clip(bench.step(), torch.ones(()))
    return gradients(bench)


@pytest.mark.parametrize("share", [0.2, 0.3, 0.4])
def test_the_kept_share_is_rescaled_and_covers_everything(share: float) -> None:
    found = masked_gradients({"share": share})
    values = torch.cat([gradient.flatten() for gradient in found.values()])
    assert values.unique().tolist() == pytest.approx([0.0, 1 / share])
    assert float((values == 0).double().mean()) == pytest.approx(1 - share, abs=0.01)
    assert all((found[name] == 0).any() for name in ("classifier.weight", "bert.embeddings.word_embeddings.weight"))


def test_masks_depend_on_seed_and_step_but_not_on_the_order_of_the_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    one = masked_gradients({"share": 0.3})
    assert same(one, masked_gradients({"share": 0.3}))
    assert not same(one, masked_gradients({"share": 0.3}, seed=1))
    original = Trainee.named_trainable
    monkeypatch.setattr(Trainee, "named_trainable", lambda self: reversed(list(original(self))))
    assert same(one, masked_gradients({"share": 0.3}))


def test_without_decay_unselected_entries_never_move() -> None:
    """And everything that has no mask does."""
    handed = masks_of(Bench(), 0.3)
    bench = Bench([("child_tuning", {"mask": "fisher"})], handed=handed, training=NO_DECAY)
    before = {name: parameter.detach().clone() for name, parameter in bench.trainee.named_raw()}
    after = bench.train()
    masks = handed["fisher"].of("fisher")
    for name, start in before.items():
        moved, mask = after[name] != start, masks.get(f"mask/{name}")
        assert mask is None or not moved[~mask].any()
        if mask is not None and name.endswith("value.weight"):
            assert moved[mask].all()
    for name in ("classifier.weight", "bert.pooler.dense.weight", "bert.embeddings.LayerNorm.weight"):
        assert not torch.equal(after[name], before[name])


def test_weight_decay_still_shrinks_unselected_entries() -> None:
    handed = masks_of(Bench(), 0.3)
    decayed = TRAINING.model_copy(update={"weight_decay": 0.5, "warmup_ratio": 0.0, "max_steps": 1})
    bench = Bench([("child_tuning", {"mask": "fisher"})], handed=handed, training=decayed)
    name = "bert.encoder.layer.0.intermediate.dense.weight"
    before, mask = bench.trainee.raw(name).detach().clone(), handed["fisher"].of("fisher")[f"mask/{name}"]
    after = bench.train()[name]
    assert after[~mask].numpy() == pytest.approx((before[~mask] * (1 - 1e-3 * 0.5)).numpy(), rel=1e-6)


def test_the_fixed_mask_is_drawn_once() -> None:
    options = {"mask": "fixed", "share": 0.3, "scope": "layers"}
    bench = Bench([("child_tuning", options)], training=NO_DECAY)
    before = {name: parameter.detach().clone() for name, parameter in bench.trainee.named_raw()}
    after = bench.train()
    name = "bert.encoder.layer.1.output.dense.weight"
    assert float((after[name] != before[name]).double().mean()) == pytest.approx(0.3, abs=0.03)
    embedding = "bert.embeddings.position_embeddings.weight"
    used = (after[embedding] != before[embedding]).any(1)
    assert (after[embedding] != before[embedding])[used].all()
    assert not same(after, Bench([("child_tuning", options)], training=NO_DECAY, seed=1).train())


def fitted(share: float = 0.3, variant: str = "paper", **more: Any) -> Bench:
    return Bench([("fisher", {"share": share, "variant": variant})], phase="fisher", final=False, **more)


def information(bench: Bench) -> dict[str, torch.Tensor]:
    return bench.method.information(bench.trainee, FitData(bench.trainee, bench.setting, bench.stream))


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
                scale = 1.0 if limit is None else min(1.0, limit / (float(parameter.grad.norm()) + 1e-6))
                found[name] = found.get(name, 0) + (parameter.grad * scale) ** 2 / len(groups)
    bench.model.zero_grad()
    return found


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_paper_squares_the_gradient_of_every_example_without_dropout(kind: str) -> None:
    bench = fitted(kind=kind)  # the checkpoint's dropout is 0.1, which must not act
    expected = by_hand(bench, [[row] for row in range(12)], None)
    assert close(information(bench), expected, rtol=1e-4, atol=1e-10)


@pytest.mark.parametrize("limit", [None, 1.0, 0.01])
def test_released_squares_clipped_gradients_of_mini_batches(limit: float | None) -> None:
    training = TRAINING.model_copy(update={"clip_norm": limit, "batch_size": 5})
    bench = fitted(variant="released", training=training, dropout=STILL)
    expected = by_hand(bench, [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]], limit)
    assert close(information(bench), expected, rtol=1e-4, atol=1e-12)


def test_released_measures_with_dropout_on() -> None:
    on, off = fitted(variant="released"), fitted(variant="released", dropout=STILL)
    assert not same(information(on), information(off))
    assert same(information(on), information(fitted(variant="released")))


@pytest.mark.parametrize("share", [0.1, 0.3, 1.0])
def test_the_mask_keeps_the_largest_share_over_all_tensors_together(share: float) -> None:
    bench = fitted(share)
    values = information(bench)
    everything = np.concatenate([value.double().numpy().ravel() for value in values.values()])
    threshold, masks = np.quantile(everything, 1 - share), bench.stack.hand(bench.trainee)
    assert set(masks) == {f"fisher.mask/{name}" for name in values}
    assert all(torch.equal(masks[f"fisher.mask/{name}"], value.double() >= threshold) for name, value in values.items())
    kept = sum(int(mask.sum()) for mask in masks.values())
    assert kept / everything.size == pytest.approx(share, abs=1e-3)
    logged = {name: value for name, _, value in bench.stack.diagnostics().values}
    assert logged["fisher.kept_share"] == pytest.approx(kept / everything.size)


def test_the_loss_is_that_of_the_phase() -> None:
    smoothed = Bench([("fisher", {}), ("label_smoothing", {"smoothing": 0.9})], phase="fisher", final=False)
    assert not same(smoothed.stack.hand(smoothed.trainee), fitted().stack.hand(fitted().trainee))


def test_drawn_scores_choose_as_many_entries_and_others() -> None:
    """The control of Child-Tuning-D: the same phase, share and tensors, and scores that say nothing of the task."""
    one, other = (
        Bench([("fisher", {"share": 0.3, "scores": scores})], phase="fisher", final=False).method.masks
        for scores in ("information", "random")
    )
    assert one.keys() == other.keys()
    kept = [sum(int(mask.sum()) for mask in masks.values()) for masks in (one, other)]
    assert kept[1] == pytest.approx(kept[0], rel=1e-3)
    assert sum(int((one[name] & other[name]).sum()) for name in one) == pytest.approx(0.3 * kept[0], rel=0.1)
    assert Fisher.declare(FisherConfig(scores="random")).description.fit_cost.ratio == 0
