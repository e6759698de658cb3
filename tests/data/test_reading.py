"""Texts as rows of tokens, and batches of them: instructions, windows, lengths, and the share that is cut."""

from __future__ import annotations

import dataclasses
import random
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from regft_core.data import lengths
from regft_core.data.batches import Padding, collate, evaluation_batches
from regft_core.data.encode import Encoded, encode
from regft_core.data.examples import Example
from regft_core.data.lengths import measure, row_lengths, share, table, warnings
from regft_core.data.prompts import Reading
from regft_core.errors import DataError
from regft_core.models.export_record import Served
from regft_core.schema.training import EncoderConfig
from regft_core.serve.answers import Counted
from regft_core.serve.model import ServedModel
from regft_core.training.samplers import by_length
from regft_core.training.step import repeat_batch
from stages.predict import _say
from tests.errors import raises_code
from tests.tiny import ARCHITECTURES, EMBEDDERS, tiny_tokenizer

many_lengths = st.lists(st.integers(1, 128), max_size=150)
epoch_batches = partial(by_length, labels=())


@given(many_lengths, st.integers(0, 2**62), st.integers(0, 99), st.integers(1, 20), st.integers(1, 60))
def test_every_example_exactly_once(lengths: list[int], seed: int, epoch: int, batch_size: int, bucket: int) -> None:
    arguments: dict[str, Any] = {"seed": seed, "epoch": epoch, "batch_size": batch_size, "bucket_batches": bucket}
    batches = epoch_batches(lengths, **arguments)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert len(batches) == -(-len(lengths) // batch_size)
    assert sorted(len(batch) for batch in batches)[1:] == [batch_size] * (len(batches) - 1)
    assert batches == epoch_batches(lengths, **arguments)


def test_epochs_and_seeds_differ_and_one_bucket_batch_ignores_lengths() -> None:
    lengths = [random.Random(i).randint(5, 60) for i in range(300)]
    for bucket in (50, 4):
        own, *others = (
            {*map(frozenset, epoch_batches(lengths, seed=s, epoch=e, batch_size=16, bucket_batches=bucket))}
            for s, e in ((0, 0), (0, 1), (1, 0))
        )
        assert all(len(own & other) < len(own) / 2 for other in others)
    arguments: dict[str, Any] = {"seed": 3, "epoch": 0, "batch_size": 4, "bucket_batches": 1}
    assert epoch_batches([5] * 30, **arguments) == epoch_batches(list(range(1, 31)), **arguments)


def test_the_short_batch_holds_the_longest_texts_and_all_batches_come_at_any_time() -> None:
    found = [epoch_batches(list(range(1, 36)), seed=s, epoch=0, batch_size=8, bucket_batches=50) for s in range(100)]
    assert all([32, 33, 34] in batches for batches in found)
    assert {batches.index([32, 33, 34]) for batches in found} == set(range(5))
    assert len({tuple(sorted(batches[0])) for batches in found}) == 5


@given(many_lengths, st.integers(1, 200))
def test_evaluation_covers_everything_longest_first(lengths: list[int], tokens: int) -> None:
    rows, names = [[1] * length for length in lengths], [str(i) for i in range(len(lengths))]
    batches = evaluation_batches(Encoded(rows, None, [0] * len(rows), names, rows), tokens)
    assert all(len(batch) == 1 or len(batch) * lengths[batch[0]] <= tokens for batch in batches)
    assert all((len(batch) + 1) * lengths[batch[0]] > tokens for batch in batches[:-1])
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    flat = [lengths[index] for batch in batches for index in batch]
    assert flat == sorted(lengths, reverse=True)


ENCODED = Encoded(
    input_ids=[[1, 5, 2], [1, 6, 7, 8, 2]],
    token_type_ids=[[0, 0, 0], [0, 0, 1, 1, 1]],
    labels=[1, 0],
    ids=["a", "b"],
    segment=[[-1, 0, -1], [-1, 0, 1, 1, -1]],
)


def test_padding_on_either_side_has_its_own_token_type() -> None:
    batch = collate(ENCODED, [1, 0], Padding(9))
    assert batch.input_ids.tolist() == [[1, 6, 7, 8, 2], [1, 5, 2, 9, 9]]
    assert (batch.labels.tolist(), batch.labels.dtype) == ([0, 1], torch.int64)
    assert (batch.real_tokens, batch.padded_tokens, len(batch)) == (8, 10, 2)
    assert set(batch.model_inputs()) == {"input_ids", "attention_mask", "token_type_ids"}
    left = collate(ENCODED, [0, 1], Padding(9, 3, "left"), "regression")
    assert left.input_ids.tolist()[0] == [9, 9, 1, 5, 2]
    assert left.model_inputs()["token_type_ids"].tolist()[0] == [3, 3, 0, 0, 0]
    assert left.labels.dtype == torch.float32


@pytest.mark.parametrize("side", ["right", "left"])
def test_separate_texts_of_a_pair_are_neighbouring_rows(side: str) -> None:
    encoded = dataclasses.replace(
        ENCODED,
        input_ids=[[1, 5, 2], [1, 3, 3, 3, 3, 2], [1, 6, 7, 8, 2], [1, 4, 2]],
        token_type_ids=[[0] * 3, [0] * 6, [0] * 5, [0] * 3],
        segment=[[-1, 0, -1], [-1, 1, 1, 1, 1, -1], [-1, 0, 0, 0, -1], [-1, 1, -1]],
        rows_per_example=2,
    )
    assert encoded.lengths == [6, 5]
    batch = collate(encoded, [1, 0], Padding(9, 0, side))
    assert (len(batch), batch.rows_per_example, batch.real_tokens, batch.padded_tokens) == (2, 2, 17, 24)
    rows = [[token for token in row if token != 9] for row in batch.input_ids.tolist()]
    assert rows == [[1, 6, 7, 8, 2], [1, 4, 2], [1, 5, 2], [1, 3, 3, 3, 3, 2]]
    assert (batch.attention_mask == (batch.input_ids != 9)).all()
    assert [max(row) for row in batch.segment.tolist()] == [0, 1, 0, 1]
    assert (batch.segment[batch.attention_mask == 0] == -1).all()
    assert batch.labels.tolist() == [0, 1]
    assert batch.indices.tolist() == [1, 0]
    again = repeat_batch(batch, 3)
    assert (len(again), again.rows_per_example) == (6, 2)
    assert torch.equal(again.input_ids[4:8], batch.input_ids), "an example stays together in every copy"


PAIRS = [
    Example("a", "the film was good", "a very bad story", 1),
    Example("b", "not bad at all " * 20, "great", 0),
    Example("c", "good", "the music and the food " * 20, 1),
]
SINGLES = [Example(e.idx, e.text, None, e.label) for e in PAIRS]


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlnet", "deberta-v2", "bart", "distilbert"])
def test_every_family(architecture: str) -> None:
    tokenizer = tiny_tokenizer(architecture)
    assert encode([], tokenizer, 24).lengths == []
    for examples in (PAIRS, SINGLES):
        encoded = encode(examples, tokenizer, 24)
        assert max(encoded.lengths) <= 24
        assert encoded.labels == [1, 0, 1]
        assert encoded.ids == ["a", "b", "c"]
        assert (encoded.token_type_ids is None) == ("token_type_ids" not in tokenizer.model_input_names)
        for row, (example, ids) in enumerate(zip(examples, encoded.input_ids, strict=True)):
            direct = tokenizer(example.text, example.text_pair, truncation="longest_first", max_length=24)
            assert ids == direct["input_ids"]
            special = {token for token, part in zip(ids, encoded.segment[row], strict=True) if part == -1}
            assert special <= set(tokenizer.all_special_ids)
            parts = {s for s in encoded.segment[row] if s >= 0}
            assert parts == ({0, 1} if example.text_pair else {0})


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlnet", "mpnet", "modernbert", "eurobert"])
def test_texts_of_a_pair_encoded_separately_are_two_single_texts(architecture: str) -> None:
    tokenizer = tiny_tokenizer(architecture)
    with raises_code(DataError, "second-text-missing"):
        encode(SINGLES, tokenizer, 24, rows_per_example=2)
    found = encode(PAIRS, tokenizer, 24, rows_per_example=2)
    first = encode(SINGLES, tokenizer, 24)
    second = encode([Example(e.idx, str(e.text_pair), None, e.label) for e in PAIRS], tokenizer, 24)
    assert (found.rows_per_example, first.rows_per_example) == (2, 1)
    for column in ("input_ids", "token_type_ids", "segment"):
        rows, *alone = (getattr(one, column) for one in (found, first, second))
        if rows is not None:
            other = [[1 if part == 0 and column == "segment" else part for part in row] for row in alone[1]]
            assert (rows[0::2], rows[1::2]) == (alone[0], other)
    assert found.lengths == [max(pair) for pair in zip(first.lengths, second.lengths, strict=True)]
    assert (len(found), found.labels, found.ids) == (3, [1, 0, 1], ["a", "b", "c"])


every = pytest.mark.parametrize("architecture", [*ARCHITECTURES, *EMBEDDERS])
LETTERS = " ".join("abcdefghijklmnopqrstuvwxyz")


def texts(*given: str | tuple[str, str]) -> list[Example]:
    pairs = [(one, None) if isinstance(one, str) else one for one in given]
    return [Example(str(i), first, second, i % 2) for i, (first, second) in enumerate(pairs)]


def words(encoded: Encoded, index: int, tokenizer: Any, part: int = 0) -> list[str]:
    """Of each row of an example, the tokens of one of its texts."""
    rows = zip(encoded.rows_of("input_ids", index), encoded.rows_of("segment", index), strict=True)
    return [
        "".join(tokenizer.convert_ids_to_tokens([token for token, own in zip(*row, strict=True) if own == part]))
        for row in rows
    ]


def test_windows_overlap_by_the_stride_and_the_last_one_ends_with_the_text() -> None:
    tokenizer = tiny_tokenizer("bert")
    given = texts("a b c", "a b c d e f g h", "a b c d e f g h i j k", LETTERS)
    encoded = encode(given, tokenizer, 8, reading=Reading(windows=3, stride=2))  # room for 6 letters
    assert words(encoded, 0, tokenizer) == ["abc"]
    assert words(encoded, 1, tokenizer) == ["abcdef", "cdefgh"]
    assert words(encoded, 2, tokenizer) == ["abcdef", "efghij", "fghijk"]
    assert words(encoded, 3, tokenizer) == ["abcdef", "efghij", "ijklmn"]  # the rest is cut
    assert encoded.windows == [(1,), (2,), (3,), (3,)]
    assert encoded.lengths == [5, 16, 24, 24]
    assert len(encoded) == 4


@every
def test_every_window_has_the_added_tokens_and_a_short_text_is_as_without_windows(architecture: str) -> None:
    tokenizer = tiny_tokenizer(architecture)
    given = texts("the film was good", LETTERS)
    plain = encode(given, tokenizer, 12)
    read = encode(given, tokenizer, 12, reading=Reading(windows=3, stride=3))
    for column in ("input_ids", "token_type_ids", "segment"):
        assert read.rows_of(column, 0) == plain.rows_of(column, 0)
        assert read.rows_of(column, 1)[:1] == plain.rows_of(column, 1)
    added = [token for token, part in zip(plain.input_ids[1], plain.segment[1], strict=True) if part == -1]
    rows = list(zip(read.rows_of("input_ids", 1), read.rows_of("segment", 1), strict=True))
    assert len(rows) == 3
    for ids, parts in rows:
        assert len(ids) == 12
        assert [token for token, own in zip(ids, parts, strict=True) if own == -1] == added


def test_an_instruction_stands_in_every_row_and_is_nobodys_text() -> None:
    tokenizer = tiny_tokenizer("bert")
    reading = Reading("good film : ", windows=2, stride=1)
    encoded = encode(texts("a b c d e f g"), tokenizer, 9, reading=reading)
    assert words(encoded, 0, tokenizer) == ["abcd", "defg"]
    for ids, special in zip(encoded.rows_of("input_ids", 0), encoded.rows_of("segment", 0), strict=True):
        assert tokenizer.convert_ids_to_tokens(ids[:4]) == ["[CLS]", "good", "film", "[UNK]"]
        assert special == [-1, -1, -1, -1, 0, 0, 0, 0, -1]
    whole = encode(texts("a b c d e f g"), tokenizer, 32, reading=Reading("good film : "))
    assert whole.input_ids == encode(texts("good film : a b c d e f g"), tokenizer, 32).input_ids
    assert whole.windows is None
    with raises_code(DataError, "prompt-too-long", "model.max_length", "example 0"):
        encode(texts("a b c d e f g"), tokenizer, 5, reading=reading)


def test_of_a_pair_in_one_input_the_longer_text_is_windowed() -> None:
    tokenizer = tiny_tokenizer("bert")
    given = texts(("a b c d e f g h", "x y"), ("x y", "a b c d e f g h"), (LETTERS, LETTERS))
    encoded = encode(given, tokenizer, 9, reading=Reading(windows=3, stride=1))  # room for 6 letters
    assert words(encoded, 0, tokenizer) == ["abcd", "defg", "efgh"]
    assert words(encoded, 0, tokenizer, 1) == ["xy"] * 3
    assert words(encoded, 1, tokenizer) == ["xy"] * 3
    assert words(encoded, 1, tokenizer, 1) == ["abcd", "defg", "efgh"]
    assert words(encoded, 2, tokenizer) == ["abc", "cde", "efg"]
    assert words(encoded, 2, tokenizer, 1) == ["abc"] * 3  # no more than half of the room


def test_texts_of_a_pair_that_are_encoded_alone_have_windows_of_their_own() -> None:
    tokenizer = tiny_tokenizer("bert")
    given = texts(("a b c d e f g h", "x y"), ("x", "y"), ("q", "a b c d e f g"))
    encoded = encode(given, tokenizer, 8, rows_per_example=2, reading=Reading("the ", windows=2, stride=1))
    assert [encoded.windows_of(index) for index in range(3)] == [(2, 1), (1, 1), (1, 2)]
    assert words(encoded, 2, tokenizer, 1) == ["", "abcde", "cdefg"]
    batch = collate(encoded, [0, 1, 2], Padding(0))
    assert batch.windows is not None
    assert batch.windows.tolist() == [
        [0.5, 0.5, 0, 0, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0, 0, 0],
        [0, 0, 0, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 0, 0, 0],
        [0, 0, 0, 0, 0, 1, 0, 0],
        [0, 0, 0, 0, 0, 0, 0.5, 0.5],
    ]
    assert len(batch.ordinary) == len(batch.input_ids) == 8


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("reading", [None, Reading("the ", 1), Reading("", 2, 2), Reading("the ", 3, 1)])
def test_a_row_counts_as_cut_where_a_token_is_in_no_window(paired: bool, reading: Reading | None) -> None:
    tokenizer = tiny_tokenizer("bert")
    letters = LETTERS.split()
    given = texts(
        *(
            (" ".join(letters[:n]), " ".join(letters[: 1 + n % 5])) if paired else " ".join(letters[:n])
            for n in range(1, 26)
        )
    )
    for rows in (1, 2) if paired else (1,):
        read_cut = row_lengths(given, tokenizer.backend_tokenizer, reading, apart=rows == 2).cut(12)
        encoded = encode(given, tokenizer, 12, rows_per_example=rows, reading=reading)
        for index, (example, cut) in enumerate(zip(given, read_cut, strict=True)):
            read = [set("".join(words(encoded, index, tokenizer, part))) for part in (0, 1)]
            wanted = [set(example.text) - {" "}, set(example.text_pair or "") - {" "}]
            assert cut == (read != wanted), (rows, index)
    shares = [measure(given, tokenizer.backend_tokenizer, 12, Reading("", n, 1))["cut"] for n in range(1, 5)]
    assert all(more < fewer or more == 0 for fewer, more in pairwise(shares))


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"windows": 2}, "pooling: head"),
        ({"windows": 2, "pooling": "mask"}, "pooling: mask"),
        ({"prompt": "a", "pooling": "mask"}, "template"),
        ({"stride": 4, "pooling": "mean"}, "stride: 4"),
        ({"windows": 2, "stride": 64, "pooling": "mean"}, "less than half"),
        ({"prompt": ""}, "at least 1 character"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ValidationError, match=wrong):
        EncoderConfig(name="x", **given)


