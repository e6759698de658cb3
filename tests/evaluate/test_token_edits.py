"""Tokens replaced: what is not a token of a text stays, in every row of an example."""

from __future__ import annotations

import numpy as np
import pytest

from regft_core.data.encode import Encoded, encode
from regft_core.evaluate.token_edits import editable, with_masked, with_replaced
from tests.methods.harness import examples, source_of, tokenizer_of


def encoded(separately: bool) -> Encoded:
    given = examples(5, pair=True)
    return encode(given, tokenizer_of(source_of("bert")), 32, rows_per_example=2 if separately else 1)


@pytest.mark.parametrize("separately", [False, True])
def test_replacing_changes_tokens_of_the_texts_only(separately: bool) -> None:
    before = encoded(separately)
    after = with_replaced(before, lambda ids, free: [np.full(len(own), 7) for own in ids])
    old, new = vars(before), vars(after)
    for row in range(len(before.input_ids)):
        special = np.asarray(old["special_mask"][row]) == 1
        assert np.array_equal(np.asarray(new["input_ids"][row])[special], np.asarray(old["input_ids"][row])[special])
        assert set(np.asarray(new["input_ids"][row])[~special].tolist()) == {7}
        assert new["segment"][row] == old["segment"][row]
    assert (after.labels, after.ids) == (before.labels, before.ids)
    assert with_replaced(before, lambda ids, free: ids) == before
    free = editable(before)
    assert with_masked(before, [[~row for row in rows] for rows in free], 7) == after
    # An added token stays, whatever is asked.
    assert with_masked(before, [[np.zeros(len(row), bool) for row in rows] for rows in free], 7) == after
    assert with_masked(before, [[np.ones(len(row), bool) for row in rows] for rows in free], 7) == before
