from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regft_core.io.canonical import canonical_json
from regft_core.io.files import write_json

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)


@given(values)
def test_canonical_json_holds_the_whole_value(value: Any) -> None:
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(json.loads(text)) == text


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_json_cannot_say_are_refused_with_their_place(tmp_path: Path, number: float) -> None:
    for function in (canonical_json, lambda value: write_json(tmp_path / "x.json", value)):
        with pytest.raises(ValueError, match=r"value\.runs\[1\]\.loss: JSON has no"):
            function({"runs": [{"loss": 0.5}, {"loss": number}]})
    assert list(tmp_path.iterdir()) == []


def test_other_types_are_refused_with_their_place() -> None:
    with pytest.raises(TypeError, match=r"value\.a: set is not a JSON value"):
        canonical_json({"a": {1}})
    with pytest.raises(TypeError, match="key 1 is int"):
        canonical_json({1: "a"})
