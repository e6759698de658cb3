"""Files as programs write them, and their rows as a task declares them: labels, targets, texts, identifiers."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regft_core.data.examples import Example
from regft_core.data.file_format import DELIMITERS
from regft_core.data.read_split import Declaration, read_split
from regft_core.data.table import open_table
from regft_core.errors import DataError
from regft_core.schema.sources import FileFormat, FilesSource
from tests.errors import raises_code
from tests.small_project import parquet, workbook

Read = Callable[..., list[Example]]
CAFE = [Example("0", "Das Café, wirklich", None, 1), Example("1", 'er sagte "schön"', None, 0)]
ROWS = [{"text": row.text, "label": ("bad", "good")[int(row.label)]} for row in CAFE]
CSV = 'text,label\n"Das Café, wirklich",good\n"er sagte ""schön""",bad\n'
TSV = 'text\tlabel\nDas Café, wirklich\tgood\ner sagte "schön"\tbad\n'
JSONL = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
CONTENTS = {"a.csv": CSV.encode(), "a.tsv": TSV.encode(), "a.jsonl": JSONL.encode(), "a.parquet": parquet(ROWS)}


def rows_of(path: Path, how: FileFormat | None = None) -> tuple[list[str], list[dict[str, Any]]]:
    with open_table(path, how or FileFormat()) as table:
        return table.names, [dict(row.values) for row in table.rows]


@pytest.mark.parametrize("name", CONTENTS)
def test_every_format_reads_the_same_plain_and_compressed(name: str, read: Read) -> None:
    for ending, content in (("", CONTENTS[name]), (".gz", gzip.compress(CONTENTS[name]))):
        assert read(name + ending, content) == CAFE
        assert read(name.upper() + ending, content) == CAFE


@pytest.mark.parametrize("name", ["a.csv.gz", "a.jsonl.gz", "a.parquet", "a.parquet.gz"])
def test_files_cut_off_anywhere(name: str, read: Read) -> None:
    content = CONTENTS[name.removesuffix(".gz")]
    whole = gzip.compress(content) if name.endswith(".gz") else content
    for end in (0, 5, len(whole) // 2, len(whole) - 3):
        with pytest.raises(DataError) as caught:
            read(name, whole[:end])
        assert caught.value.code in ("damaged-file", "empty-file", "no-rows")


def test_blank_lines_are_no_rows_and_line_breaks_in_fields_stay(read: Read) -> None:
    assert [row.text for row in read("a.csv", b"text,label\r\na,good\r\n\r\nb,bad\r\n")] == ["a", "b"]
    assert read("c.tsv", "text\tlabel\na\u2028b\tgood\n")[0].text == "a\u2028b"
    assert read("d.jsonl", '{"text": "a\u2028b", "label": "good"}\n\n')[0].text == "a\u2028b"


def test_a_quote_in_a_tsv_is_a_character_unless_its_task_says_otherwise(
    tmp_path: Path, read: Read, declare: Any
) -> None:
    rows = read("a.tsv", 'text\tlabel\n"open\tgood\nclosed"\tbad\n')
    assert [row.text for row in rows] == ['"open', 'closed"']
    content = 'text\tlabel\n"he said ""no""\tagain"\tgood\nplain\tbad\n'
    with raises_code(DataError, "field-count", "row 1 (line 2)"):
        read("a.tsv", content)
    quoted = FilesSource(kind="files", quoted=True)
    rows = read_split(tmp_path, "mine", quoted, "a.tsv", declare()).examples
    assert [row.text for row in rows] == ['he said "no"\tagain', "plain"]


def test_the_own_delimiter_of_a_format_comes_first(read: Read, tmp_path: Path) -> None:
    assert read("a.csv", "text,label,a;b;c;d\nx,good,1\n")[0].text == "x"
    assert read("a.tsv", "text\tlabel\ta,b,c,d\nx\tgood\t1\n")[0].text == "x"
    assert read("b.csv", '"text";label;"a, b"\nx;good;1\n')[0].text == "x"  # a comma within quotes is none
    (tmp_path / "one.csv").write_text("text\na; b\n")
    assert rows_of(tmp_path / "one.csv") == (["text"], [{"text": "a; b"}])


def test_bytes_that_are_no_text_are_named_by_their_line_wherever_they_are(tmp_path: Path, read: Read) -> None:
    with raises_code(DataError, "not-utf8", "a.csv", "(line 2, byte 0xe9)", 'encoding: "cp1252"'):
        read("a.csv", CSV.encode("latin-1"))
    far = b"text,label\n" + b"x,good\n" * 300_000 + "é,bad\n".encode("latin-1")
    with raises_code(DataError, "not-utf8", "(line 300002, byte 0xe9)"):
        read("b.csv", far)
    (tmp_path / "c.csv").write_bytes(CSV.encode("cp1252"))
    with raises_code(DataError, "not-its-encoding", "is not ascii text (line 2", "--encoding"):
        rows_of(tmp_path / "c.csv", FileFormat(encoding="ascii"))
    for name in ("utf-9", "base64", "zip"):
        with pytest.raises(ValueError, match="is not a text encoding"):
            FilesSource(kind="files", encoding=name)


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(
        st.tuples(*[st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)] * 2),
        min_size=1,
        max_size=2,
    ),
    mark=st.sampled_from(list(DELIMITERS)),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    ends=st.sampled_from(["\n", "\r\n"]),
)
def test_what_csv_writes_is_read_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], mark: str, encoding: str, ends: str
) -> None:
    """Delimiters, quotes and line breaks within fields; the columns and their order too."""
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    written = io.StringIO(newline="")
    writer = csv.writer(written, delimiter=mark, lineterminator=ends, quoting=csv.QUOTE_ALL)
    writer.writerows([("one", "two"), *rows])
    path.write_bytes(written.getvalue().encode(encoding))
    assert rows_of(path) == (["one", "two"], [dict(zip(("one", "two"), row)) for row in rows])


