"""Histogram of the confidence that a method has learned for tokens (TDT, Zeng et al. 2022, figure 4).

Over the text's tokens of every set; added tokens such as [CLS] and padding are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from regft_core.evaluate.analysis_result import Findings, Plot, Table
from regft_core.lazy import Array, np
from regft_core.schema import StrictModel

if TYPE_CHECKING:
    from regft_core.evaluate.evaluated import EvaluatedRun, EvaluatedSet

DESCRIPTION = "how sure a method with a confidence per token is of the tokens (TDT, figure 4)"
NEEDS_MODEL = True


class Config(StrictModel):
    bins: int = Field(20, ge=2, le=1000, description="of equal width between 0 and 1")
    rows: int = Field(200, ge=1, description="examples of a set, the same for all runs; all when it has fewer")


def run(run: EvaluatedRun) -> Findings:
    scalars: dict[str, dict[str, float]] = {}
    tables: dict[str, dict[str, Table]] = {}
    for judged in run.sets.values():
        values = of_tokens(run, run.some(judged, run.options.rows))
        if not len(values):
            continue
        scalars[judged.name] = {"mean": float(values.mean()), "sd": float(values.std()), "tokens": float(len(values))}
        tables[judged.name] = {"histogram": histogram(values, run.options.bins)}
    return Findings(scalars, tables, {"mean": (0.0, 1.0), "sd": (0.0, 0.5), "tokens": (0.0, None)})


def of_tokens(run: EvaluatedRun, judged: EvaluatedSet) -> Array:
    """[tokens] confidence of all text tokens of a set; raises Unfit where no method has learned one."""
    from regft_core.evaluate.hidden import token_confidence

    encoded = run.trained.encode(judged.examples)
    rows = [row for of in token_confidence(run.trained, encoded) for row in of]
    inside = [np.asarray(part) >= 0 for part in encoded.segment]
    return np.concatenate([row[free].astype(np.float64) for row, free in zip(rows, inside, strict=True)])


def histogram(values: Array, bins: int) -> Table:
    """Tokens and their share per bin, of values ``[n]``; a border belongs to the bin above, 1 to the last."""
    counts, edges = np.histogram(values, bins=bins, range=(0.0, 1.0))
    centres = (edges[:-1] + edges[1:]) / 2
    rows = tuple((round(float(c), 6), int(n), float(n / len(values))) for c, n in zip(centres, counts, strict=True))
    return Table(("confidence", "tokens", "share"), rows, keys=1, plot=Plot("confidence", "share"))
