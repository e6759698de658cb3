"""Inputs as the encoder represents them, in two dimensions: as they are and as a method contrasts them.

One vector per example, pooled from the last layer (``model.pooling``; the summary token where the family's own head
is used), for the original input and for the views that the method makes of it (TDT's distilled and negative inputs,
Zeng et al. 2022, figure 3, there by t-SNE). All vectors of one run are projected together onto their two principal
components, whose signs are fixed (the largest loading is positive). Methods that make no views show the original
inputs by label. ``cosine_<view>`` is the mean cosine between an input's vector and that of its view.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from regft_core.config.schema import StrictModel
from regft_core.kinds import find
from regft_core.lazy import np
from regft_core.scoring.findings import Findings, Plot, Table

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from regft_core.scoring.evaluated import EvaluatedRun, EvaluatedSet

DESCRIPTION = "inputs and the views that a method contrasts with them, projected onto two principal components"
KINDS = ("classification", "regression")
NEEDS_MODEL = True
READS_VIEWS = True


class Config(StrictModel):
    rows: int = Field(100, ge=3, description="examples of the development set, the same for all runs")


def run(run: EvaluatedRun) -> Findings:
    part = run.some(run.sets["dev"], run.options.rows)
    vectors = by_view(run, part)
    points, shares = projection(np.concatenate(list(vectors.values())))
    rows = []
    for which, (view, own) in enumerate(zip(vectors, np.split(points, len(vectors)), strict=True)):
        for i, (x, y) in enumerate(own):
            name = view if which or len(vectors) > 1 else f"original, {label_of(part, i)}"
            rows.append((part.examples[i].idx, name, label_of(part, i), float(x), float(y)))
    plot = Plot("first component", "second component", points=True, group="view")
    table = Table(("idx", "view", "label", plot.x, plot.y), tuple(rows), plot=plot, listed=False)
    original = vectors["original"]
    scalars = {f"cosine_{view}": cosine(original, own) for view, own in vectors.items() if view != "original"}
    scalars["explained"] = float(shares.sum())
    ranges = dict.fromkeys(scalars, (-1.0, 1.0)) | {"explained": (0.0, 1.0)}
    return Findings({"dev": scalars}, {"dev": {"views": table}}, ranges)


def label_of(judged: EvaluatedSet, index: int) -> str:
    """Name of the gold label; the half of the values that a regression's lies in."""
    if find(judged.kind).has_labels:
        return judged.labels[int(judged.gold[index])]
    return "upper half" if judged.gold[index] > np.median(judged.gold) else "lower half"


def by_view(run: EvaluatedRun, judged: EvaluatedSet) -> dict[str, npt.NDArray[Any]]:
    """View -> [n, F] vectors in the order of the set; ``original`` first."""
    from regft_core.scoring.hidden import embedding_output, summaries

    trained, encoded = run.trained, run.trained.encode(judged.examples)
    found: dict[str, list[Any]] = {}
    for batch in trained.batches(encoded):
        names: Mapping[str, Any] = (
            trained.views(embedding_output(trained.model, batch), batch.attention_mask, batch.segment) or {}
        )
        for name in ("original", *names):

            def shown(rows: Tensor, mask: Tensor, segment: Tensor, stack: str, name: str = name) -> Tensor:
                made = trained.views(rows.float(), mask, segment)
                assert made is not None
                return made[name]

            replace = None if name == "original" else shown
            vectors = summaries(trained.model, batch, trained.pooling, replace).cpu().numpy().astype(np.float64)
            own = found.setdefault(name, [None] * len(judged))
            for index, vector in zip(batch.indices.tolist(), vectors, strict=True):
                own[index] = vector
    return {name: np.stack(own) for name, own in found.items()}


def projection(vectors: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """[n, 2] coordinates of ``[n, F]`` on its two principal components, and the share of the variance of each."""
    from sklearn.decomposition import PCA

    fitted = PCA(n_components=2, svd_solver="full").fit(vectors)
    loadings = fitted.components_
    signs = np.sign(loadings[np.arange(2), np.abs(loadings).argmax(axis=1)])
    return fitted.transform(vectors) * signs, np.nan_to_num(fitted.explained_variance_ratio_)


def cosine(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    """Mean over rows of the cosine of ``[n, F]`` vectors."""
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float(((one * other).sum(axis=1) / np.maximum(norms, 1e-12)).mean())
