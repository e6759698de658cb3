"""Scores when tokens of the text are replaced at random (as TDT, Zeng et al. 2022, figure 5, asks).

Every token of a text is replaced with probability ``rate``: by the tokenizer's mask token (``mask``), or by a
token drawn from the same set's own tokens as often as they occur there (``sampled``; the paper does not say from
where it draws). Added tokens such as [CLS] stay. ``copies`` perturbed copies per rate have random streams of their
own; what is replaced at a rate is also replaced, by the same token, at every larger rate of the same copy, and all
arms of one seed read the same copies. Rate 0 is the stored prediction. The score is the task's primary metric.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from regft_core import metrics
from regft_core.config.schema import StrictModel
from regft_core.lazy import np
from regft_core.rng import derive
from regft_core.scoring.findings import Findings, Plot, Table, Unfit, bounds

if TYPE_CHECKING:
    import numpy.typing as npt

    from regft_core.data.encode import Encoded
    from regft_core.scoring.evaluated import EvaluatedRun

DESCRIPTION = "scores when tokens are masked, or replaced by others, at random"
NEEDS_MODEL = True
SCORES = True

Noise = Literal["mask", "sampled"]


class Config(StrictModel):
    rates: Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], Field(strict=False, min_length=1)] = Field(
        (0.1, 0.3, 0.5), description="probability that a token is replaced"
    )
    noise: Annotated[tuple[Noise, ...], Field(strict=False, min_length=1)] = Field(
        ("mask", "sampled"), description="by what tokens are replaced"
    )
    copies: int = Field(2, ge=1, le=100, description="perturbed copies per rate")
    sets: Literal["dev", "all"] = Field("dev", description="the development set, or all sets")
    rows: int = Field(200, ge=1, description="examples of a set, the same for all runs; all when it has fewer")


def run(run: EvaluatedRun) -> Findings:
    options, primary = run.options, run.task["primary"]
    mask = run.trained.tokenizer.mask_token_id
    kinds = [noise for noise in options.noise if noise != "mask" or mask is not None]
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
        for noise in kinds:
            rows.append((noise, 0.0, clean, clean, clean))
            for rate in sorted(set(options.rates)):
                scores = []
                for copy in range(options.copies):
                    stream = derive(run.seed, f"robustness.{noise}", part.name, copy)
                    other = perturbed(encoded, rate, stream, mask if noise == "mask" else None)
                    scores.append(run.score(part.with_logits(run.trained.predict(other))))
                mean = float(np.mean(scores))
                rows.append((noise, rate, mean, min(scores), max(scores)))
                scalars[part.name][f"{noise}_{rate:g}"] = mean
        plot = Plot("rate", primary, panels="sets", group="noise", paired=True)
        columns = ("noise", "rate", primary, "lowest copy", "highest copy")
        tables[part.name] = {"robustness": Table(columns, tuple(rows), keys=2, plot=plot)}
    names = {name for named in scalars.values() for name in named}
    return Findings(scalars, tables, dict.fromkeys(names, bounds(metrics.find(primary).range)), remarks)


def perturbed(encoded: Encoded, rate: float, stream: int, mask: int | None) -> Encoded:
    """``encoded`` with tokens replaced by ``mask``, or by tokens drawn from ``encoded`` itself when it is None.

    Args:
        stream: seed of the draws; the tokens that change at one rate change at every larger one, too.
    """
    from regft_core.scoring.token_edits import parts, with_replaced

    own = [np.asarray(ids)[np.asarray(special) == 0] for part in parts(encoded) for ids, special in _rows(part)]
    pool = np.concatenate(own) if own else np.zeros(0, dtype=np.int64)
    generator = np.random.default_rng(stream)

    def draw(ids: npt.NDArray[Any], free: npt.NDArray[Any]) -> npt.NDArray[Any]:
        chances = generator.random(len(ids))
        places = generator.integers(max(1, len(pool)), size=len(ids))
        if not free.any():
            return ids
        return np.where(chances < rate, pool[places] if mask is None else mask, ids)

    return with_replaced(encoded, draw)


def _rows(part: Any) -> Any:
    return zip(part["input_ids"], part["special_mask"], strict=True)
