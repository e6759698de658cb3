"""How alike the tokens of a text become from layer to layer (HyPe, Yuan et al. 2023, figure 4).

Per text, the mean cosine similarity of the hidden states of all pairs of different positions, added tokens such as
[CLS] included, padding not; then the mean over texts. Layer 0 is what the first layer reads, the last one what the
head reads. ``pretrained`` is the encoder as it was loaded. Texts of a single token have no pairs and are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regft_core.evaluate.analysis_result import Findings, Plot, SomeRows, Table
from regft_core.lazy import np

if TYPE_CHECKING:
    from torch import Tensor

    from regft_core.data.encode import Encoded
    from regft_core.evaluate.evaluated import EvaluatedRun

DESCRIPTION = "mean cosine similarity of a text's tokens in every layer (HyPe, figure 4)"
NEEDS_MODEL = True


Config = SomeRows


def run(run: EvaluatedRun) -> Findings:
    scalars: dict[str, dict[str, float]] = {}
    tables: dict[str, dict[str, Table]] = {}
    for judged in run.parts:
        encoded = run.trained.encode(judged.examples)
        own, before = (by_layer(run, model, encoded) for model in (run.trained.model, run.trained.pretrained))
        plot = Plot("layer", "similarity", baseline="pretrained")
        rows = tuple((layer, value, before[layer]) for layer, value in enumerate(own))
        tables[judged.name] = {"layers": Table(("layer", "similarity", "pretrained"), rows, keys=1, plot=plot)}
        scalars[judged.name] = {"last_layer": own[-1], "last_layer_pretrained": before[-1]}
    return Findings(scalars, tables, dict.fromkeys(("last_layer", "last_layer_pretrained"), (-1.0, 1.0)))


def by_layer(run: EvaluatedRun, model: Any, encoded: Encoded) -> list[float]:
    from regft_core.evaluate.hidden import layer_states

    of_batches = [
        [similarity(states, batch.attention_mask).cpu().numpy() for states in layer_states(model, batch)]
        for batch in run.trained.batches(encoded)
    ]
    return [float(np.nanmean(np.concatenate(values))) for values in zip(*of_batches, strict=True)]


def similarity(states: Tensor, mask: Tensor) -> Tensor:
    """[rows] mean cosine over pairs of different real positions of ``[rows, n, H]``; NaN where there is no pair."""
    units = states.double() / states.double().norm(dim=-1, keepdim=True).clamp_min(1e-12)
    units = units * mask.unsqueeze(-1)
    count = mask.sum(1).double()
    # The squared length of the sum of unit vectors is the sum of all their cosines, own ones included.
    total = units.sum(1).square().sum(-1) - units.square().sum(-1).sum(-1)
    return total / (count * (count - 1))
