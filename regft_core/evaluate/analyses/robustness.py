"""Scores when tokens of the text are replaced at random (TDT, Zeng et al. 2022, section 4.4 and figure 5).

Every token of a text is replaced with probability ``rate``, by the mask token or by a token drawn from the same input
(both texts of a pair). Added tokens such as [CLS] stay. ``copies`` perturbed copies per rate have random streams of
their own; the paper makes 10 and draws a violin per arm and rate. All arms of one seed read the same copies. Rate 0 is
the stored prediction. The score is the task's primary metric.

Where the paper is silent: which of the two a token becomes is a fair coin per token (``mixed``). Tokens are drawn from
the input as often as they occur in it. What is replaced at a rate is also replaced, by the same token, at every larger
rate of the same copy. The violins are of the first seed's copies, as copies of several runs are no draws from one.

Ours: ``mask`` and ``sampled`` replace by one of the two only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from regft_core import metrics
from regft_core.evaluate.analysis_result import Findings, Plot, Table, Unfit, bounds
from regft_core.lazy import np
from regft_core.rng import derive
from regft_core.schema import StrictModel

if TYPE_CHECKING:
    from regft_core.data.encode import Encoded
    from regft_core.evaluate.evaluated import EvaluatedRun
    from regft_core.evaluate.token_edits import PerRow

DESCRIPTION = "scores when tokens are masked, or replaced by others of the same input, at random (TDT, figure 5)"
NEEDS_MODEL = True
SCORES = True

Noise = Literal["mixed", "mask", "sampled"]


class Config(StrictModel):
    rates: Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], Field(strict=False, min_length=1)] = Field(
        (0.1, 0.3, 0.5), description="probability that a token is replaced"
    )
    noise: Annotated[tuple[Noise, ...], Field(strict=False, min_length=1)] = Field(
        ("mixed",), description="by what: mixed (paper), or one of the two only, mask or sampled (ours)"
    )
    copies: int = Field(10, ge=1, le=100, description="perturbed copies per rate")
    sets: Literal["dev", "all"] = Field("dev", description="the development set, or all sets")
    rows: int = Field(200, ge=1, description="examples of a set, the same for all runs; all when it has fewer")


def run(run: EvaluatedRun) -> Findings:
    options, primary = run.options, run.task["primary"]
    mask = run.trained.tokenizer.mask_token_id
    kinds = [noise for noise in options.noise if noise == "sampled" or mask is not None]
    unmasked = "the tokenizer has no mask token, so none was masked"
    if not kinds:
        raise Unfit(unmasked)
    remarks = () if len(kinds) == len(options.noise) else (unmasked,)
    scalars: dict[str, dict[str, float]] = {}
    tables: dict[str, dict[str, Table]] = {}
    for judged in run.chosen_sets(options.sets):
        part = run.some(judged, options.rows)
        encoded = run.trained.encode(part.examples)
        clean, rows = run.score(part), []
        scalars[part.name] = {"clean": clean}
        copied: list[tuple[str, float, int, float]] = []
        for noise in kinds:
            rows.append((noise, 0.0, clean, clean, clean))
            for rate in sorted(set(options.rates)):
                scores = []
                for copy in range(options.copies):
                    stream = derive(run.seed, "robustness", part.name, copy)
                    other = perturbed(encoded, rate, stream, noise, mask)
                    scores.append(run.score(part.with_logits(run.trained.predict(other))))
                mean = float(np.mean(scores))
                rows.append((noise, rate, mean, min(scores), max(scores)))
                copied += [(noise, rate, copy, score) for copy, score in enumerate(scores)]
                scalars[part.name][f"{noise}_{rate:g}"] = mean
        plot = Plot("rate", primary, panels="sets", group="noise", paired=True)
        columns = ("noise", "rate", primary, "lowest copy", "highest copy")
        violins = Plot("rate", primary, panels="sets", group="noise", violins=True)
        tables[part.name] = {
            "copies": Table(("noise", "rate", "copy", primary), tuple(copied), plot=violins, listed=False),
            "robustness": Table(columns, tuple(rows), keys=2, plot=plot),
        }
    names = {name for named in scalars.values() for name in named}
    return Findings(scalars, tables, dict.fromkeys(names, bounds(metrics.find(primary).range)), remarks)


def perturbed(encoded: Encoded, rate: float, stream: int, noise: Noise, mask: int | None) -> Encoded:
    """``encoded`` with tokens replaced, each with probability ``rate``.

    Args:
        stream: seed of the draws; the tokens that change at one rate change at every larger one, too.
        noise: by ``mask``, by a token of the same input (``sampled``), or by either with equal chances (``mixed``).
    """
    from regft_core.evaluate.token_edits import with_replaced

    generator = np.random.default_rng(stream)
    share = {"mixed": 0.5, "mask": 1.0, "sampled": 0.0}[noise]

    def draw(ids: PerRow, free: PerRow) -> list[Any]:
        pool = np.concatenate([own[may] for own, may in zip(ids, free, strict=True)])
        found = []
        for own in ids:
            chances, coin = generator.random(len(own)), generator.random(len(own))
            places = generator.integers(max(1, len(pool)), size=len(own))
            other = pool[places] if len(pool) else own
            found.append(np.where(chances < rate, np.where(coin < share, -1 if mask is None else mask, other), own))
        return found

    return with_replaced(encoded, draw)
