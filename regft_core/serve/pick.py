"""The choice of rows to label next: those that a model is unsure of, unlike each other.

The next row has the largest product of uncertainty and distance (cosine of TF-IDF) from those already taken, a greedy
form of the k-means++ seeding in BADGE (Ash et al., ICLR 2020).
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from regft_core.data.examples import Example
from regft_core.data.file_format import Row
from regft_core.data.table import open_table
from regft_core.disk.files import write_text
from regft_core.errors import DataError
from regft_core.kinds import find
from regft_core.schema.sources import UNSAID, FileFormat
from regft_core.serve.answers import (
    DIGITS,
    Counted,
    Writer,
    check_output,
    format_of,
    readable,
    require_columns,
    require_text,
)
from regft_core.serve.model import ServedModel


class Picked(NamedTuple):
    """Counts: rows written, read, without text, and left out because an earlier row has their text."""

    rows: int
    read: int
    empty: int
    repeated: int


def choose(uncertainty: npt.NDArray[np.float64], vectors: Any, k: int) -> list[int]:
    """Return ``k`` rows as they are taken, by uncertainty [n], 0 to 1, and sparse ``vectors`` [n, V] of length 1."""
    taken: list[int] = []
    distance = np.ones(len(uncertainty))
    # A certain row keeps a small weight, so that k rows are found.
    weight = np.maximum(uncertainty, 1e-6)
    left = np.ones(len(uncertainty), dtype=bool)
    for _ in range(min(k, len(uncertainty))):
        gain = np.where(left, weight * np.maximum(distance, 1e-9), -1.0)
        row = int(gain.argmax())
        taken.append(row)
        left[row] = False
        near = np.asarray((vectors @ vectors[row].T).todense()).ravel()
        distance = np.minimum(distance, 1 - near)
    return taken


def pick_file(
    model: ServedModel, data: Path, out: Path, k: int, how: FileFormat = UNSAID, *, overwrite: bool = False
) -> Picked:
    """Write the ``k`` rows worth labelling next: all columns, prediction and uncertainty. Raises DataError."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    check_output(out, data, overwrite)
    with open_table(data, format_of(data, how, model)) as table:
        names = list(table.names)
        require_columns(table, model.columns, (), data)
        counted = Counted()
        every = [(row, readable(row, model.columns, counted)) for row in table.rows]
    counted.rows = len(every)
    require_text(counted, data)
    own = ["prediction", "uncertainty"]
    if taken := [name for name in names if name in own]:
        raise DataError("column-taken", f"{data} has a column '{taken[0]}', which is written\n    -> rename it")
    first: dict[tuple[str, str | None], tuple[Row, Example]] = {}
    with_text = [(row, example) for row, example in every if example is not None]
    for row, example in with_text:
        first.setdefault((example.text, example.text_pair), (row, example))
    if not first:
        raise DataError("no-rows", f"{data}: no row has a text\n    -> name another column: --text COLUMN")
    rows, examples = zip(*first.values())
    scores = model.scores(examples)
    words = TfidfVectorizer(sublinear_tf=True, token_pattern=r"(?u)\b\w+\b")
    texts = [f"{example.text} {example.text_pair or ''}" for example in examples]
    vectors = words.fit_transform(texts) if any(any(c.isalnum() for c in one) for one in texts) else None
    unsure = uncertainty(scores, model.served.kind)
    chosen = choose(unsure, vectors, k) if vectors is not None else np.argsort(-unsure, kind="stable")[:k].tolist()
    kind, file = find(model.served.kind), io.StringIO()
    writer = Writer(out.suffix.lower(), file, [*names, *own], own[1:])
    for index in chosen:
        answer = kind.answer(model.served.deciding(scores[index].tolist()), model.labels)
        writer.row({**rows[index].values, "prediction": answer, "uncertainty": round(unsure[index], DIGITS)})
    write_text(out, file.getvalue())
    return Picked(len(chosen), len(every), len(every) - len(with_text), len(with_text) - len(first))


def uncertainty(scores: npt.NDArray[np.float64], kind: str) -> npt.NDArray[np.float64]:
    """[n], 0 to 1, of scores [n, K]: how unsure the model is of each row.

    One label per row: 1 minus the margin between the two largest probabilities. Any number of labels: 1 minus
    |2p - 1| of the label of which it is least sure (BinMin; Brinker, "On Active Learning in Multi-label
    Classification", 2006). Values have no probabilities: 1 for every row.
    """
    of = find(kind)
    if not of.has_labels:
        return np.ones(len(scores))
    if not of.one_label:
        return np.asarray(1 - np.abs(2 * scores - 1).min(axis=1))
    ordered = np.sort(scores, axis=1)
    return np.asarray(1 - (ordered[:, -1] - ordered[:, -2]))
