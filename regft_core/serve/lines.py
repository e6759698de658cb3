"""The lines that answer rows: a prediction with its scores for each text, the same in files, streams and requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from regft_core.data.examples import Example, means_none
from regft_core.kinds import find
from regft_core.serve.model import ServedAnswers, ServedModel
from regft_core.serve.writing import DIGITS, rounded


@dataclass
class Counted:
    """What happened to the rows of a file.

    Attributes:
        cut: to the model's length.
        empty: rows without prediction; ``unreadable`` of them hold something else than text, the others nothing.
        words_for_none: rows whose text is ``nan``, ``None`` or another word that programs write for a missing text.
        abstained: rows on which the model is not confident enough to answer.
        resumed: rows that an earlier call predicted.
    """

    SHOWN: ClassVar[int] = 3

    rows: int = 0
    cut: int = 0
    empty: int = 0
    unreadable: int = 0
    unreadable_rows: list[str] = field(default_factory=list)
    words_for_none: int = 0
    abstained: int = 0
    resumed: int = 0
    seconds: float = 0.0


def columns_of(model: ServedModel | ServedAnswers) -> list[str]:
    """The columns of an answer, after the number of its row."""
    return ["prediction", *(["answered"] if model.abstain else []), *find(model.kind).score_columns(model.labels)]


def answers(
    model: ServedModel | ServedAnswers,
    examples: Sequence[Example | None],
    counted: Counted,
    kept: Sequence[Mapping[str, Any]] = (),
    scores: Sequence[Sequence[float]] | None = None,
) -> Iterator[dict[str, Any]]:
    """The lines of some rows, in their order: ``row``, what is ``kept`` of each, ``columns_of`` the model.

    Args:
        examples: None for a row without a text, which gets no prediction.
        counted: goes on counting; ``row`` is its number of rows.
        scores: of the examples that are there, where they were computed with others'; else computed here.
    """
    present = [example for example in examples if example is not None]
    if scores is None:
        scores = model.scores(present).tolist() if present else []
    found = iter(scores)
    counted.cut += model.cut(present) if present else 0
    counted.empty += len(examples) - len(present)
    counted.words_for_none += sum(means_none(example.text) for example in present)
    kind = find(model.kind)
    names = kind.score_columns(model.labels)
    for index, example in enumerate(examples):
        counted.rows += 1
        values: dict[str, Any] = {"row": counted.rows, **(kept[index] if kept else {})}
        if example is not None:
            own = list(next(found))
            answer = kind.answer(own, model.labels)
            if model.abstain is not None:
                values["answered"] = max(own) >= model.abstain.threshold
                counted.abstained += not values["answered"]
            if values.get("answered", True):
                values["prediction"] = answer if isinstance(answer, str) else rounded(answer)
            values |= {name: round(score, DIGITS) for name, score in zip(names, own)}
        yield values
