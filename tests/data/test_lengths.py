"""Token lengths without truncation, the share that is cut, and what to do about it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regft_core.data import lengths
from regft_core.data.encode import encode
from regft_core.data.examples import Example
from regft_core.data.lengths import measure, share, table, warnings
from regft_core.models.export_record import Served
from regft_core.serve.answers import Counted
from regft_core.serve.model import ServedModel
from stages.predict import _say
from tests.tiny import ARCHITECTURES, tiny_tokenizer

#: A set all of whose words the vocabulary has.
READ = {"rows": 5, "unknown": 0.0}
TEXTS = ["a film", "the plot was not good, but the actor was great!", "yes", "is it a bad story? no. " * 12]


def singles(*texts: str) -> list[Example]:
    return [Example(str(i), text, None, 0) for i, text in enumerate(texts)]


def pairs() -> list[Example]:
    return [Example(str(i), text, other, 0) for i, (text, other) in enumerate(zip(TEXTS, reversed(TEXTS), strict=True))]


def reading(cut: float = 0.0, p95: int = 40, longest: int = 60) -> dict[str, Any]:
    return {"median": 20, "p95": p95, "longest": longest, "cut": cut}


def found(limit: int | None = 512, max_length: int = 128, windows: int = 1, **sets: dict[str, Any]) -> dict[str, Any]:
    read = {"max_length": max_length, "limit": limit, "windows": windows}
    return read | {"sets": {name: {**one, **READ} for name, one in sets.items()}}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("rows", [1, 2])
def test_lengths_are_those_of_what_the_model_reads(architecture: str, rows: int) -> None:
    tokenizer = tiny_tokenizer(architecture)
    read = encode(pairs(), tokenizer, 4096, rows_per_example=rows).lengths
    core = tokenizer.backend_tokenizer
    core.enable_truncation(16)  # as checkpoints are saved; nothing may be cut here
    measured = measure(pairs(), core, 100, apart=rows == 2)
    assert measured["longest"] == max(read)
    assert measured["cut"] == sum(length > 100 for length in read) / 4


def test_median_and_percentile_count_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    core = tiny_tokenizer("bert").backend_tokenizer
    examples = singles(*(" ".join(["good"] * n) for n in range(1, 101)))
    one = measure(examples, core, 62)
    assert one.items() >= {"median": 52, "p95": 97, "longest": 102, "cut": 0.4}.items()
    monkeypatch.setattr(lengths, "MOST_ROWS", 10)
    some = measure(examples, core, 62)
    assert (some["rows"], some["measured"], some["cut"]) == (100, 10, 0.4)


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"train": reading(0.62, 410, 800)}, "model.max_length: 416 in params.yaml."),
        ({"dev": reading(0.9, 900, 2000)}, "model.max_length: 512 in params.yaml and set model: {windows: 4, "),
        ({"max_length": 512, "dev": reading(0.9, 900, 2000)}, "To read more, set model: {windows: 4, stride: 64}"),
        ({"limit": 64, "windows": 32, "dev": reading(0.9, 900, 2000)}, "{windows: 64, stride: 31}"),
        ({"limit": 64, "max_length": 64, "windows": 64, "dev": reading(0.9, 900, 2000)}, "the longest has 2000."),
        ({"limit": None, "dev": reading(0.9, 900, 2000)}, "model.max_length: 904 in params.yaml"),
    ],
)
def test_a_tenth_is_silent_and_more_names_the_value_to_set(changes: dict[str, Any], advice: str) -> None:
    (text,) = warnings("t", found(**changes, other=reading(0.10)))
    assert advice in text
    assert "of other" not in text


def test_the_table_and_shares_never_round_to_nothing() -> None:
    lines = table({"t": found(train=reading(0.0004), dev=reading(1.0))}).splitlines()
    assert lines[1].split() == ["t", "train", "5", "20", "40", "60", "under", "0.1%", "0.0%"]
    assert lines[2].split()[-2] == "100.0%"
    assert share(0.9999) == "over 99.9%"
    assert share(0.0) == "0.0%"


def test_what_the_vocabulary_lacks_is_counted_and_warned_of() -> None:
    core = tiny_tokenizer("bert").backend_tokenizer
    amharic = ["ወንበር ተሰበረ", "መብራት ወድጄዋለሁ", "ማሰሮ አልወደድኩትም ወንበር", "ማሰሮ አልወደድኩትም"]
    core.enable_padding(length=128)  # as checkpoints are saved; padding is no word
    one = measure(singles(*amharic), core, 62)
    assert one["unknown"] == 1.0
    assert measure(singles("good film", "Good film"), core, 62)["unknown"] == 0.0
    known = {**READ, **reading()}
    described = {"max_length": 128, "limit": 512, "sets": {"train": {**known, "unknown": 0.03}, "dev": known}}
    assert warnings("t", described) == []
    described["sets"]["train"] = {**known, "unknown": 0.38}
    (text,) = warnings("t", described)
    for words in ("38.0% of train", "xlm-roberta"):
        assert words in text


def test_predictions_tell_how_much_of_a_text_was_read(capsys: pytest.CaptureFixture[str]) -> None:
    served = Served(text="text", kind="classification", max_length=16, windows=2)
    _say(ServedModel(served, ("bad", "good"), Path(), lambda _: np.empty(0)), Counted(rows=4, cut=1), sys.stdout)
    assert "only the first 2 windows of 16 tokens of 1 row (25.0%) were read" in capsys.readouterr().err
