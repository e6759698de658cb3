"""The worst mistakes with their texts: the most confident ones, or the largest errors of a regression.

Equal ones come in the order of the set, so the list is the same wherever it is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from regft_core.evaluate.analysis_result import Cell, Findings, Table
from regft_core.kinds import find
from regft_core.lazy import np
from regft_core.schema import StrictModel

if TYPE_CHECKING:
    import numpy.typing as npt

    from regft_core.evaluate.evaluated import EvaluatedRun, EvaluatedSet

DESCRIPTION = "the most confident mistakes (the largest errors of a regression), with their texts"
KINDS = ("classification", "multi_label", "regression")
NEEDS_MODEL = False


class Config(StrictModel):
    k: int = Field(10, ge=1, le=1000, description="mistakes per set")
    characters: int = Field(400, ge=20, le=100_000, description="of each text; longer ones are cut and end in …")


def run(run: EvaluatedRun) -> Findings:
    tables = {
        name: {"mistakes": worst(judged, run.options.k, run.options.characters)} for name, judged in run.sets.items()
    }
    scalars = {name: {"mistakes": float(wrong.sum())} for name, wrong in _wrong(run).items()}
    return Findings(scalars, tables, {"mistakes": (0.0, None)})


def _wrong(run: EvaluatedRun) -> dict[str, npt.NDArray[Any]]:
    """Whether each example is wrong; nothing of a regression, whose every value is a little wrong."""
    if not find(run.kind).has_labels:
        return {}
    return {name: judged.predictions != judged.gold for name, judged in run.sets.items()}


def worst(judged: EvaluatedSet, k: int, characters: int) -> Table:
    """The ``k`` mistakes that the run was surest of, the surest first."""
    texts = ("text", "text_pair") if any(example.text_pair is not None for example in judged.examples) else ("text",)

    def row(i: int, *between: Cell) -> tuple[Cell, ...]:
        example = judged.examples[i]
        return example.idx, *between, *(_cut(getattr(example, text), characters) for text in texts)

    if not find(judged.kind).has_labels:
        errors = np.abs(judged.predictions - judged.gold)
        chosen = np.argsort(-errors, kind="stable")[:k]
        rows = [row(i, float(judged.gold[i]), float(judged.predictions[i]), float(errors[i])) for i in chosen]
        return Table(("idx", "gold", "predicted", "error", *texts), tuple(rows))
    confidences = judged.confidences()
    wrong = np.flatnonzero(judged.predictions != judged.gold)
    chosen = wrong[np.argsort(-confidences[wrong], kind="stable")][:k]
    both = judged.gold, judged.predictions
    shown = [[find(judged.kind).shown(values[i], judged.labels) for values in both] for i in chosen]
    rows = [row(i, *names, float(confidences[i])) for i, names in zip(chosen, shown, strict=True)]
    return Table(("idx", "gold", "predicted", "confidence", *texts), tuple(rows))


def _cut(text: str | None, characters: int) -> str | None:
    return text if text is None or len(text) <= characters else text[: characters - 1] + "…"
