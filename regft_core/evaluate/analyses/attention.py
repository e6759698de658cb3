"""How much of the task weight and of the pretrained weight weight mixup keeps, by layer. Ours: no figure of a paper.

Of the attention that the search of weight mixup (Somayajula et al. 2024) handed to fine-tuning: the mean coefficient
of the task weight W and of the pretrained weight W0 over the entries of every matrix, by layer. With the paper's
low-rank form the two do not add up to 1 (``models/mixing.py``). A matrix outside of the layers (a pooler) has no layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from regft_core.evaluate.analysis_result import RUN, Findings, Plot, Table, Unfit
from regft_core.lazy import np, torch

if TYPE_CHECKING:
    from torch import Tensor

    from regft_core.evaluate.evaluated import EvaluatedRun

DESCRIPTION = "coefficients of task and pretrained weights that the search of weight mixup found, by layer (ours)"
NEEDS_MODEL = True

_STATE = "weight_mixup."


def run(run: EvaluatedRun) -> Findings:
    state = {name.removeprefix(_STATE): t for name, t in run.trained.handed.items() if name.startswith(_STATE)}
    if "form" not in state:
        raise Unfit("no phase before fine-tuning learned an attention over weights")
    from regft_core.models.sites import find_sites

    layers = find_sites(run.trained.model).layers
    rows, means = [], []
    for name, (task, pretrained) in coefficients(state).items():
        site = next((site for site in layers if name.startswith(f"{site.name}.")), None)
        matrix = name if site is None else name.removeprefix(f"{site.name}.")
        rows.append((matrix.removesuffix(".weight"), None if site is None else site.index, task, pretrained))
        means.append((task, pretrained))
    plot = Plot("layer", "task weight", panels="sets", group="matrix")
    table = Table(("matrix", "layer", "task weight", "pretrained weight"), tuple(rows), keys=2, plot=plot)
    scalars = dict(zip(("task_weight", "pretrained_weight"), map(float, np.mean(means, axis=0)), strict=True))
    return Findings({RUN: scalars}, {RUN: {"layers": table}}, dict.fromkeys(scalars, (0.0, 1.0)))


def coefficients(state: Mapping[str, Tensor]) -> dict[str, tuple[float, float]]:
    """Matrix -> mean coefficient of W and of W0, from the attention as it was handed over."""
    from regft_core.models.mixing import FORMS, WeightMixing

    form = FORMS[int(state["form"].item())]
    found: dict[str, dict[str, Tensor]] = {}
    for key, tensor in state.items():
        if key.startswith("attention/"):
            _, name, factor = key.split("/")
            found.setdefault(name, {})[factor] = tensor
    means = {}
    for name, factors in found.items():
        shape = factors["a"].shape if form == "full_rank" else (factors["a1"].shape[0], factors["a2"].shape[1])
        rank = 1 if form == "full_rank" else factors["a1"].shape[1]
        mixing = WeightMixing(torch.zeros(tuple(shape)), rank=rank, form=form, std=0.0, generator=None)
        for factor, tensor in factors.items():
            getattr(mixing, factor).data.copy_(tensor)
        task, pretrained = mixing.coefficients()
        means[name] = (float(task.mean()), float(pretrained.mean()))
    return means
