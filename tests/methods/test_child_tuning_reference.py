"""Child-Tuning against its formulas and the invariants that follow from them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regft_core.hooks.declare import Handed
from tests.methods.harness import TRAINING, Bench, same
from tests.methods.interruption import resumed

NO_DECAY = TRAINING.model_copy(update={"weight_decay": 0.0})


def masks_of(bench: Bench, share: float) -> dict[str, Handed]:
    """A mask over the layers that keeps about ``share``, as a phase called fisher would hand it over."""
    generator = torch.Generator().manual_seed(5)
    state = {
        f"fisher.mask/{name}": torch.rand(parameter.shape, generator=generator) < share
        for name, parameter in bench.trainee.named_raw()
        if ".layer." in name
    }
    return {"fisher": Handed("key", state)}


def masked_gradients(options: dict[str, Any], seed: int = 0, **more: Any) -> dict[str, torch.Tensor]:
    """What is left of a gradient of ones."""
    bench = Bench([("child_tuning", options)], seed=seed, **more)
    for _, parameter in bench.trainee.named_trainable():
        parameter.grad = torch.ones_like(parameter)
    bench.stack.after_clip(bench.step(), torch.ones(()))
    return {name: parameter.grad for name, parameter in bench.trainee.named_trainable() if parameter.grad is not None}


@pytest.mark.parametrize("share", [0.2, 0.3, 0.4])
def test_the_kept_share_is_rescaled_and_covers_everything(share: float) -> None:
    found = masked_gradients({"share": share})
    values = torch.cat([gradient.flatten() for gradient in found.values()])
    assert values.unique().tolist() == pytest.approx([0.0, 1 / share])
    assert float((values == 0).double().mean()) == pytest.approx(1 - share, abs=0.01)
    head, word = found["classifier.weight"], found["bert.embeddings.word_embeddings.weight"]
    assert (head == 0).any()
    assert (word == 0).any()


def test_the_mean_over_many_masks_is_the_gradient() -> None:
    bench = Bench([("child_tuning", {"share": 0.4})])
    parameter = bench.trainee.raw("bert.pooler.dense.weight")
    gradient = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    total = torch.zeros_like(gradient)
    for index in range(400):
        parameter.grad = gradient.clone()
        bench.stack.after_clip(bench.step(index), torch.ones(()))
        assert parameter.grad is not None
        total += parameter.grad
    # sd of one draw is |g| sqrt((1 - p) / p).
    error = (total / 400 - gradient).abs() / (gradient.abs() * (0.6 / 0.4) ** 0.5 / 400**0.5)
    assert float(error.max()) < 5


def test_masks_depend_on_seed_and_step_but_not_on_the_order_of_the_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    one = masked_gradients({"share": 0.3})
    assert same(one, masked_gradients({"share": 0.3}))
    assert not same(one, masked_gradients({"share": 0.3}, seed=1))
    from regft_core.training.trainee import Trainee

    original = Trainee.named_trainable
    monkeypatch.setattr(Trainee, "named_trainable", lambda self: reversed(list(original(self))))
    assert same(one, masked_gradients({"share": 0.3}))


def test_share_one_is_plain_fine_tuning_and_so_is_a_mask_of_ones() -> None:
    plain = Bench().train()
    assert same(plain, Bench([("child_tuning", {"share": 1.0})]).train())
    bench = Bench()
    everything = masks_of(bench, 2.0)
    assert same(plain, Bench([("child_tuning", {"mask": "fisher"})], handed=everything).train())


def test_without_decay_unselected_entries_never_move() -> None:
    """And everything that has no mask does."""
    handed = masks_of(Bench(), 0.3)
    bench = Bench([("child_tuning", {"mask": "fisher"})], handed=handed, training=NO_DECAY)
    before = {name: parameter.detach().clone() for name, parameter in bench.trainee.named_raw()}
    after = bench.train()
    masks = handed["fisher"].of("fisher")
    for name, start in before.items():
        moved = after[name] != start
        if f"mask/{name}" in masks:
            mask = masks[f"mask/{name}"]
            assert not moved[~mask].any()
            if name.endswith("value.weight"):
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


def test_the_mask_comes_after_clipping() -> None:
    """Masked before it, the kept entries would be scaled up to the clip norm."""
    small = NO_DECAY.model_copy(update={"clip_norm": 1e-3})
    seen: list[float] = []
    bench = Bench([("child_tuning", {"share": 0.3})], training=small)
    original = bench.stack.regularisers[0].gradient_masks

    def look(step: Any) -> Any:
        gradients = [p.grad for _, p in bench.trainee.named_trainable() if p.grad is not None]
        seen.append(float(torch.cat([g.flatten() for g in gradients]).norm()))
        return original(step)

    bench.stack.regularisers[0].gradient_masks = look  # type: ignore[method-assign]
    bench.train()
    assert seen == pytest.approx([1e-3] * len(seen), rel=1e-3)


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


@pytest.mark.parametrize("options", [{"share": 0.3}, {"mask": "fixed", "share": 0.3}])
def test_a_killed_run_goes_on_with_the_same_masks(options: dict[str, Any]) -> None:
    def make() -> Bench:
        return Bench([("child_tuning", options)])

    assert same(resumed(make, 3)[0], make().train())
