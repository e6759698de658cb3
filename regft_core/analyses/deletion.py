"""Scores when tokens are left out, the most or the least important ones first (TDT, Zeng et al. 2022, figure 6).

A token's importance is the confidence that the method itself has learned for it (TDT's unit); for methods without
one it is the size of gradient times input of the prediction (``scoring/hidden.py``). Per text, ``share`` of its
tokens (rounded) are left out: in descending order of importance, in ascending order, and in random order, which
is what both are to be compared with. Added tokens such as [CLS] stay. Share 0 is the stored prediction.
``gap`` is the mean over shares of the score with the least important tokens left out minus that with the most
important ones left out: 0 where the order does not matter. The score is the task's primary metric.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from regft_core import metrics
from regft_core.config.schema import StrictModel
from regft_core.lazy import np
from regft_core.rng import derive
from regft_core.scoring.findings import Findings, Plot, Table, bounds

if TYPE_CHECKING:
    import numpy.typing as npt

    from regft_core.data.encode import Encoded
    from regft_core.scoring.evaluated import EvaluatedRun, TrainedModel

DESCRIPTION = "scores when the most or the least important tokens are left out"
NEEDS_MODEL = True
SCORES = True
READS_VIEWS = True

_ORDERS = ("descending", "ascending", "random")
#: Example -> for each of its rows of tokens ``[n]``.
PerToken = Sequence[Sequence["npt.NDArray[Any]"]]


class Config(StrictModel):
    shares: Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], Field(strict=False, min_length=1)] = Field(
        (0.1, 0.3, 0.5), description="of a text's tokens that are left out"
    )
    sets: Literal["dev", "all"] = Field("dev", description="the development set, or all sets")
    rows: int = Field(200, ge=1, description="examples of a set, the same for all runs; all when it has fewer")


def run(run: EvaluatedRun) -> Findings:
    options, primary = run.options, run.task["primary"]
    scalars: dict[str, dict[str, float]] = {}
    tables: dict[str, dict[str, Table]] = {}
    by = ""
    for judged in run.chosen_sets(options.sets):
        part = run.some(judged, options.rows)
        encoded = run.trained.encode(part.examples)
        by, scores = importance(run.trained, encoded)
        drawn = np.random.default_rng(derive(run.seed, "deletion.random", part.name))
        chance = [[drawn.random(len(row)) for row in rows] for rows in scores]
        of = {"descending": scores, "ascending": [[-row for row in rows] for rows in scores], "random": chance}
        found = {(order, 0.0): run.score(part) for order in _ORDERS}
        for order in _ORDERS:
            for share in sorted(set(options.shares)):
                shorter = without(encoded, of[order], share)
                found[order, share] = run.score(part.with_logits(run.trained.predict(shorter)))
        gaps = [found["ascending", share] - found["descending", share] for share in options.shares]
        plot = Plot("share", primary, panels="sets", group="order", paired=True)
        rows = tuple((order, share, value) for (order, share), value in found.items())
        tables[part.name] = {"deletion": Table(("order", "share", primary), rows, keys=2, plot=plot)}
        scalars[part.name] = {f"{order}_{share:g}": value for (order, share), value in found.items() if share}
        scalars[part.name] |= {"clean": found["random", 0.0], "gap": float(np.mean(gaps))}
    metric = metrics.find(primary)
    ranges = {name: bounds(metric.range) for named in scalars.values() for name in named if name != "gap"}
    ranges["gap"] = bounds((-metric.largest_difference, metric.largest_difference))
    return Findings(scalars, tables, ranges, (f"tokens are ordered by {by}",))


def importance(trained: TrainedModel, encoded: Encoded) -> tuple[str, PerToken]:
    """What tokens are ordered by, and its value for every token of every row."""
    from regft_core.scoring.hidden import embedding_output, gradient_times_input, per_example

    found: list[list[Any]] = [[] for _ in range(len(encoded))]
    by = "the confidence that the method has learned"
    for batch in trained.batches(encoded):
        values = trained.confidence(embedding_output(trained.model, batch))
        if values is None:
            by, values = "gradient times input", gradient_times_input(trained.model, batch)
        per_example(values, batch, found)
    return by, found


def without(encoded: Encoded, order: PerToken, share: float) -> Encoded:
    """``encoded`` without ``share`` of each example's text tokens, those with the largest values first.

    Equal values go in the order of the text. The rows of an example are one text here.
    """
    from regft_core.scoring.token_edits import editable, with_kept

    kept = []
    for rows, values in zip(editable(encoded), order, strict=True):
        free, flat = np.concatenate(rows), np.concatenate(list(values))
        places = np.flatnonzero(free)
        ranked = places[np.argsort(-flat[places], kind="stable")]
        keep = np.ones(len(free), dtype=bool)
        keep[ranked[: round(share * len(places))]] = False
        kept.append(np.split(keep, np.cumsum([len(row) for row in rows])[:-1]))
    return with_kept(encoded, kept)
