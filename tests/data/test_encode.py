"""Tokens, which text they came from, and a cache that cannot lie."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regft_core.data import encode as module
from regft_core.data.encode import cache_key, encode
from regft_core.data.examples import Example
from regft_core.errors import DataError, ModelError
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
    assert found.second is not None
    assert (found.rows_per_example, first.rows_per_example) == (2, 1)
    assert (found.input_ids, found.token_type_ids, found.segment) == (
        first.input_ids, first.token_type_ids, first.segment,
    )  # fmt: skip
    assert found.second["input_ids"] == second.input_ids
    assert found.second["token_type_ids"] == second.token_type_ids
    assert found.second["special_mask"] == second.special_mask
    assert found.second["segment"] == [[1 if part == 0 else part for part in row] for row in second.segment]
    assert found.lengths == [max(pair) for pair in zip(first.lengths, second.lengths, strict=True)]
    assert (len(found), found.labels, found.ids) == (3, [1, 0, 1], ["a", "b", "c"])


def test_separate_texts_come_from_the_cache_of_single_texts(bert: Any, tmp_path: Path) -> None:
    encode(SINGLES, bert, 16, tmp_path, tokenizer_hash="h")
    before = set(tmp_path.rglob("*.safetensors"))
    fresh = encode(PAIRS, bert, 16, rows_per_example=2)
    for _ in range(2):
        assert encode(PAIRS, bert, 16, tmp_path, tokenizer_hash="h", rows_per_example=2) == fresh
    assert len(set(tmp_path.rglob("*.safetensors")) - before) == 1
    assert encode([], bert, 16, rows_per_example=2).rows_per_example == 2


def test_an_example_without_a_second_text_cannot_be_encoded_separately(bert: Any) -> None:
    with raises_code(DataError, "second-text-missing", "example a"):
        encode(SINGLES, bert, 16, rows_per_example=2)


def test_the_key_of_jointly_encoded_texts_stays() -> None:
    # Another key would make every stored token file useless.
    key = "6d9f28dfc6a07e80264bdf0be72f001aefb12374733df3185163cf099fe5c025"
    assert cache_key(PAIRS, 16, "h", takes_types=True) == key


def test_pairs_lose_tokens_from_the_longer_text(bert: Any) -> None:
    encoded = encode(PAIRS, bert, 16)
    short = bert("great", add_special_tokens=False)["input_ids"]
    assert encoded.segment[1].count(1) == len(short)
    assert encoded.segment[1].count(0) == 16 - 3 - len(short)
    assert encoded.segment[2].count(0) == len(bert("good", add_special_tokens=False)["input_ids"])


def test_no_examples_and_slow_tokenizers(bert: Any, tmp_path: Path) -> None:
    for cache in (None, tmp_path):
        for _ in range(2):
            encoded = encode([], bert, 16, cache, tokenizer_hash="h")
            assert len(encoded) == 0
            assert encoded.lengths == []

    class Slow:
        is_fast = False
        model_input_names = ("input_ids",)

    with raises_code(ModelError, "slow-tokenizer"):
        encode(SINGLES, Slow(), 16)


# ------------------------------------------------------------------------------------- cache


def count_calls(monkeypatch: Any) -> list[int]:
    calls: list[int] = []
    original = module._tokenise

    def counted(*arguments: Any) -> Any:
        calls.append(1)
        return original(*arguments)

    monkeypatch.setattr(module, "_tokenise", counted)
    return calls


def test_the_second_time_nothing_is_tokenised(bert: Any, tmp_path: Path, monkeypatch: Any) -> None:
    calls = count_calls(monkeypatch)
    first = encode(PAIRS, bert, 16, tmp_path, tokenizer_hash="h")
    relabelled = [Example("x" + e.idx, e.text, e.text_pair, 0) for e in PAIRS]
    second = encode(relabelled, bert, 16, tmp_path, tokenizer_hash="h")
    assert len(calls) == 1
    assert (second.input_ids, second.token_type_ids, second.segment) == (
        first.input_ids, first.token_type_ids, first.segment,
    )  # fmt: skip
    assert second.labels == [0, 0, 0]  # labels are no part of the cache
    assert second.ids == ["xa", "xb", "xc"]
    assert all(isinstance(token, int) for token in second.input_ids[0])


def test_whatever_changes_the_tokens_misses_the_cache(bert: Any, tmp_path: Path, monkeypatch: Any) -> None:
    calls = count_calls(monkeypatch)
    encode(PAIRS, bert, 16, tmp_path, tokenizer_hash="h")
    encode(PAIRS, bert, 17, tmp_path, tokenizer_hash="h")
    encode(PAIRS, bert, 16, tmp_path, tokenizer_hash="other")
    encode(PAIRS[::-1], bert, 16, tmp_path, tokenizer_hash="h")
    encode(PAIRS[:2], bert, 16, tmp_path, tokenizer_hash="h")
    encode(SINGLES, bert, 16, tmp_path, tokenizer_hash="h")
    assert len(calls) == 6
    with raises_code(ModelError, "tokenizer-hash-missing"):
        encode(PAIRS, bert, 16, tmp_path)


text = st.text(max_size=6)
example_lists = st.lists(st.builds(Example, st.just("0"), text, st.none() | text, st.just(0)), max_size=4)


@given(example_lists, example_lists)
def test_different_texts_never_share_a_key(one: list[Example], other: list[Example]) -> None:
    same = [(e.text, e.text_pair) for e in one] == [(e.text, e.text_pair) for e in other]
    keys = [cache_key(rows, 16, "h", takes_types=True) for rows in (one, other)]
    assert (keys[0] == keys[1]) == same


@given(st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_cache_is_reported_computed_again_and_replaced(bert: Any, data: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        wanted = encode(PAIRS, bert, 16, Path(folder), tokenizer_hash="h")
        (path,) = Path(folder).rglob("*.safetensors")
        content = bytearray(path.read_bytes())
        place = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            content[place] ^= 1 << data.draw(st.integers(0, 7))
        else:
            del content[place:]
        path.write_bytes(bytes(content))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = encode(PAIRS, bert, 16, Path(folder), tokenizer_hash="h")
        assert found == wanted
        if caught:  # a flipped bit may fall where it changes nothing that is read
            assert "tokenising again" in str(caught[0].message)
        with warnings.catch_warnings():
            warnings.simplefilter("error" if caught else "ignore")
            assert encode(PAIRS, bert, 16, Path(folder), tokenizer_hash="h") == wanted


def test_a_cache_cut_off_warns(bert: Any, tmp_path: Path) -> None:
    encode(PAIRS, bert, 16, tmp_path, tokenizer_hash="h")
    (path,) = tmp_path.rglob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.warns(UserWarning, match="is damaged .* tokenising again"):
        encode(PAIRS, bert, 16, tmp_path, tokenizer_hash="h")
