"""A few rows of a set: real ones where they are on this disk, else generated stand-ins with the set's own labels."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from random import Random

from regft_core.data import builtin
from regft_core.data.examples import Example
from regft_core.data.hub import is_fetched
from regft_core.data.rows import Declaration
from regft_core.data.sources import Source, read_split
from regft_core.errors import DataError
from regft_core.kinds import find
from regft_core.rng import derive, shuffled
from regft_core.schema.tasks import HubSource

#: Rows that a stand-in may be taken from.
_GENERATED = 400


@dataclass(frozen=True)
class Wanted:
    """One set: where its rows are, what they mean, and how many are taken. ``name`` is for draws and messages."""

    name: str
    source: Source
    split: str
    declaration: Declaration
    rows: int
    training: bool


def is_here(root: Path, wanted: Wanted) -> bool:
    """Whether real rows of a set are on this disk; a set in files that lacks its file is an error of its own."""
    return not isinstance(wanted.source, HubSource) or is_fetched(root, wanted.source, wanted.split)


def small_rows(root: Path, wanted: Wanted, real: bool) -> str:
    """JSON lines with the columns ``text``, ``text_pair`` (of pairs) and ``label`` (a name, or a number).

    Args:
        real: rows of the set itself, drawn without replacement; else generated ones.

    Raises DataError: the rows cannot be read, or have several labels each.
    """
    if find(wanted.declaration.kind).has_labels and not find(wanted.declaration.kind).one_label:
        raise DataError(
            "several-labels",
            f"{wanted.name}: --scale small takes sets with one label or one number in each row\n"
            "    -> leave --scale out, or give such a set",
        )
    if real:
        found = read_split(root, wanted.name, wanted.source, wanted.split, wanted.declaration).examples
        stream = Random(derive(0, "small", wanted.name, wanted.split))
        examples = shuffled(found, stream)[: wanted.rows]
    else:
        examples = _generated(wanted)
    return "".join(_line(example, wanted.declaration) for example in examples)


def _line(example: Example, declaration: Declaration) -> str:
    label = declaration.labels[int(example.label)] if declaration.labels else example.label
    row = {"text": example.text, "label": label}
    if example.text_pair is not None:
        row["text_pair"] = example.text_pair
    return json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n"


def _generated(wanted: Wanted) -> list[Example]:
    """Rows of the built-in cue tasks, other ones for every set, whose answers are spread over the set's labels.

    Of more than two labels the texts name the group of two that the label is in.
    """
    declaration = wanted.declaration
    labels, paired = declaration.labels, declaration.columns.text_pair is not None
    generator = "cue_regression" if not labels else "cue_pair" if paired else "cue_sentence"
    split = "train" if wanted.training else "reversed" if wanted.split.startswith("ood") else "dev"
    options = {"difficulty": "easy", "rows": dict.fromkeys(builtin.SPLITS, _GENERATED)}
    start = 0 if wanted.training else zlib.crc32(wanted.name.encode()) % (_GENERATED - wanted.rows)
    found = []
    for number, row in enumerate(builtin.generate(generator, split, options)[start : start + wanted.rows]):
        pair = row.text_pair if paired else None
        if not labels:
            low, high = declaration.range or (0.0, 5.0)
            found.append(Example(row.idx, row.text, pair, low + (high - low) * row.label / 5))
            continue
        groups = (len(labels) + 1) // 2
        group = number % groups
        text = f"Subject {group}. {row.text}" if groups > 1 else row.text
        found.append(Example(row.idx, text, pair, min(2 * group + int(row.label), len(labels) - 1)))
    return found