#: A set all of whose words the vocabulary has.
READ = {"rows": 5, "unknown": 0.0}
TEXTS = ["a film", "the plot was not good, but the actor was great!", "yes", "is it a bad story? no. " * 12]


def reading(cut: float = 0.0, p95: int = 40, longest: int = 60) -> dict[str, Any]:
    return {"median": 20, "p95": p95, "longest": longest, "cut": cut}


def found(limit: int | None = 512, max_length: int = 128, windows: int = 1, **sets: dict[str, Any]) -> dict[str, Any]:
    read = {"max_length": max_length, "limit": limit, "windows": windows}
    return read | {"sets": {name: {**one, **READ} for name, one in sets.items()}}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("rows", [1, 2])
def test_lengths_are_those_of_what_the_model_reads(architecture: str, rows: int) -> None:
    tokenizer = tiny_tokenizer(architecture)
    given = texts(*zip(TEXTS, reversed(TEXTS), strict=True))
    read = encode(given, tokenizer, 4096, rows_per_example=rows).lengths
    core = tokenizer.backend_tokenizer
    core.enable_truncation(16)  # as checkpoints are saved; nothing may be cut here
    measured = measure(given, core, 100, apart=rows == 2)
    assert measured["longest"] == max(read)
    assert measured["cut"] == sum(length > 100 for length in read) / 4


def test_median_and_percentile_count_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    core = tiny_tokenizer("bert").backend_tokenizer
    examples = texts(*(" ".join(["good"] * n) for n in range(1, 101)))
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
    one = measure(texts(*amharic), core, 62)
    assert one["unknown"] == 1.0
    assert measure(texts("good film", "Good film"), core, 62)["unknown"] == 0.0
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
