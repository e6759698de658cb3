"""Texts to token ids. They, and vectors of frozen encoders, stay in the memory of a process, whose runs read alike."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import accumulate, islice, pairwise
from typing import Any, Literal, TypedDict, get_args

from cachetools import LRUCache

from regft_core.data.examples import Example
from regft_core.data.prompts import Prompt, Reading, framed, prompted
from regft_core.errors import DataError
from regft_core.lazy import Tensor

Rows = list[list[int]]
Column = Literal["input_ids", "token_type_ids", "segment"]
#: Token ids of one tokenizer; about 150 MB.
LIMIT_TOKENS = 2_000_000
#: Bytes of vectors; about 160,000 rows of a base-size encoder.
LIMIT_BYTES = 500_000_000


class Tokens(TypedDict):
    """The token rows of ``Encoded``, without labels and identifiers."""

    input_ids: Rows
    token_type_ids: Rows | None
    segment: Rows
    #: How many rows each example has, one after the other; None: one each.
    windows: list[int] | None


@dataclass(frozen=True)
class Encoded:
    """Token rows of one set, those of an example one after the other; labels and identifiers have one entry an example.

    An example is one row, unless its texts are encoded separately (``rows_per_example`` 2: the rows of ``text`` first)
    or in ``windows``, the rows of each of its texts. ``segment`` is 0 on tokens of ``text``, 1 of ``text_pair``, -1 on
    added ones. ``token_type_ids`` is None for models that take none.
    """

    input_ids: Rows
    token_type_ids: Rows | None
    labels: list[int | float]
    ids: list[str]
    segment: Rows
    rows_per_example: int = 1
    windows: list[tuple[int, ...]] | None = None

    @cached_property
    def _starts(self) -> list[int]:
        """Where the rows of each example begin, and where the last end."""
        return [0, *accumulate(sum(self.windows_of(index)) for index in range(len(self)))]

    def rows_of(self, column: Column, index: int) -> Rows:
        """The rows of an example in a batch."""
        rows: Rows | None = getattr(self, column)
        return (rows or [])[self._starts[index] : self._starts[index + 1]]

    def windows_of(self, index: int) -> tuple[int, ...]:
        """How many rows each text of an example has."""
        return (1,) * self.rows_per_example if self.windows is None else self.windows[index]

    @cached_property
    def lengths(self) -> list[int]:
        """Tokens of each example in all windows of a text, of its longer text when they are encoded separately."""
        lengths = []
        for index in range(len(self)):
            rows = iter(map(len, self.rows_of("input_ids", index)))
            lengths.append(max(sum(islice(rows, count)) for count in self.windows_of(index)))
        return lengths

    @cached_property
    def ordinary(self) -> list[tuple[tuple[int, int], ...]]:
        """Of each example's rows, the number of tokens of ``text`` and of ``text_pair``; added ones are not counted."""
        counts = [(part.count(0), part.count(1)) for part in self.segment]
        return [tuple(counts[start:stop]) for start, stop in pairwise(self._starts)]

    def __len__(self) -> int:
        return len(self.labels)


def chosen(encoded: Encoded, rows: Sequence[int]) -> Encoded:
    """The examples ``rows`` of a set whose examples are one row each."""
    names = (*get_args(Column), "labels", "ids")
    columns: dict[str, Any] = {name: (of := getattr(encoded, name)) and [of[row] for row in rows] for name in names}
    return Encoded(**columns)


