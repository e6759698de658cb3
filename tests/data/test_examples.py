"""JSONL in, JSONL out, with nothing lost on the way."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regft_core.data.examples import Example, read_jsonl, write_jsonl
from regft_core.errors import DataError
from tests.errors import raises_code

texts = st.text(st.characters(exclude_categories=["Cs"]))
labels = st.integers(0, 200) | st.floats(allow_nan=False, allow_infinity=False)
rows = st.builds(Example, idx=texts, text=texts, text_pair=st.none() | texts, label=labels)


@given(st.lists(rows, max_size=8))
def test_what_is_written_is_read(examples: list[Example]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a" / "rows.jsonl"
        write_jsonl(path, examples)
        assert read_jsonl(path) == examples
        assert [p.name for p in path.parent.iterdir()] == ["rows.jsonl"]  # no temporary file stays


def test_only_newline_ends_a_row(tmp_path: Path) -> None:
    example = Example("0", "a\u2028b\u0085c\x0bd\r\ne", "\x1c\x1d", 1)
    write_jsonl(tmp_path / "rows.jsonl", [example])
    assert read_jsonl(tmp_path / "rows.jsonl") == [example]
    assert (tmp_path / "rows.jsonl").read_bytes().count(b"\n") == 1


def test_nan_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_jsonl(tmp_path / "rows.jsonl", [Example("0", "a", None, float("nan"))])
    assert not (tmp_path / "rows.jsonl").exists()


@pytest.mark.parametrize(
    "line",
    [
        *("{", "[]", '{"idx": "0", "text": "a", "label": 1}'),
        pytest.param("9" * 5000, id="digits"),
        pytest.param("[" * 100_000, id="deep"),
        '{"idx": 0, "text": "a", "text_pair": null, "label": 1}',
        '{"idx": "0", "text": "a", "text_pair": null, "label": true}',
        '{"idx": "0", "text": "a", "text_pair": null, "label": NaN}',
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    good = '{"idx": "0", "text": "a", "text_pair": null, "label": 1}'
    (tmp_path / "rows.jsonl").write_text(f"{good}\n{line}\n")
    with raises_code(DataError, "damaged-rows", "rows.jsonl:2: "):
        read_jsonl(tmp_path / "rows.jsonl")
