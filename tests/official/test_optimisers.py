"""Child-Tuning, RecAdam and SAGE against their authors' optimisers: weights after each of six steps.

Both sides get the gradients, and the masks where there are any, of a run of ours. With the epsilon of 1e-30 it does not
matter whether it is added before or after the bias correction, in which ours and two of theirs differ on purpose.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regft_core.methods.child_tuning import ChildTuning
from regft_core.methods.fisher import Fisher
from regft_core.training.step import FitData
from tests.methods.harness import STILL, TRAINING, Bench
from tests.official.releases import Release

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]

ALICE_MIND = Release("alibaba/AliceMind", "c17b177e7e100cac5a3bc9f94c177f22238996f4")
REC_ADAM = Release("Sanyuan-Chen/RecAdam", "2f39a49ae380084824cf2e5778326edcc5d0e241")
SAGE = Release("cliang1453/SAGE", "f4c6dc07cf66588dc1a8c0e84bd42311825cbfd9")
#: Largest difference of a weight, in float32, after steps that move weights by up to 1e-2.
TOLERANCE = 1e-6
PROTOCOL = TRAINING.model_copy(update={"epochs": 2, "clip_norm": None, "epsilon": 1e-30})


@dataclass
class Recorded:
    """A run of ours: weights at the start, and of each step its rate, gradients, masks and the weights it left."""

    start: dict[str, Tensor]
    groups: dict[str, float]
    rates: list[float] = field(default_factory=list)
    gradients: list[dict[str, Tensor]] = field(default_factory=list)
    masks: list[dict[str, Tensor]] = field(default_factory=list)
    weights: list[dict[str, Tensor]] = field(default_factory=list)


def record(bench: Bench) -> Recorded:
    """Six steps."""
    named, stack, loop = dict(bench.trainee.named_raw()), bench.stack, bench.loop()
    decay = {name: group["weight_decay"] for group in loop.optimizer.param_groups for name in group["names"]}
    run = Recorded({name: value.detach().clone() for name, value in named.items()}, decay)
    after_clip, after_update = stack.after_clip, stack.after_update

    def clipped(step: Any, norm: Tensor) -> None:
        run.rates.append(step.learning_rate)
        run.gradients.append({n: p.grad.clone() for n, p in named.items() if p.grad is not None})
        run.masks.append({})
        after_clip(step, norm)

    def updated(step: Any) -> None:
        after_update(step)
        run.weights.append({name: value.detach().clone() for name, value in named.items()})

    stack.after_clip, stack.after_update = clipped, updated  # type: ignore[method-assign]
    loop.train()
    assert len(run.weights) == 6
    return run


def compared(
    run: Recorded,
    parameters: dict[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    masks: list[Tensor] | None = None,
) -> float:
    """Their optimiser through the recorded steps; the largest difference of any weight after any step."""
    largest = moved = 0.0
    for rate, gradients, wanted, own_masks in zip(run.rates, run.gradients, run.weights, run.masks, strict=True):
        for name, parameter in parameters.items():
            parameter.grad = gradients[name].clone() if name in gradients else None
        if masks is not None:
            masks[:] = [own_masks[name] for name, p in parameters.items() if p.grad is not None]
        for group in optimizer.param_groups:
            group["lr"] = rate
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer.step()
        for name, parameter in parameters.items():
            moved = max(moved, float((wanted[name] - run.start[name]).abs().max()))
            if name.endswith("attention.self.key.bias"):
                continue  # no output depends on it, so its gradient is the rounding noise of both sides
            largest = max(largest, float((parameter.detach() - wanted[name]).abs().max()))
    assert moved > 1e-3
    return largest


def groups_of(run: Recorded) -> tuple[dict[str, nn.Parameter], Iterator[tuple[float, list[str]]]]:
    """Parameters at the start, and the names by weight decay."""
    parameters = {name: nn.Parameter(value.clone()) for name, value in run.start.items()}
    decays = sorted(set(run.groups.values()))
    return parameters, ((decay, [n for n in parameters if run.groups[n] == decay]) for decay in decays)


def test_child_tuning_f(monkeypatch: pytest.MonkeyPatch) -> None:
    training = PROTOCOL.model_copy(update={"weight_decay": 0.0})  # theirs decays after the step
    bench = Bench([("child_tuning", {"mask": "bernoulli", "share": 0.3})], training=training)
    drawn: dict[str, Tensor] = {}
    mask = ChildTuning._mask

    def kept(self: ChildTuning, name: str, gradient: Tensor, step: Any) -> Tensor:
        found = mask(self, name, gradient, step)
        drawn[f"{step.index} {name}"] = found.clone()
        return found

    monkeypatch.setattr(ChildTuning, "_mask", kept)
    run = record(bench)
    run.masks = [{n: drawn[f"{index} {n}"] for n in own} for index, own in enumerate(run.gradients)]
    shares = torch.cat([one.flatten() for masks in run.masks for one in masks.values()])
    assert float(shares.double().mean()) == pytest.approx(0.3, abs=0.01)
    given: list[Tensor] = []
    bernoulli = SimpleNamespace(sample=lambda: given.pop(0))
    path, names = "ChildTuning/ChildTuningOptimizer.py", ["ChildTuningAdamW"]
    released = ALICE_MIND.definitions(path, names, {"Bernoulli": lambda _: bernoulli}).ChildTuningAdamW
    parameters, _ = groups_of(run)
    theirs = released(list(parameters.values()), eps=1e-30, weight_decay=0.0, reserve_p=0.3, mode="ChildTuning-F")
    found = compared(run, parameters, theirs, given)
    print(f"child_tuning F: {found:.1e}")
    assert found < TOLERANCE


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("annealing", ["sigmoid", "linear"])
def test_rec_adam(annealing: str, decay: float) -> None:
    options: dict[str, Any] = {"annealing": annealing, "midpoint": 3, "strength": 100.0}
    if annealing == "sigmoid":
        options["rate"] = 0.5
    training = PROTOCOL.model_copy(update={"weight_decay": decay})
    bench = Bench([("rec_adam", options)], training=training)
    head = set(bench.trainee.sites.head)
    run = record(bench)
    parameters, by_decay = groups_of(run)
    groups = []
    for own, names in by_decay:
        for pulled in (True, False):
            chosen = [name for name in names if (name not in head) == pulled]
            anchors = [run.start[name] for name in chosen]
            members = {"params": [parameters[name] for name in chosen], "pretrain_params": anchors}
            groups.append({**members, "weight_decay": own, "anneal_w": 1.0 if pulled else 0.0})
    released = REC_ADAM.definitions("RecAdam.py", ["anneal_function", "RecAdam"]).RecAdam
    theirs = released(
        [group for group in groups if group["params"]],
        betas=(0.9, 0.999),
        eps=1e-30,
        anneal_fun=annealing,
        anneal_k=0.5,
        anneal_t0=3,
        pretrain_cof=100.0,
    )
    found = compared(run, parameters, theirs)
    print(f"rec_adam {annealing} {decay}: {found:.1e}")
    assert found < TOLERANCE


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("base", ["adamax", "adamw"])
def test_sage(base: str, decay: float) -> None:
    # Their epsilon is where ours is in variant: released; and at 1e-30 squared nothing would be left of it.
    update = {"weight_decay": decay, "epsilon": 1e-6, "schedule": "constant", "warmup_ratio": 0.0}
    training = PROTOCOL.model_copy(update=update)
    bench = Bench([("sage", {"variant": "released", "base": base, "decay": 0.75})], training=training)
    guided = set(bench.trainee.sites.perturbable)
    run = record(bench)
    parameters, by_decay = groups_of(run)
    groups = []
    for own, names in by_decay:
        for kind in ("sensitivity", "common"):
            chosen = [parameters[name] for name in names if (name in guided) == (kind == "sensitivity")]
            groups.append({"params": chosen, "weight_decay": own, "params_type": kind})
    name = "UnstructAwareAdamax" if base == "adamax" else "UnstructAwareAdamW"
    released = getattr(SAGE.definitions("module/bert_optim.py", [name]), name)
    theirs = released([g for g in groups if g["params"]], 1e-3, beta3=0.75, eps=1e-6, max_grad_norm=-1)
    found = compared(run, parameters, theirs)
    print(f"sage {base} {decay}: {found:.1e}")
    assert found < TOLERANCE


def test_the_mask_of_child_tuning_d(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mask of their ``calculate_fisher``, without dropout; the optimiser that reads it is that of F."""
    training = TRAINING.model_copy(update={"epochs": 0, "clip_norm": 1.0, "dropout": STILL})
    batches: list[Any] = []
    sequential = FitData.sequential

    def seen(self: FitData, size: int) -> Any:
        for batch in sequential(self, size):
            batches.append(batch)
            yield batch

    monkeypatch.setattr(FitData, "sequential", seen)
    bench = Bench([("fisher", {"variant": "released", "share": 0.3})], phase="fisher", training=training)
    plain = Bench(training=training, dropout=STILL)
    own = bench.stack.regularisers[0]
    assert isinstance(own, Fisher)
    assert len(batches) == 3

    def loss(**inputs: Tensor) -> dict[str, Tensor]:
        labels = inputs.pop("labels")
        return {"loss": nn.functional.cross_entropy(plain.model(**inputs).logits, labels)}

    model = SimpleNamespace(
        train=plain.model.train, zero_grad=plain.model.zero_grad, named_parameters=plain.model.named_parameters
    )
    rows = [{"idx": None, "labels": batch.labels, **batch.model_inputs()} for batch in batches]
    given = {"Trainer": object, "DataLoader": lambda *_, **__: rows, "tqdm": lambda given: given}
    released = ALICE_MIND.definitions("ChildTuning/ChildTuningD.py", ["ChildTuningDtrainer"], given)
    settings = {"per_device_train_batch_size": 4, "dataloader_drop_last": False, "dataloader_num_workers": 0}
    trainer = SimpleNamespace(
        model=CallableModel(model, loss),
        train_dataset=None,
        data_collator=None,
        args=SimpleNamespace(**settings, dataloader_pin_memory=False, max_grad_norm=1.0),
        reserve_p=0.3,
        _prepare_inputs=lambda inputs: inputs,
    )
    masks = released.ChildTuningDtrainer.calculate_fisher(trainer)
    named = {name: masks[parameter] for name, parameter in plain.model.named_parameters() if parameter in masks}
    assert set(named) == set(own.masks)
    apart = sum(int((named[name] != own.masks[name]).sum()) for name in named)
    print(f"child_tuning D: {apart} of {sum(mask.numel() for mask in named.values())} entries differ")
    assert apart == 0
    assert sum(int(mask.sum()) for mask in named.values()) / sum(m.numel() for m in named.values()) == pytest.approx(
        0.3, abs=0.01
    )


class CallableModel:
    """A model's surface with a call that gives the loss."""

    def __init__(self, surface: SimpleNamespace, loss: Any) -> None:
        self.__dict__.update(vars(surface))
        self.loss = loss

    def __call__(self, **inputs: Tensor) -> dict[str, Tensor]:
        found: dict[str, Tensor] = self.loss(**inputs)
        return found
