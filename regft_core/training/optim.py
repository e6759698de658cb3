"""Parameter groups, the optimiser over them, and its state as plain tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from regft_core.catalogue import OPTIMISERS
from regft_core.config.schema import TrainingConfig
from regft_core.methods.base import ParameterGroup


def parameter_groups(
    parameters: Mapping[str, torch.nn.Parameter],
    training: TrainingConfig,
    no_decay: Callable[[str], bool],
    special: Iterable[ParameterGroup] = (),
) -> list[dict[str, Any]]:
    """Split named parameters into decayed, not decayed, and the regularisers' own groups.

    Each group keeps ``names`` beside ``params`` (same order), so that optimiser state can be
    stored by name, and ``base_lr``, which the schedule multiplies.
    """
    taken: dict[str, ParameterGroup] = {name: group for group in special for name in group.parameters}
    shared: dict[float, dict[str, torch.nn.Parameter]] = {training.weight_decay: {}, 0.0: {}}
    for name, parameter in parameters.items():
        if name not in taken and parameter.requires_grad:
            shared[0.0 if no_decay(name) else training.weight_decay][name] = parameter
    rate = training.learning_rate
    groups = [
        {"names": list(members), "params": list(members.values()), "weight_decay": decay, "base_lr": rate}
        for decay, members in shared.items()
        if members
    ]
    for group in special:
        groups.append(
            {
                "names": list(group.parameters),
                "params": list(group.parameters.values()),
                "weight_decay": training.weight_decay if group.weight_decay is None else group.weight_decay,
                "base_lr": training.learning_rate if group.learning_rate is None else group.learning_rate,
            }
        )
    return groups


def build_optimizer(groups: list[dict[str, Any]], training: TrainingConfig) -> torch.optim.Optimizer:
    """The optimiser that ``training.optimizer`` names, over ``groups`` at their base rates until scheduled.

    Each optimiser is a file of ``regft_core/training/optimisers``.
    """
    for group in groups:
        group["lr"] = group["base_lr"]
    built: torch.optim.Optimizer = OPTIMISERS.load(training.optimizer).build(groups, training)
    return built


def optimizer_tensors(optimizer: torch.optim.Optimizer, prefix: str = "optimizer") -> dict[str, torch.Tensor]:
    """All state of ``optimizer`` as ``{prefix/parameter/entry: tensor}``; groups must hold ``names``."""
    tensors = {}
    for group in optimizer.param_groups:
        for name, parameter in zip(group["names"], group["params"], strict=True):
            for entry, value in optimizer.state.get(parameter, {}).items():
                tensors[f"{prefix}/{name}/{entry}"] = torch.as_tensor(value)
    return tensors


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, torch.Tensor], prefix: str = "optimizer"
) -> None:
    """Restore what :func:`optimizer_tensors` returned."""
    by_name: dict[str, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        start, name, entry = key.split("/") if key.count("/") == 2 else ("", "", "")
        if start == prefix:
            by_name.setdefault(name, {})[entry] = value
    for group in optimizer.param_groups:
        for name, parameter in zip(group["names"], group["params"], strict=True):
            for entry, value in by_name.get(name, {}).items():
                on_device = value.clone() if entry == "step" and not parameter.is_cuda else value.to(parameter.device)
                optimizer.state[parameter][entry] = on_device.clone()
