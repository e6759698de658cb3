"""DPS, dense and mix, against its formulas and its cycle of two stages."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.methods.harness import MAKES, STILL, TRAINING, Bench, gradients, only, same

#: Six steps, so that a block of 0.34 is two of them.
TWO = {"drop": 0.3, "block": 0.34}
NAME = "bert.encoder.layer.0.intermediate.dense.weight"
bench = only("dps")


def trained(run: Bench, look: Any) -> dict[str, torch.Tensor]:
    """Train; ``look(step, gradients before, gradients after)`` around what the stack does before clipping."""
    original = run.stack.before_clip

    def spy(step: Any) -> None:
        before = gradients(run)
        original(step)
        look(step, before, gradients(run))

    run.stack.before_clip = spy  # type: ignore[method-assign]
    return run.train()


def test_two_stages_in_turn_and_as_many_gradients_as_stated() -> None:
    run, stages = bench(TWO), []
    names = run.method.names
    assert {"classifier.weight", "bert.pooler.dense.weight", NAME} <= set(names)
    assert not any("embeddings" in name or name.endswith("bias") for name in names)

    def look(step: Any, before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> None:
        masks = run.method.masks
        stages.append("II" if masks else "I")
        for name, gradient in after.items():
            assert torch.equal(gradient, before[name] * masks.get(name, 1)), name
        for name, mask in masks.items():
            # The two rows of the head have gradients that differ by their sign: a pair can be equal at the threshold.
            assert int(mask.sum()) - math.ceil(mask.numel() * 0.7) in (0, 1), name
        assert not masks or set(masks) == set(names)

    trained(run, look)
    assert stages == ["I", "I", "II", "II", "I", "I"]


def test_the_sums_are_those_of_one_block_and_their_scale_does_not_matter() -> None:
    run, seen = bench(TWO), []
    regulariser = run.method

    def look(step: Any, before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> None:
        seen.append(before[NAME])
        if step.index == 1:
            expected = seen[0] ** 2 + seen[1] ** 2
            assert torch.allclose(regulariser.sums[NAME], expected, rtol=1e-6)
            mask = regulariser._chosen(NAME, 1)
            assert torch.equal(mask, expected >= expected.flatten().sort(descending=True).values[int(mask.sum()) - 1])
            regulariser.sums[NAME] = expected / 1000
            assert torch.equal(mask, regulariser._chosen(NAME, 1))
        if step.index == 4:  # a new block began: nothing of the first one is left
            assert torch.allclose(regulariser.sums[NAME], seen[4] ** 2, rtol=1e-6)

    trained(run, look)


@pytest.mark.parametrize(("steps", "block", "length"), [(6, 0.34, 2), (6, 0.05, 1), (40, 0.05, 2), (100, 0.5, 50)])
def test_length_of_a_block(steps: int, block: float, length: int) -> None:
    run = bench({"block": block})
    step = run.step()
    step.total = steps
    run.method.observe_gradients(step)
    assert run.method.length == length


def test_the_control_chooses_as_many_entries_at_random() -> None:
    masks = []
    for selection in ("random", "gradient"):
        run = bench({**TWO, "selection": selection})
        trained(run, lambda step, *_, run=run: masks.append(run.method.masks[NAME]) if step.index == 2 else None)
    assert int(masks[0].sum()) == math.ceil(masks[0].numel() * 0.7)
    assert float((masks[0] == masks[1]).double().mean()) == pytest.approx(0.7**2 + 0.3**2, abs=0.05)


def weights_in_passes(run: Bench, name: str, count: int, index: int = 0) -> list[torch.Tensor]:
    """The weight that ``count`` training passes of one step use."""
    module, attribute = run.trainee.module_of(name)
    step, seen = run.step(index), []
    handle = module.register_forward_pre_hook(lambda m, _: seen.append(getattr(m, attribute).detach().clone()))
    for draw in range(count):
        with torch.no_grad():
            step.forward(draw=draw)
    handle.remove()
    return seen


MIX = {**TWO, "mode": "mix"}


def test_stage_one_mixes_whole_columns_and_is_unbiased() -> None:
    run = bench(MIX)
    raw = run.trainee.raw(NAME)
    start = raw.detach().clone()
    with torch.no_grad():
        raw.add_(torch.randn(raw.shape, generator=torch.Generator().manual_seed(3)) * 0.1)
    seen = weights_in_passes(run, NAME, 400)
    kept = start + (raw.detach() - start) / 0.7
    counts = torch.zeros(raw.shape[1])
    for weight in seen:
        columns = torch.isclose(weight, kept, atol=1e-6).all(0)
        assert torch.equal(weight[:, ~columns], start[:, ~columns])
        counts += columns
    assert float((counts / 400).mean()) == pytest.approx(0.7, abs=0.02)
    assert float((counts / 400).min()) > 0.6
    mean = torch.stack(seen).mean(0)
    # sd of one draw is |W - T| sqrt(p / (1 - p)).
    error = (mean - raw.detach()).abs() / ((raw.detach() - start).abs() * (0.3 / 0.7) ** 0.5 / 400**0.5 + 1e-7)
    assert float(error.max()) < 5


def test_stage_one_drops_inputs_of_the_raw_matrices_too() -> None:
    run = bench(MIX, architecture="xlnet")
    name = next(name for name in run.method.names if name.endswith("rel_attn.o"))
    with torch.no_grad():
        run.trainee.raw(name).add_(0.1)
    (seen,) = weights_in_passes(run, name, 1)
    moved = seen != run.trainee.anchor("start")[name]
    assert 0 < moved.float().mean() < 1
    assert torch.equal(moved, moved[:1].expand_as(moved))  # [out, heads, size]


def test_stage_two_mixes_with_the_weights_of_its_beginning() -> None:
    run, raws, snapshots = bench(MIX), [], []
    regulariser = run.method

    def look(step: Any, before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> None:
        raws.append(run.trainee.raw(NAME).detach().clone())
        snapshots.append(regulariser.snapshots.get(NAME))
        if step.index == 3:
            seen = weights_in_passes(run, NAME, 1, index=3)[0]
            mask, target = regulariser.masks[NAME], raws[2]
            assert torch.equal(seen[~mask], target[~mask])
            assert torch.allclose(seen[mask], (target + (raws[3] - target) / 0.7)[mask], atol=1e-6)
            assert not after[NAME][~mask].any()

    trained(run, look)
    assert snapshots[0] is snapshots[1] is snapshots[4] is None
    assert all(torch.equal(snapshot, raws[2]) for snapshot in snapshots[2:4])
    assert not torch.equal(raws[3], raws[2])


@pytest.mark.parametrize(("length", "penalised"), [(49, False), (50, True), (100, True)])
def test_the_score_is_a_mean_that_falls_with_the_count(length: int, penalised: bool) -> None:
    regulariser = bench(MIX).method
    regulariser.length = length
    regulariser.sums = {"w": torch.tensor([[6.0, 1.0, 0.0]])}
    regulariser.counts = {"w": torch.tensor([[3.0, 1.0, 0.0]])}
    expected = [2.0, 1.0, 0.0]
    if penalised:
        expected = [2.0 * math.exp(-3 / length), 1.0 * math.exp(-1 / length), 0.0]
    assert regulariser._score("w")[0].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("architecture", MAKES)
def test_mix_on_every_family(architecture: str) -> None:
    """It begins like plain training, counts a pass once (ALBERT's layer runs twice), drops whole inputs."""
    run = bench(MIX, architecture=architecture, dropout=STILL)
    with torch.no_grad():
        expected = Bench(architecture=architecture, dropout=STILL).step().forward()
        assert torch.allclose(run.step().forward(), expected, atol=1e-5)

    def look(step: Any, before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> None:
        for name, count in run.method.counts.items():
            assert float(count.max()) <= step.index + 1
            assert count.numel() == run.trainee.raw(name).shape[1 if count.dim() == 2 else 0]

    trained(run, look)


def test_counts_are_steps_however_many_batches_each_has() -> None:
    run, counts = bench(MIX, training=TRAINING.model_copy(update={"accumulation": 3})), list[torch.Tensor]()
    trained(run, lambda *_: counts.append(run.method.counts.get(NAME)))
    assert 0.5 < float(counts[0].mean()) < float(counts[0].max()) == 1.0


def test_the_released_gradient_has_no_factor() -> None:
    slopes = []
    for variant in ("paper", "released"):
        run = bench({**MIX, "variant": variant}, dropout=STILL)
        step = run.step()
        run.stack.backward(step)
        run.stack.before_clip(step)
        slopes.append(gradients(run))
    assert torch.allclose(slopes[1][NAME], slopes[0][NAME] * 0.7, atol=1e-7)
    assert torch.equal(slopes[1]["classifier.bias"], slopes[0]["classifier.bias"])


@pytest.mark.parametrize("mode", ["dense", "mix"])
def test_a_gpu_chooses_the_same_entries_without_reading_the_threshold(mode: str) -> None:
    grouped, plain = (bench({**TWO, "mode": mode}, grouped=grouped) for grouped in (True, False))
    assert same(grouped.train(), plain.train())


def test_under_fp16_a_step_that_overflows_does_not_enter_the_sums() -> None:
    run = bench(TWO, training=TRAINING.model_copy(update={"precision": "fp16"}))
    step = run.step(scaler=run.loop().scaler)
    step.task_loss(step.forward()).backward()
    overflows = [(name, float("inf"), set()) for name in ("classifier.weight", "classifier.bias")]
    for name, value, summed in (*overflows, ("classifier.weight", 0.0, set(run.method.names))):
        gradient = run.trainee.raw(name).grad.view(-1)
        before, gradient[0] = gradient[0].clone(), value
        run.method.observe_gradients(step)
        assert set(run.method.sums) == summed
        gradient[0] = before
