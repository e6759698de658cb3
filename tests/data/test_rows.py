"""Rows read as a task declares them: labels, targets, texts, identifiers; where files may be."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regft_core.data.examples import Example
from regft_core.data.read_split import Declaration, read_split
from regft_core.errors import DataError
from regft_core.schema.sources import FilesSource
from tests.errors import raises_code

Read = Callable[..., list[Example]]
FILES = FilesSource(kind="files")
MULTI = {"kind": "multi_label", "labels": ("a", "b", "c")}


def label_of(read: Read, value: Any, declared: dict[str, Any]) -> int | float | None:
    """The label of a row; None where it is refused, with its place and no more than a few words of it."""
    try:
        return read("a.jsonl", json.dumps({"text": "a", "label": value}), **declared)[0].label
    except DataError as error:
        refused = error.code, "row 1 (line 1)" in error.text, len(error.text) < 400
    assert refused == ("rows-do-not-match", True, True)
    return None


def test_pairs_identifiers_and_paths_with_data_in_front(tmp_path: Path, read: Read, declare: Any) -> None:
    columns = {"text": "q", "text_pair": "a", "label": "y", "id": "n"}
    assert read("sub/a.csv", "n,q,a,y\n7,Who?,Me.,good\n", columns=columns) == [Example("7", "Who?", "Me.", 1)]
    assert read_split(tmp_path, "mine", FILES, "data/sub/a.csv", declare(columns=columns)).examples[0].idx == "7"


@pytest.mark.parametrize("content", ["text\na\n", "text,product\na,\n"])
def test_texts_without_labels_need_no_group(read: Read, content: str) -> None:
    columns = {"text": "text", "label": "verdict", "group": "product"}
    assert read("a.csv", content, columns=columns, labelled=False) == [Example("0", "a", None, 0)]


LONG = "9" * 5000
STARS = {"kind": "regression", "labels": None, "range": (0.0, 5.0)}
VALUES = {"1": "good", "5": "bad", "true": "good", "[x, y]": "bad"}


def amounts(decimal: str | None) -> dict[str, Any]:
    return {"kind": "regression", "labels": None, "decimal": decimal}


#: What is declared, values of the column, and the label of each; None: it is refused.
LABELS: dict[str, tuple[dict[str, Any], list[Any], list[int | float | None]]] = {
    "names": ({}, ["bad", "good", " good ", ["good"], "['bad']", {"choices": ["good"]}], [0, 1, 1, 1, 0, 1]),
    "integers count into labels": (
        {},
        [0, 1, 1.0, "1", "0" * 5000, "-0", "0" * 5000 + "1", "+1"],
        [0, 1, 1, 1, 0, 0, 1, 1],
    ),
    "outside the declared set": (
        {},
        [2, -1, "goood", None, "", float("nan"), 0.5, True, LONG, f"-{LONG}", ["good", "bad"], "['good', 'bad']", []],
        [None] * 13,
    ),
    "no name and no list of names": ({}, [{"good": 1}, [["good"]], [{"good": 1}]], [None] * 3),
    "an object has no order": (
        MULTI,
        [{"b": 1, "a": 0, "c": 0}, {"choices": 1}, '{"b": 1}', {"choices": ["b"]}],
        [None, None, None, 2],
    ),
    "label_values are the only values": (
        {"label_values": VALUES},
        [1, "5", 5.0, True, "[x, y]", "good"],
        [1, 0, 0, 1, 0, None],
    ),
    "a number that could be a name or a position": ({"labels": ("1", "0")}, ["1", 1], [0, None]),
    "a number that is a name and the same position": ({"labels": ("0", "1")}, [1], [1]),
    "several labels": (
        MULTI,
        ["a;c", "", "['a' 'c']", "('a',)", "{'a', 'b'}", "[a, b]", "[]", ["a", "c"], [0, 2]],
        [0b101, 0, 0b101, 0b001, 0b011, 0b011, 0, 0b101, 0b101],
    ),
    "lists as Python writes them": (
        {**MULTI, "labels": ("1", "2", "a"), "label_values": {"1": "1", "2": "2", "a": "a"}},
        ["()", "set()", "frozenset()", "frozenset({'a'})", "(1, 2)", "{2}", "[1 2]", "[2. 1.]", "(1)", "(1, 2]"],
        [0, 0, 0, 4, 3, 2, 3, 3, None, None],
    ),
    "one for each label, or positions?": (MULTI, ["[0, 1, 1]", [1, 1], "['a', 'd']", None], [None] * 4),
    "targets that are not finite, or not in range": (
        STARS,
        ["nan", "inf", float("nan"), "high", 5.01, -1, "", None, True, [1], 10**400, "1,5", "12%", "1_0", "NA", LONG],
        [None] * 16,
    ),
    "no decimal mark said": (amounts(None), [" 3.5 ", "-1e-6"], [3.5, -1e-6]),
    "a decimal comma": (amounts(","), ["-1 234,5", "388,805", "3.5", "1.23,5"], [-1234.5, 388.805, None, None]),
    "a decimal point": (amounts("."), ["388,805", "12,3"], [388805.0, None]),
}


@pytest.mark.parametrize("case", LABELS)
def test_labels_and_targets_are_read_as_they_are_declared(case: str, read: Read) -> None:
    declared, values, labels = LABELS[case]
    assert [label_of(read, value, declared) for value in values] == labels


def test_the_advice_for_a_number_that_could_be_a_name_or_a_position_is_yaml_that_works(read: Read) -> None:
    """Keys without quotes, which it left open, are refused; one spelling alone is none of the others' values."""
    with raises_code(DataError, "rows-do-not-match") as told:
        read("a.jsonl", '{"text": "a", "label": 1}\n', labels=("1", "0"))
    advised = [json.loads(f"{one}}}") for one in re.findall(r'({"1": "\d"), \.\.\.}', str(told.value))]
    assert [label_of(read, 1, {"labels": ("1", "0"), "label_values": one}) for one in advised] == [0, 1]


