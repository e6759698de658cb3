"""How unevenly the loss depends on single weights (PATS, Zhang et al. 2022, section 3.3, figures 2 and 3).

Every finished run is measured alike, plain fine-tuning as well as PATS: the sensitivity ``|weight * gradient|``
(equation 1) of every weight and bias inside the layers but for norms, as a moving average (equation 2) over batches of
the run's own training rows. Figure 2 is the histogram of its decimal logarithm over the entries within ``between``,
which is the paper's range (A.3); ``outside`` is the share of the other entries. All other numbers are of all entries:
the share of the total that the most sensitive ones hold, Gini's coefficient (0: all alike, 1: one entry has all), and
the standard deviation, which the report draws over the training sizes (figure 3).

Where the paper is silent: it does not say how it measures models that PATS has not trained, so all runs are measured
after training, without dropout. Decay and batch size are those of its training (A.2); after 16 batches the start at 0
has a weight of 1 %. Batches are drawn with the run's seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

from regft_core.evaluate.analysis_result import RUN, Findings, Plot, Table, Unfit
from regft_core.kinds import find
from regft_core.lazy import np, torch
from regft_core.rng import derive
from regft_core.schema import StrictModel

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from regft_core.data.examples import Example
    from regft_core.evaluate.evaluated import EvaluatedRun
    from regft_core.runs.finished_model import FinishedModel

DESCRIPTION = "how the sensitivity of the loss is spread over the weights (PATS, figures 2 and 3)"
NEEDS_MODEL = True

#: Shares of the entries, the most sensitive first, at which the concentration is read off.
_SHARES = (0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_Positive = Annotated[float, Field(gt=0)]


class Config(StrictModel):
    batches: int = Field(16, ge=1, description="batches of training rows that are averaged over")
    batch_size: int = Field(32, ge=1, description="rows of a batch")
    decay: float = Field(0.75, ge=0, lt=1, description="of the moving average over batches (beta)")
    between: Annotated[tuple[_Positive, _Positive], Field(strict=False)] = Field(
        (5e-8, 1e-5), description="smallest and largest sensitivity that the histogram shows"
    )
    bins_per_decade: int = Field(10, ge=1, le=50, description="of the histogram")

    @model_validator(mode="after")
    def _ordered(self) -> Config:
        if self.between[0] >= self.between[1]:
            raise ValueError(f"between is {list(self.between)}: the smallest value comes first")
        return self


def run(run: EvaluatedRun) -> Findings:
    options = run.options
    values = measured(run)
    ordered = np.sort(values)[::-1]
    low, high = options.between
    shown = values[(values >= low) & (values <= high)]
    scalars = {
        "mean": float(values.mean()),
        "sd": float(values.std()),
        "gini": gini(ordered),
        "held_by_top_1_percent": held(ordered, 0.01),
        "zeros": float((values == 0).sum()),
        "outside": 1 - len(shown) / len(values),
    }
    tables = {
        "histogram": histogram(shown, (low, high), options.bins_per_decade),
        "concentration": concentration(ordered),
    }
    ranges: dict[str, tuple[float | None, float | None]] = dict.fromkeys(scalars, (0.0, None))
    ranges |= dict.fromkeys(("gini", "held_by_top_1_percent", "outside"), (0.0, 1.0))
    remarks = () if len(shown) else (f"no entry has a sensitivity between {low:g} and {high:g} (option `between`)",)
    return Findings({RUN: scalars}, {RUN: tables}, ranges, remarks, over_sizes=("sd",))


def measured(run: EvaluatedRun) -> npt.NDArray[Any]:
    """[entries] sensitivity of all entries of all tensors together, float64. Raises Unfit where no loss is trained."""
    from regft_core.models.sites import find_sites

    options, model = run.options, run.trained.model
    named = dict(model.named_parameters())
    weights = [named[name] for name in find_sites(model).perturbable if name in named]
    trained = [weight.requires_grad for weight in weights]
    averages = [torch.zeros_like(weight) for weight in weights]
    try:
        for weight in weights:
            weight.requires_grad_(True)
        for rows in drawn(run.trained.training_rows(), run):
            slopes = gradients(run.trained, rows, run.kind, weights)
            for average, weight, slope in zip(averages, weights, slopes, strict=True):
                average.lerp_((weight.detach() * slope).abs(), 1 - options.decay)
    finally:
        for weight, before in zip(weights, trained, strict=True):
            weight.requires_grad_(before)
    if not averages:
        raise Unfit("the model has no weights inside its layers")
    return np.concatenate([average.cpu().numpy().ravel().astype(np.float64) for average in averages])


def drawn(examples: Sequence[Example], run: EvaluatedRun) -> Iterator[list[Example]]:
    """Batches of training rows: one random order after the other, the last rows of an order that fill no batch left."""
    generator = np.random.default_rng(derive(run.seed, "sensitivity.batches"))
    size, left = min(run.options.batch_size, len(examples)), np.zeros(0, dtype=np.int64)
    for _ in range(run.options.batches):
        if len(left) < size:
            left = generator.permutation(len(examples))
        yield [examples[int(index)] for index in left[:size]]
        left = left[size:]


def gradients(trained: FinishedModel, rows: Sequence[Example], kind: str, weights: Sequence[Tensor]) -> list[Tensor]:
    from regft_core.models.sites import classify

    total = [torch.zeros_like(weight) for weight in weights]
    for batch in trained.batches(trained.encode(rows)):
        with torch.enable_grad():
            logits, _ = classify(trained.model, batch.model_inputs())
            loss = find(kind).task_loss(logits.float(), batch.labels)
            slopes = torch.autograd.grad(loss, list(weights), allow_unused=True)
        for own, slope in zip(total, slopes, strict=True):
            if slope is not None:
                own.add_(slope, alpha=len(batch) / len(rows))
    return total


def histogram(values: npt.NDArray[Any], between: tuple[float, float], per_decade: int) -> Table:
    """Entries of ``[n]``, all ``between`` these, by bins of their logarithm; empty ones too, which a mean counts."""
    first, last = (math.floor(np.log10(end) * per_decade) for end in between)
    bins = np.clip(np.floor(np.log10(values) * per_decade).astype(np.int64), first, last)
    counts = np.bincount(bins - first, minlength=last - first + 1) if len(bins) else ()
    rows = tuple(
        (round((first + i + 0.5) / per_decade, 4), int(n), float(n / len(values))) for i, n in enumerate(counts)
    )
    plot = Plot("log10 of sensitivity", "share")
    return Table((plot.x, "entries", plot.y), rows, keys=1, plot=plot)


def concentration(ordered: npt.NDArray[Any]) -> Table:
    """Share of the sum that the largest entries hold, from entries ``[n]`` in descending order."""
    plot = Plot("share of entries", "share of sensitivity")
    rows = tuple((share, held(ordered, share)) for share in _SHARES)
    return Table((plot.x, plot.y), rows, keys=1, plot=plot)


def held(ordered: npt.NDArray[Any], share: float) -> float:
    """Share of the sum that the first ``share`` of the entries ``[n]`` (rounded) holds; 0 when all are 0."""
    total = float(ordered.sum())
    return float(ordered[: round(share * len(ordered))].sum()) / total if total else 0.0


def gini(ordered: npt.NDArray[Any]) -> float:
    """Gini's coefficient of entries ``[n]`` in descending order; 0 when all are 0."""
    n, total = len(ordered), float(ordered.sum())
    ranks = np.arange(n, 0, -1)
    return float((2 * (ranks * ordered).sum() / (n * total)) - (n + 1) / n) if total else 0.0
