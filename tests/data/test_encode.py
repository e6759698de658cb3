"""Tokens, and which text they came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regft_core.data.encode import encode
from regft_core.data.examples import Example
from regft_core.errors import DataError
from tests.errors import raises_code

PAIRS = [
    Example("a", "the film was good", "a very bad story", 1),
    Example("b", "not bad at all " * 20, "great", 0),
    Example("c", "good", "the music and the food " * 20, 1),
]
SINGLES = [Example(e.idx, e.text, None, e.label) for e in PAIRS]


def tokenizer_of(architecture: str, folder: Path) -> Any:
    from transformers import AutoTokenizer

    from tests.tiny import tiny_model_dir

    return AutoTokenizer.from_pretrained(str(tiny_model_dir(folder, architecture)))


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tokenizer_of("bert", tmp_path_factory.mktemp("bert"))


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlnet", "deberta-v2", "bart", "distilbert"])
def test_every_family(architecture: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(architecture, tmp_path)
    for examples in (PAIRS, SINGLES):
        encoded = encode(examples, tokenizer, 24)
        assert max(encoded.lengths) <= 24
        assert encoded.labels == [1, 0, 1]
        assert encoded.ids == ["a", "b", "c"]
        assert (encoded.token_type_ids is None) == ("token_type_ids" not in tokenizer.model_input_names)
        for row, (example, ids) in enumerate(zip(examples, encoded.input_ids, strict=True)):
            direct = tokenizer(example.text, example.text_pair, truncation="longest_first", max_length=24)
            assert ids == direct["input_ids"]
            assert len(encoded.segment[row]) == len(encoded.special_mask[row]) == len(ids)
            assert [s == -1 for s in encoded.segment[row]] == [m == 1 for m in encoded.special_mask[row]]
            special = {token for token, mask in zip(ids, encoded.special_mask[row], strict=True) if mask}
            assert special <= set(tokenizer.all_special_ids)
            parts = {s for s in encoded.segment[row] if s >= 0}
            assert parts == ({0, 1} if example.text_pair else {0})


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlnet", "mpnet", "modernbert", "eurobert"])
def test_texts_of_a_pair_encoded_separately_are_two_single_texts(architecture: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(architecture, tmp_path)
    found = encode(PAIRS, tokenizer, 24, rows_per_example=2)
    first = encode(SINGLES, tokenizer, 24)
    second = encode([Example(e.idx, str(e.text_pair), None, e.label) for e in PAIRS], tokenizer, 24)
    assert (found.rows_per_example, first.rows_per_example) == (2, 1)
    for column in ("input_ids", "token_type_ids", "special_mask", "segment"):
        rows, *alone = (getattr(one, column) for one in (found, first, second))
        if rows is not None:
            other = [[1 if part == 0 and column == "segment" else part for part in row] for row in alone[1]]
            assert (rows[0::2], rows[1::2]) == (alone[0], other)
    assert found.lengths == [max(pair) for pair in zip(first.lengths, second.lengths, strict=True)]
    assert (len(found), found.labels, found.ids) == (3, [1, 0, 1], ["a", "b", "c"])


def test_an_example_without_a_second_text_cannot_be_encoded_separately(bert: Any) -> None:
    with raises_code(DataError, "second-text-missing", "example a"):
        encode(SINGLES, bert, 16, rows_per_example=2)


def test_pairs_lose_tokens_from_the_longer_text(bert: Any) -> None:
    encoded = encode(PAIRS, bert, 16)
    short = bert("great", add_special_tokens=False)["input_ids"]
    assert encoded.segment[1].count(1) == len(short)
    assert encoded.segment[1].count(0) == 16 - 3 - len(short)
    assert encoded.segment[2].count(0) == len(bert("good", add_special_tokens=False)["input_ids"])


def test_no_examples(bert: Any) -> None:
    assert encode([], bert, 16).lengths == []
