"""An instruction before every text, and windows over texts that are longer than a row."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from pydantic import ValidationError

from regft_core.data.batches import Padding, collate
from regft_core.data.encode import Encoded, encode
from regft_core.data.examples import Example
from regft_core.data.lengths import measure, row_lengths
from regft_core.data.prompts import Reading
from regft_core.errors import DataError
from regft_core.schema.training import EncoderConfig
from tests.errors import raises_code
from tests.tiny import ARCHITECTURES, EMBEDDERS, tiny_tokenizer

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