def encode(
    examples: Sequence[Example],
    tokenizer: Any,
    max_length: int,
    memory: LRUCache[Hashable, Tokens] | None = None,
    *,
    rows_per_example: int = 1,
    prompt: Prompt | None = None,
    reading: Reading | None = None,
) -> Encoded:
    """Tokenise ``examples`` to at most ``max_length`` tokens per row; pairs lose tokens from whichever text is longer.

    With ``rows_per_example`` 2 each text of a pair is a row. Raises DataError for a single text then.
    """
    labels, ids = [example.label for example in examples], [example.idx for example in examples]

    def tokens_of(texts: Sequence[Example]) -> Tokens:
        if memory is None:
            return _tokenise(texts, tokenizer, max_length, prompt, reading)
        contents = tuple((example.text, example.text_pair) for example in texts)
        key = (contents, max_length, _takes_types(tokenizer), prompt, reading)
        if (tokens := memory.get(key)) is None:
            tokens = _tokenise(texts, tokenizer, max_length, prompt, reading)
            with suppress(ValueError):  # larger than the memory
                memory[key] = tokens
        return tokens

    texts = [examples]
    if rows_per_example == 2:
        prompt = None
        seconds = [_second_text(example) for example in examples]
        texts = [[replace(example, text_pair=None) for example in examples], seconds]
    parts = [tokens_of(of) for of in texts]
    counts = list(zip(*(tokens["windows"] or [1] * len(examples) for tokens in parts), strict=True))
    if rows_per_example == 2:
        segment = [[1 if part == 0 else part for part in row] for row in parts[1]["segment"]]
        parts[1] = Tokens(**{**parts[1], "segment": segment})

    def joined(column: Column) -> Rows:
        """The rows of the first text of each example, then those of its second."""
        columns = [iter(tokens[column] or ()) for tokens in parts]
        return [row for of in counts for rows, count in zip(columns, of) for row in islice(rows, count)]

    return Encoded(
        input_ids=joined("input_ids"),
        token_type_ids=None if parts[0]["token_type_ids"] is None else joined("token_type_ids"),
        labels=labels,
        ids=ids,
        segment=joined("segment"),
        rows_per_example=rows_per_example,
        windows=None if parts[0]["windows"] is None else counts,
    )


def _second_text(example: Example) -> Example:
    if example.text_pair is None:
        hint = "give two texts, or set model: {pairs: jointly}"
        raise DataError("second-text-missing", f"example {example.idx} has no second text to encode\n    -> {hint}")
    return replace(example, text=example.text_pair, text_pair=None)


def _takes_types(tokenizer: Any) -> bool:
    return "token_type_ids" in tokenizer.model_input_names


def _tokenise(
    examples: Sequence[Example], tokenizer: Any, max_length: int, prompt: Prompt | None, reading: Reading | None
) -> Tokens:
    takes_types = _takes_types(tokenizer)
    if not examples:
        types: Rows | None = [] if takes_types else None
        return Tokens(input_ids=[], token_type_ids=types, segment=[], windows=None)
    if prompt is not None:
        return prompted(examples, tokenizer, prompt.room(max_length), prompt)
    if reading is not None:
        return framed(examples, tokenizer, max_length, reading)
    paired = examples[0].text_pair is not None
    encoding = tokenizer(
        [example.text for example in examples],
        [example.text_pair for example in examples] if paired else None,
        truncation="longest_first",
        max_length=max_length,
        padding=False,
        return_attention_mask=False,
        return_token_type_ids=takes_types,
    )
    segment = [[-1 if part is None else part for part in encoding.sequence_ids(i)] for i in range(len(examples))]
    return Tokens(
        input_ids=[list(row) for row in encoding["input_ids"]],
        token_type_ids=[list(row) for row in encoding["token_type_ids"]] if takes_types else None,
        segment=segment,
        windows=None,
    )


@lru_cache(maxsize=4)
def token_memory(tokenizer_sha256: str) -> LRUCache[Hashable, Tokens]:
    """Return the tokens of the tokenizer with these bytes."""
    return LRUCache(LIMIT_TOKENS, lambda tokens: sum(map(len, tokens["input_ids"])))


@cache
def vector_memory() -> LRUCache[Hashable, Tensor]:
    """Return the vectors; a run that fails clears them (``made_once.py``)."""
    return LRUCache(LIMIT_BYTES, lambda vectors: vectors.numel() * vectors.element_size())