def test_unlabelled_rows_are_dropped_only_when_declared_and_counted(tmp_path: Path, read: Read, declare: Any) -> None:
    content = "text,label\na,good\nb,-1\nc,bad\n,good\n"
    dropping = {"drop_labels": ("-1",), "drop_empty": True}
    assert [e.idx for e in read("a.csv", content, **dropping)] == ["0", "2"]
    assert read_split(tmp_path, "mine", FILES, "a.csv", declare(**dropping)).dropped == {
        "label -1": 1,
        "without text": 1,
    }
    with raises_code(DataError, "rows-do-not-match", "2 of 4"):
        read("a.csv", content)
    rows = '{"text": "a", "label": null}\n{"text": "b", "label": "good"}\n'
    assert len(read("a.jsonl", rows, drop_labels=("",))) == 1
    lists = "".join(json.dumps({"text": "a", "label": label}) + "\n" for label in (["odd"], "['odd']", ["good"]))
    assert len(read("b.jsonl", lists, drop_labels=("odd",))) == 1
    with raises_code(DataError, "no-rows", "(all 1"):
        read("a.csv", "text,label\na,-1\n", drop_labels=("-1",))


def test_the_row_the_line_and_the_value_are_named_and_the_rest_counted(read: Read) -> None:
    with raises_code(DataError, "rows-do-not-match", "a.csv: 1 of 2 rows", "row 2 (line 4): label 'great'"):
        read("a.csv", 'text,label\n"two\nlines",good\nx,great\n')
    with raises_code(DataError, "rows-do-not-match", "12 of 12 rows") as caught:
        read("a.csv", "text,label\n" + "x,odd\n" * 12)
    lines = str(caught.value).splitlines()
    assert len(lines) == 8
    assert lines[-2].strip() == "... and 7 more"


@pytest.mark.parametrize("value", [None, "", "  ", "\n", [], 7, {"en": "a"}, "x\ud800"])
def test_what_is_no_text(value: Any, read: Read) -> None:
    with raises_code(DataError, "rows-do-not-match", "row 1", "column 'text'"):
        read("a.jsonl", json.dumps({"text": value, "label": 0}))


def test_a_list_of_keywords_is_one_text(read: Read) -> None:
    assert read("a.jsonl", '{"text": ["one", "two"], "label": 0}')[0].text == "one two"


def test_a_missing_column_names_the_nearest_and_fields_within_fields_are_not_read(read: Read) -> None:
    with raises_code(DataError, "column-missing", "columns.label: no column 'label'", "did you mean 'labels'"):
        read("a.csv", "text,labels\na,good\n")
    nested = '{"review": {"text": "a"}, "label": 1}\n'
    with raises_code(DataError, "column-missing", "fields within 'review' are not read", "one level"):
        read("a.jsonl", nested, columns={"text": "review.text"})


def test_identifiers_are_unique_and_present(read: Read) -> None:
    with raises_code(DataError, "rows-do-not-match", "row 2", "'a' was already used by row 1"):
        read("a.csv", "n,text,label\na,x,good\na,y,bad\n", columns={"id": "n"})
    with raises_code(DataError, "rows-do-not-match", "no identifier"):
        read("a.csv", "n,text,label\n,x,good\n", columns={"id": "n"})


def test_where_files_may_be(tmp_path: Path, read: Read, declare: Callable[..., Declaration]) -> None:
    read("train.csv", "text,label\na,good\n")
    (tmp_path / "data" / "dev.csv").mkdir()
    os.mkfifo(tmp_path / "data" / "pipe.csv")
    for name, code in {
        "trian.csv": "file-missing",
        "train.xls": "unknown-format",
        "dev.csv": "not-a-file",
        "pipe.csv": "not-a-file",
        "a" * 300 + ".csv": "not-a-file",
    }.items():
        with raises_code(DataError, code):
            read_split(tmp_path, "mine", FILES, name, declare())