def test_a_workbook_reads_as_its_csv(tmp_path: Path) -> None:
    rows = [["text", "label", "n", None], ["one\ntwo", 1, True], [None, None, None], ["three", 2.5, None]]
    (tmp_path / "a.xlsx").write_bytes(workbook(reviews=rows))
    with open_table(tmp_path / "a.xlsx") as table:
        found = list(table.rows)
    assert [row.values for row in found] == [
        {"text": "one\ntwo", "label": "1", "n": "TRUE"},
        {"text": "three", "label": "2.5", "n": ""},
    ]
    assert [row.position for row in found] == ["row 1 (line 2)", "row 2 (line 4)"]  # a blank line is no row


def test_sheets_that_are_no_tables_are_refused(tmp_path: Path) -> None:
    for rows, code, words in (
        ([], "empty-file", "is empty"),
        ([["text"], ["a", "b"]], "field-count", "line 2"),
        ([["text"], ["#N/A"]], "error-in-cell", "cell A2"),
    ):
        (tmp_path / f"{code}.xlsx").write_bytes(workbook(rows=rows))
        with raises_code(DataError, code, words):
            rows_of(tmp_path / f"{code}.xlsx")
    whole = workbook(rows=[["text"], *[[f"row {n}"] for n in range(500)]])
    (tmp_path / "cut.xlsx").write_bytes(whole[: len(whole) // 2])
    with raises_code(DataError, "damaged-file", "cut.xlsx"):
        rows_of(tmp_path / "cut.xlsx")


@pytest.mark.parametrize("entity", ['<!ENTITY x SYSTEM "file:///etc/passwd">', "many"])
def test_a_workbook_with_entities_is_refused(tmp_path: Path, entity: str) -> None:
    if entity == "many":  # a billion of them
        steps = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 9))
        entity = f'<!ENTITY e0 "ha">{steps}<!ENTITY x "{"&e8;" * 10}">'
    sound = io.BytesIO(workbook(rows=[["text"], ["here"]]))
    with zipfile.ZipFile(sound) as old, zipfile.ZipFile(tmp_path / "evil.xlsx", "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("sheet1.xml"):
                content = f"<!DOCTYPE w [{entity}]>".encode() + content[content.index(b"<worksheet") :]
                assert b">here<" in content
                content = content.replace(b">here<", b">&x;<")
            new.writestr(name, content)
    with raises_code(DataError, "damaged-file", "evil.xlsx"):
        rows_of(tmp_path / "evil.xlsx")


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
    dropped = read_split(tmp_path, "mine", FILES, "a.csv", declare(**dropping)).dropped
    assert dropped == {"label -1": 1, "without text": 1}
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
