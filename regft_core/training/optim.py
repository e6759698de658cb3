"""Parameter groups of an optimiser, its state as plain tensors, and the schedule of the learning rate.

Schedules are pure functions of the step, so that there is no state to save.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from regft_core.hooks.declare import ParameterGroup, behind
from regft_core.lazy import torch
from regft_core.schema.training import TrainingConfig


def parameter_groups(
    parameters: Mapping[str, torch.nn.Parameter],
    training: TrainingConfig,
    no_decay: Callable[[str], bool],
    special: Sequence[ParameterGroup] = (),
    factors: Mapping[str, float] | None = None,
) -> list[dict[str, Any]]:
    """Split named parameters into decayed, not decayed, and the regularisers' own groups.

    Each group keeps ``names`` beside ``params`` (same order), so that optimiser state can be stored by name, and
    ``base_lr``, which the schedule multiplies to ``lr``. ``factors`` multiply the learning rate of single parameters.

    Raises ValueError when two special groups give one parameter different settings.
    """
    factors = factors or {}
    taken: dict[str, ParameterGroup] = {}
    for group in special:
        for name in group.parameters:
            first = taken.setdefault(name, group)
            if (first.learning_rate, first.weight_decay) != (group.learning_rate, group.weight_decay):
                raise ValueError(f"two regularisers give different settings of their own to {name}")
    found: dict[tuple[int, float, float], dict[str, torch.nn.Parameter]] = {
        (0, training.weight_decay, training.learning_rate): {},
        (0, 0.0, training.learning_rate): {},
    }
    order = {id(group): place for place, group in enumerate(special, start=1)}
    for name, parameter in parameters.items():
        if not parameter.requires_grad:
            continue
        decay = 0.0 if no_decay(name) else training.weight_decay
        rate, place = training.learning_rate, 0
        if (own := taken.get(name)) is not None:
            decay = training.weight_decay if own.weight_decay is None else own.weight_decay
            rate = training.learning_rate if own.learning_rate is None else own.learning_rate
            place = order[id(own)]
        found.setdefault((place, decay, rate * factors.get(name, 1.0)), {})[name] = parameter
    return [
        {"names": list(members), "params": list(members.values()), "weight_decay": decay, "base_lr": rate, "lr": rate}
        for (_, decay, rate), members in sorted(found.items(), key=lambda item: item[0][0])
        if members
    ]


def optimizer_tensors(optimizer: torch.optim.Optimizer, prefix: str = "optimizer") -> dict[str, torch.Tensor]:
    """All state of ``optimizer`` as ``{prefix/parameter/entry: tensor}``; groups must hold ``names``."""
    return {
        f"{prefix}/{name}/{entry}": torch.as_tensor(value)
        for group in optimizer.param_groups
        for name, parameter in zip(group["names"], group["params"], strict=True)
        for entry, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, torch.Tensor], prefix: str = "optimizer"
) -> None:
    """Restore what :func:`optimizer_tensors` returned, each tensor where a fresh optimiser has it.

    That is the parameter's device, but for the count of steps of an update that is neither fused nor capturable: torch
    reads it in every step, for which the host would wait once per tensor.
    """
    for group in optimizer.param_groups:
        counts_on_device = bool(group.get("fused") or group.get("capturable"))
        for name, parameter in zip(group["names"], group["params"], strict=True):
            for entry, value in behind(f"{prefix}/{name}/", tensors).items():
                device = parameter.device if entry != "step" or counts_on_device else torch.device("cpu")
                optimizer.state[parameter][entry] = value.to(device, copy=True)


def warmup_steps(training: TrainingConfig, total: int) -> int:
    """Number of warm-up steps of ``total``; a share of them is rounded up as in the usual fine-tuning scripts."""
    given = training.warmup_steps
    return math.ceil(total * training.warmup_ratio) if given is None else min(given, total)


def rate_factor(schedule: Callable[[float], float], step: int, total: int, warmup: int) -> float:
    """Multiplier of the learning rate at 0-based optimiser step ``step`` of ``total``.

    Warm-up rises linearly from 0 (the first step of a run with warm-up has rate 0); then ``schedule`` gives it of the
    share of the steps after warm-up that are done.
    """
    if step < warmup:
        return step / max(1, warmup)
    return schedule((step - warmup) / max(1, total - warmup))
