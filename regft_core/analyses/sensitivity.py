"""How unevenly the loss depends on single weights (PATS, Zhang et al. 2022, figures 2 and 3).

Of the final moving average of the sensitivity that PATS keeps (equation 2), over all entries of all perturbed
tensors together: histogram over its decimal logarithm (entries of exactly 0 have none and are counted apart), the
share of the total that the most sensitive entries hold, Gini's coefficient (0: all alike, 1: one entry has all), and
its standard deviation, which the report draws over the training sizes. Signed sensitivities count by their size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from regft_core.config.schema import StrictModel
from regft_core.lazy import np
from regft_core.scoring.findings import RUN, Findings, Plot, Table, Unfit

if TYPE_CHECKING:
    import numpy.typing as npt

    from regft_core.scoring.evaluated import EvaluatedRun

DESCRIPTION = "how the sensitivity of the loss is spread over the weights"
NEEDS_MODEL = True

_KEPT = ".sensitivity/"
#: Shares of the entries, the most sensitive first, at which the concentration is read off.
_SHARES = (0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class Config(StrictModel):
    bins_per_decade: int = Field(4, ge=1, le=50, description="of the histogram")


def run(run: EvaluatedRun) -> Findings:
    kept = [tensor.numpy().ravel() for name, tensor in run.trained.kept.items() if _KEPT in name]
    if not kept:
        raise Unfit("no method here keeps the sensitivity of weights")
    values = np.abs(np.concatenate(kept).astype(np.float64))
    ordered = np.sort(values)[::-1]
    scalars = {
        "mean": float(values.mean()),
        "sd": float(values.std()),
        "gini": gini(ordered),
        "held_by_top_1_percent": held(ordered, 0.01),
        "zeros": float((values == 0).sum()),
    }
    tables = {
        "histogram": histogram(values, run.options.bins_per_decade),
        "concentration": concentration(ordered),
    }
    ranges: dict[str, tuple[float | None, float | None]] = dict.fromkeys(scalars, (0.0, None))
    ranges |= {"gini": (0.0, 1.0), "held_by_top_1_percent": (0.0, 1.0)}
    return Findings({RUN: scalars}, {RUN: tables}, ranges, over_sizes=("sd",))


def histogram(values: npt.NDArray[Any], per_decade: int) -> Table:
    """Entries that are not 0, by bins of their logarithm whose borders do not depend on the values."""
    present = values[values > 0]
    bins = np.floor(np.log10(present) * per_decade).astype(np.int64)
    first = int(bins.min()) if len(bins) else 0
    counts = np.bincount(bins - first) if len(bins) else np.zeros(0, dtype=np.int64)
    rows = tuple(
        (round((first + i + 0.5) / per_decade, 4), int(n), float(n / len(values))) for i, n in enumerate(counts)
    )
    plot = Plot("log10 of sensitivity", "share", panels="sets")
    return Table((plot.x, "entries", plot.y), rows, keys=1, plot=plot)


def concentration(ordered: npt.NDArray[Any]) -> Table:
    """Share of the sum that the largest entries hold, from entries in descending order."""
    plot = Plot("share of entries", "share of sensitivity", panels="sets")
    rows = tuple((share, held(ordered, share)) for share in _SHARES)
    return Table((plot.x, plot.y), rows, keys=1, plot=plot)


def held(ordered: npt.NDArray[Any], share: float) -> float:
    """Share of the sum that the first ``share`` of the entries (rounded) holds; 0 when all are 0."""
    total = float(ordered.sum())
    return float(ordered[: round(share * len(ordered))].sum()) / total if total else 0.0


def gini(ordered: npt.NDArray[Any]) -> float:
    """Gini's coefficient of entries in descending order; 0 when all are 0."""
    n, total = len(ordered), float(ordered.sum())
    ranks = np.arange(n, 0, -1)
    return float((2 * (ranks * ordered).sum() / (n * total)) - (n + 1) / n) if total else 0.0
