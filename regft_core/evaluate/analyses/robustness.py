"""Scores when tokens of the text are replaced at random (TDT, Zeng et al. 2022, section 4.4 and figure 5).

Every token of a text is replaced with probability ``rate``, by the mask token or by a token drawn from the same input
(both texts of a pair). Added tokens such as [CLS] stay. ``copies`` perturbed copies per rate have random streams of
their own; the paper makes 10 and draws a violin per arm and rate, here are their mean, lowest and highest score. All
arms of one seed read the same copies. Rate 0 is the stored prediction. The score is the task's primary metric.

Where the paper is silent: which of the two a token becomes is a fair coin per token. Tokens are drawn from the input
as often as they occur in it. What is replaced at a rate is also replaced, by the same token, at every larger rate of
the same copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from regft_core import metrics
from regft_core.evaluate.analysis_result import Findings, Plot, SomeRows, Table
from regft_core.lazy import np
from regft_core.rng import derive

if TYPE_CHECKING:
    from regft_core.data.encode import Encoded
    from regft_core.evaluate.evaluated import EvaluatedRun
    from regft_core.evaluate.hidden import PerRow

DESCRIPTION = "scores when tokens are masked, or replaced by others of the same input, at random (TDT, figure 5)"
NEEDS_MODEL = True
SCORES = True


class Config(SomeRows):
    rates: Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], Field(strict=False, min_length=1)] = Field(
        (0.1, 0.3, 0.5), description="probability that a token is replaced"
    )
    copies: int = Field(10, ge=1, le=100, description="perturbed copies per rate")


def run(run: EvaluatedRun) -> Findings:
    from regft_core.evaluate.hidden import mask_token

    options, primary = run.options, run.task["primary"]
    mask = mask_token(run.trained)
    scalars: dict[str, dict[str, float]] = {}
    tables: dict[str, dict[str, Table]] = {}
    for part in run.parts:
        encoded, clean = run.trained.encode(part.examples), run.score(part)
        rows, means = [(0.0, clean, clean, clean)], {"clean": clean}
        for rate in sorted(set(options.rates)):
            copies = (
                perturbed(encoded, rate, derive(run.seed, "robustness", part.name, copy), mask)
                for copy in range(options.copies)
            )
            scores = [run.score(part.with_logits(run.trained.predict(copy))) for copy in copies]
            means[f"rate_{rate:g}"] = float(np.mean(scores))
            rows.append((rate, means[f"rate_{rate:g}"], min(scores), max(scores)))
        columns = ("rate", primary, "lowest copy", "highest copy")
        plot = Plot("rate", primary)
        scalars[part.name] = means
        tables[part.name] = {"robustness": Table(columns, tuple(rows), keys=1, plot=plot)}
    names = {name for named in scalars.values() for name in named}
    return Findings(scalars, tables, dict.fromkeys(names, metrics.find(primary).range))


def perturbed(encoded: Encoded, rate: float, stream: int, mask: int) -> Encoded:
    """``encoded`` with tokens replaced, each with probability ``rate``, by ``mask`` or a token of the same input.

    ``stream`` is the seed of the draws; the tokens that change at one rate change at every larger one, too.
    """
    from regft_core.evaluate.hidden import with_replaced

    generator = np.random.default_rng(stream)

    def draw(ids: PerRow, free: PerRow) -> list[Any]:
        pool = np.concatenate([own[may] for own, may in zip(ids, free, strict=True)])
        found = []
        for own in ids:
            chances, coin = generator.random(len(own)), generator.random(len(own))
            places = generator.integers(max(1, len(pool)), size=len(own))
            other = pool[places] if len(pool) else own
            found.append(np.where(chances < rate, np.where(coin < 0.5, mask, other), own))
        return found

    return with_replaced(encoded, draw)
