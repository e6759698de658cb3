"""Scores when the most or the least important tokens are masked (TDT, Zeng et al. 2022, section 4.3 and figure 6).

The paper orders a text's tokens by TDT's confidence, once for all arms, and replaces ``share`` of them by the mask
token: in descending order of the confidence, and in ascending order. ``confidence_of: tdt`` does that: every run reads
the texts that the TDT run of its task, size and seed has ordered. Added tokens such as [CLS] stay. Share 0 is the
stored prediction. The score is the task's primary metric. ``gap`` is the mean over shares of the score without the
least important tokens minus that without the most important ones: 0 where the order does not matter.

Where the paper is silent: it drops ``round(share * tokens)`` tokens of a text (both texts of a pair together), equal
values in the order of the text. It turns confidences into a distribution first, which keeps their order.

Ours: without ``confidence_of`` a run has the order of its own method, where that has learned a confidence. The random
order is what both are to be compared with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from regft_core import metrics
from regft_core.evaluate.analysis_result import Findings, Plot, SomeRows, Table, Unfit
from regft_core.lazy import np
from regft_core.rng import derive
from regft_core.schema import Name

if TYPE_CHECKING:
    from regft_core.data.encode import Encoded
    from regft_core.evaluate.evaluated import EvaluatedRun, EvaluatedSet
    from regft_core.evaluate.hidden import PerRow, PerToken

DESCRIPTION = "scores when the most or the least important tokens are masked (TDT, figure 6)"
NEEDS_MODEL = True
SCORES = True
METHOD = "confidence_of"

_ORDERS = ("descending", "ascending", "random")


class Config(SomeRows):
    confidence_of: Name | None = Field(
        None, description="method whose confidence orders the tokens for all arms (paper: tdt); null: each run's own"
    )
    shares: Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], Field(strict=False, min_length=1)] = Field(
        (0.1, 0.3, 0.5), description="of a text's tokens that are masked"
    )


def run(run: EvaluatedRun) -> Findings:
    from regft_core.evaluate.hidden import mask_token

    options, primary = run.options, run.task["primary"]
    mask = mask_token(run.trained)
    scalars: dict[str, dict[str, float]] = {}
    tables: dict[str, dict[str, Table]] = {}
    by = ""
    for part in run.parts:
        encoded = run.trained.encode(part.examples)
        by, scores = order_of(run, part, encoded)
        drawn = np.random.default_rng(derive(run.seed, "deletion.random", part.name))
        chance: PerToken = [[drawn.random(len(row)) for row in rows] for rows in scores]
        turned: PerToken = [[-row for row in rows] for rows in scores]
        of = dict(zip(_ORDERS, (scores, turned, chance), strict=True))
        found = {(order, 0.0): run.score(part) for order in _ORDERS}
        for order in _ORDERS:
            for share in sorted(set(options.shares)):
                dropped = without(encoded, of[order], share, mask)
                found[order, share] = run.score(part.with_logits(run.trained.predict(dropped)))
        gaps = [found["ascending", share] - found["descending", share] for share in options.shares]
        plot = Plot("share", primary, ("order",))
        rows = tuple((order, share, value) for (order, share), value in found.items())
        tables[part.name] = {"deletion": Table(("order", "share", primary), rows, keys=2, plot=plot)}
        scalars[part.name] = {f"{order}_{share:g}": value for (order, share), value in found.items() if share}
        scalars[part.name] |= {"clean": found["random", 0.0], "gap": float(np.mean(gaps))}
    metric = metrics.find(primary)
    ranges = {name: metric.range for named in scalars.values() for name in named if name != "gap"}
    ranges["gap"] = (-metric.largest_difference, metric.largest_difference)
    return Findings(scalars, tables, ranges, (f"tokens are ordered by {by}",))


def order_of(run: EvaluatedRun, part: EvaluatedSet, encoded: Encoded) -> tuple[str, PerToken]:
    """Return the name of an order of tokens and its value for every token; Unfit where there is none."""
    from regft_core.evaluate.hidden import token_confidence

    method = run.options.confidence_of
    if method is None:
        return "the confidence that the method has learned", token_confidence(run.trained, encoded)
    other = run.model_of(method)
    theirs = other.encode(part.examples)
    if theirs.input_ids != encoded.input_ids:
        raise Unfit(f"'{method}' reads other tokens than this run, so its confidence orders none of them")
    return f"the confidence that '{method}' has learned", token_confidence(other, theirs)


def without(encoded: Encoded, order: PerToken, share: float, mask: int) -> Encoded:
    """``encoded`` with ``mask`` for ``share`` of each example's text tokens, those with the largest values first.

    Equal values go in the order of the text. The rows of an example are one text here.
    """
    from regft_core.evaluate.hidden import with_replaced

    remaining = iter(order)

    def masked(ids: PerRow, free: PerRow) -> PerRow:
        tokens, values = np.concatenate(ids), np.concatenate(list(next(remaining)))
        places = np.flatnonzero(np.concatenate(free))
        ranked = places[np.argsort(-values[places], kind="stable")]
        tokens[ranked[: round(share * len(places))]] = mask
        return np.split(tokens, np.cumsum([len(row) for row in ids])[:-1])

    return with_replaced(encoded, masked)
