from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regft_core.data.examples import Example, read_jsonl, write_jsonl
from regft_core.data.prepare import prepare_dataset, text_key
from regft_core.errors import DataError
from regft_core.schema.tasks import TaskConfig
from tests.errors import raises_code
from tests.small_project import TASK

TRAIN = "text,label\ncafe\u0301,good\n a  b ,bad\na b,bad\nc,good\n"
DEV = "text,label\ncafé,bad\nnew,good\n"


def task(**changes: Any) -> TaskConfig:
    return TaskConfig.model_validate({**TASK, "columns": {"text": "text"}, "ood": {}, **changes})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    (data / "train.csv").write_text(TRAIN)
    (data / "dev.csv").write_text(DEV)
    (data / "other.csv").write_text("text,label\na b,good\nz,?\n")
    (data / "stars.csv").write_text("review,stars\nc,1\nd,5\n")
    return tmp_path


STARS = {
    "source": {"kind": "files"},
    "split": "stars.csv",
    "columns": {"text": "review", "label": "stars"},
    "labels": ["low", "high"],
    "label_values": {"1": "low", "5": "high"},
    "label_map": {"bad": "low", "good": "high"},
}


def test_the_directory_and_its_description(root: Path) -> None:
    other = task(splits={"dev": "other.csv"}, labels=["good", "bad"], drop_labels=["?"])
    same = task(splits={"dev": "other.csv"})
    ood = {"other": {}, "stars": STARS, "same": {"split": "train.csv"}}
    tasks = {"mine": task(ood=ood), "other": other, "same": same}
    out = prepare_dataset(root, "mine", tasks)
    assert out == root / "work" / "datasets" / "mine"
    assert read_jsonl(out / "train.jsonl")[1] == Example("1", " a  b ", None, 0)
    assert read_jsonl(out / "ood" / "other.jsonl") == [Example("0", "a b", None, 0)]  # index into its own labels
    assert [row.label for row in read_jsonl(out / "ood" / "stars.jsonl")] == [0, 1]
    described = json.loads((out / "task.json").read_text())
    assert described["counts"] == {"train": 4, "dev": 2, "other": 1, "stars": 2, "same": 4}
    assert described["dropped"] == {"other": {"label ?": 1}}
    assert described["duplicates"] == {"train_within": 1, "dev": 1, "other": 1, "stars": 1, "same": 4}
    assert described["sets"]["other"]["labels"] == ["good", "bad"]
    assert described["sets"]["other"]["label_map"] is None
    assert described["sets"]["stars"]["label_map"] == {"bad": "low", "good": "high"}
    counts = {name: entry["n"] for name, entry in described["sets"].items()}
    assert counts == {"dev": 2, "other": 1, "stars": 2, "same": 4}
    assert described["positive_label"] is None  # nothing is guessed
    assert described["source"] == {"kind": "files"}


def test_a_failure_leaves_the_old_directory_as_it_was(root: Path) -> None:
    out = prepare_dataset(root, "mine", {"mine": task()})
    before = (out / "task.json").read_bytes()
    (root / "data" / "dev.csv").write_text("text,label\na,odd\n")
    with raises_code(DataError, "rows-do-not-match", "'odd'"):
        prepare_dataset(root, "mine", {"mine": task()})
    assert (out / "task.json").read_bytes() == before
    assert [p.name for p in out.parent.iterdir()] == ["mine"]


def test_duplicates_are_texts_and_pairs_keep_their_sides() -> None:
    def row(text: str, pair: str | None = None, label: int = 0) -> Example:
        return Example("0", text, pair, label)

    key = text_key(row("a  b", label=1))
    assert [text_key(row(text)) == key for text in (" a b ", "ab", "a\u00a0b", "A b")] == [True, False, True, False]
    assert text_key(row("a", "b")) != text_key(row("b", "a"))
    assert text_key(row("a b")) != text_key(row("a", "b"))
    assert text_key(row("e\u0301")) == text_key(row("é"))


texts = st.text(st.characters(exclude_categories=["Cs"]))
labels = st.integers(0, 200) | st.floats(allow_nan=False, allow_infinity=False)
rows = st.builds(Example, idx=texts, text=texts, text_pair=st.none() | texts, label=labels)


@given(st.lists(rows, max_size=8))
@example([Example("0", "a\u2028b\u0085c\x0bd\r\ne", "\x1c\x1d", 1)])
def test_what_is_written_is_read(examples: list[Example]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a" / "rows.jsonl"
        write_jsonl(path, examples)
        assert read_jsonl(path) == examples
        assert path.read_bytes().count(b"\n") == len(examples)  # nothing else ends a row
        assert [p.name for p in path.parent.iterdir()] == ["rows.jsonl"]  # no temporary file stays


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
