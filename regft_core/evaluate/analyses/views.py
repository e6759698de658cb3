"""Inputs as the encoder represents them, in two dimensions (TDT, Zeng et al. 2022, section 4.1 and figure 3).

One vector per example, pooled from the last layer (``model.pooling``; the summary token where the family's own head
is used), for the original input and for the views that the method makes of it: TDT's positive and negative inputs.
All vectors of one run are projected together by t-SNE, as in the paper. A marker is a view and a colour a class; a
regression's values have two halves instead of classes.

Where the paper is silent: t-SNE has a perplexity of 30 (a third of the vectors where there are fewer than 90) and
starts from the principal components. Its picture can differ between machines in more than the last bits.

Ours: methods that make no views show the original inputs. ``cosine_<view>`` is the mean cosine between an input's
vector and that of its view, before any projection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from regft_core.evaluate.analysis_result import Findings, Plot, Table, Unfit
from regft_core.kinds import find
from regft_core.lazy import np
from regft_core.rng import derive
from regft_core.schema import StrictModel

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from regft_core.evaluate.evaluated import EvaluatedRun, EvaluatedSet

DESCRIPTION = "inputs and the views that a method contrasts with them, by class, in two dimensions (TDT, figure 3)"
KINDS = ("classification", "regression")
NEEDS_MODEL = True


class Config(StrictModel):
    rows: int = Field(100, ge=3, description="examples of the development set, the same for all runs")


def run(run: EvaluatedRun) -> Findings:
    part = run.some(run.sets["dev"], run.options.rows)
    vectors = by_view(run, part)
    if len(part) * len(vectors) < 3:
        raise Unfit("a picture needs three points, and there are fewer rows")
    points = tsne(np.concatenate(list(vectors.values())), run.seed)
    rows = []
    for view, own in zip(vectors, np.split(points, len(vectors)), strict=True):
        for i, (x, y) in enumerate(own):
            rows.append((part.examples[i].idx, view, label_of(part, i), float(x), float(y)))
    plot = Plot("first axis of t-SNE", "second axis of t-SNE", group=("view", "label"), points=True)
    table = Table(("idx", "view", "label", plot.x, plot.y), tuple(rows), plot=plot)
    original = vectors["original"]
    scalars = {f"cosine_{view}": cosine(original, own) for view, own in vectors.items() if view != "original"}
    return Findings({"dev": scalars}, {"dev": {"views": table}}, dict.fromkeys(scalars, (-1.0, 1.0)))


def label_of(judged: EvaluatedSet, index: int) -> str:
    """Name of the gold label; the half of the values that a regression's lies in."""
    if find(judged.kind).has_labels:
        return judged.labels[int(judged.gold[index])]
    return "upper half" if judged.gold[index] > np.median(judged.gold) else "lower half"


def by_view(run: EvaluatedRun, judged: EvaluatedSet) -> dict[str, npt.NDArray[Any]]:
    """View -> [n, F] vectors in the order of the set; ``original`` first."""
    from regft_core.evaluate.hidden import embedding_output, summaries

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


def tsne(vectors: npt.NDArray[Any], seed: int) -> npt.NDArray[Any]:
    """[n, 2] coordinates of ``[n, F]`` by t-SNE."""
    from sklearn.manifold import TSNE

    perplexity = min(30.0, len(vectors) / 3)
    fitted = TSNE(perplexity=perplexity, init="pca", random_state=derive(seed, "views.tsne") % 2**32)
    return fitted.fit_transform(vectors)


def cosine(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float(((one * other).sum(axis=1) / np.maximum(norms, 1e-12)).mean())
