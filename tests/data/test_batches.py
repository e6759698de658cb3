"""Texts as rows of tokens, and batches of them."""

from __future__ import annotations

import dataclasses
import random
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regft_core.data.batches import Padding, collate, evaluation_batches
from regft_core.data.encode import Encoded, encode
from regft_core.data.examples import Example
from regft_core.errors import DataError
from regft_core.training.samplers import by_length
from regft_core.training.step import repeat_batch
from tests.errors import raises_code
from tests.tiny import tiny_tokenizer

many_lengths = st.lists(st.integers(1, 128), max_size=150)
epoch_batches = partial(by_length, labels=())


@given(many_lengths, st.integers(0, 2**62), st.integers(0, 99), st.integers(1, 20), st.integers(1, 60))
def test_every_example_exactly_once(lengths: list[int], seed: int, epoch: int, batch_size: int, bucket: int) -> None:
    arguments: dict[str, Any] = {
        "seed": seed, "epoch": epoch, "batch_size": batch_size, "bucket_batches": bucket,
    }  # fmt: skip
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


def rows_of_lengths(lengths: list[int]) -> Encoded:
    rows = [[1] * length for length in lengths]
    return Encoded(rows, None, [0] * len(rows), [str(i) for i in range(len(rows))], rows)


@given(many_lengths, st.integers(1, 200))
def test_evaluation_covers_everything_longest_first(lengths: list[int], tokens: int) -> None:
    batches = evaluation_batches(rows_of_lengths(lengths), tokens)
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
