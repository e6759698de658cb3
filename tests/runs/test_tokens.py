"""Tokens of one process: the same texts are tokenised once, and other texts or settings are other tokens."""

from __future__ import annotations

from typing import Any

import pytest

from regft_core.data import encode as module
from regft_core.data.encode import encode, token_memory
from regft_core.data.examples import Example
from regft_core.data.prompts import Reading
from tests.data.test_batches import PAIRS, SINGLES
from tests.tiny import tiny_tokenizer

BERT: Any = tiny_tokenizer("bert")


def count_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    original = module._tokenise

    def counted(*arguments: Any) -> Any:
        calls.append(1)
        return original(*arguments)

    monkeypatch.setattr(module, "_tokenise", counted)
    return calls


def test_the_second_time_nothing_is_tokenised(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, memory = count_calls(monkeypatch), token_memory("first")
    first = encode(PAIRS, BERT, 16, memory)
    relabelled = [Example("x" + e.idx, e.text, e.text_pair, 0) for e in PAIRS]
    second = encode(relabelled, BERT, 16, memory)
    assert len(calls) == 1
    assert (second.input_ids, second.token_type_ids) == (first.input_ids, first.token_type_ids)
    assert second.segment == first.segment
    assert (second.labels, second.ids) == ([0, 0, 0], ["xa", "xb", "xc"])  # which are no part of the cache


def test_whatever_changes_the_tokens_is_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, memory = count_calls(monkeypatch), token_memory("other")
    encode(PAIRS, BERT, 16, memory)
    encode(PAIRS, BERT, 17, memory)
    for rows in (PAIRS[::-1], PAIRS[:2], SINGLES):
        encode(rows, BERT, 16, memory)
    for reading in (Reading("a ", 1, 0), Reading("", 2, 1), Reading("", 2, 2)):
        for _ in range(2):
            assert encode(SINGLES, BERT, 8, memory, reading=reading) == encode(SINGLES, BERT, 8, reading=reading)
    assert len(calls) == 5 + 3 + 6
    assert token_memory("a") is token_memory("a") is not token_memory("b")
