"""Own files: every format, every way in which one can be wrong."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regft_core.data.declare import Declaration
from regft_core.data.examples import Example
from regft_core.data.sources import read_split
from regft_core.errors import DataError
from regft_core.schema.tasks import FilesSource
from tests.errors import raises_code

Read = Callable[..., list[Example]]
WANTED = [Example("0", "fine, really", None, 1), Example("1", 'he said "no"', None, 0)]


def parquet(rows: list[dict[str, Any]]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), buffer)
    return buffer.getvalue()


def contents() -> dict[str, bytes]:
    rows = [{"text": e.text, "label": ("bad", "good")[int(e.label)]} for e in WANTED]
    return {
        "a.csv": b'text,label\n"fine, really",good\n"he said ""no""",bad\n',
        "a.tsv": b'text\tlabel\nfine, really\tgood\nhe said "no"\tbad\n',
        "a.jsonl": "".join(json.dumps(row) + "\n" for row in rows).encode(),
        "a.parquet": parquet(rows),
    }


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet"])
def test_every_format_reads_the_same_plain_and_compressed(name: str, read: Read) -> None:
    content = contents()[name]
    assert read(name, content) == WANTED
    assert read(name + ".gz", gzip.compress(content)) == WANTED
    assert read(name.upper() + ".gz", gzip.compress(content)) == WANTED


def test_byte_order_mark_crlf_blank_lines_and_line_breaks_in_fields(read: Read) -> None:
    assert read("a.csv", b"\xef\xbb\xbftext,label\r\na,good\r\n\r\nb,bad\r\n") == [
        Example("0", "a", None, 1),
        Example("1", "b", None, 0),
    ]
    assert read("b.csv", 'text,label\n"two\nlines",good\n')[0].text == "two\nlines"
    assert read("c.tsv", "text\tlabel\na\u2028b\tgood\n")[0].text == "a\u2028b"
    assert read("d.jsonl", '{"text": "a\u2028b", "label": "good"}\n\n')[0].text == "a\u2028b"


def test_a_quote_in_a_tsv_swallows_nothing(read: Read) -> None:
    rows = read("a.tsv", 'text\tlabel\n"open\tgood\nclosed"\tbad\n')
    assert [row.text for row in rows] == ['"open', 'closed"']


def test_a_tsv_is_quoted_as_csv_where_its_task_says_so(tmp_path: Path, read: Read, declare: Any) -> None:
    content = 'text\tlabel\n"he said ""no""\tagain"\tgood\nplain\tbad\n'
    with raises_code(DataError, "field-count", "row 1"):
        read("a.tsv", content)
    quoted = FilesSource(kind="files", quoted=True)
    rows = read_split(tmp_path, "mine", quoted, "a.tsv", declare()).examples
    assert [row.text for row in rows] == ['he said "no"\tagain', "plain"]


def test_what_stands_in_keys_of_files_is_what_it_was_before_options_came() -> None:
    assert FilesSource(kind="files", get="it is elsewhere").model_dump(mode="json") == {"kind": "files"}
    assert FilesSource(kind="files", quoted=True).model_dump(mode="json") == {"kind": "files", "quoted": True}


def test_a_missing_file_is_said_with_where_it_can_be_had(tmp_path: Path, declare: Any) -> None:
    source = FilesSource(kind="files", get="it is reviews.tsv of the authors")
    with raises_code(DataError, "file-missing", "put it at data/a/b.tsv: it is reviews.tsv of the authors"):
        read_split(tmp_path, "mine", source, "a/b.tsv", declare())


def test_pairs_identifiers_and_paths_with_data_in_front(tmp_path: Path, read: Read, declare: Any) -> None:
    columns = {"text": "q", "text_pair": "a", "label": "y", "id": "n"}
    content = "n,q,a,y\n7,Who?,Me.,good\n"
    assert read("sub/a.csv", content, columns=columns) == [Example("7", "Who?", "Me.", 1)]
    source = FilesSource(kind="files")
    assert read_split(tmp_path, "mine", source, "data/sub/a.csv", declare(columns=columns)).examples[0].idx == "7"


# ----------------------------------------------------------------------------------- labels


def label_of(read: Read, value: Any, **changes: Any) -> int | float:
    return read("a.jsonl", json.dumps({"text": "a", "label": value}), **changes)[0].label


def test_integers_count_into_labels_and_names_are_names(read: Read) -> None:
    assert [label_of(read, value) for value in ("bad", "good", 0, 1, 1.0, "1", " good ")] == [0, 1, 0, 1, 1, 1, 1]


def test_label_values_translate_and_are_then_the_only_values(read: Read) -> None:
    values = {"1": "good", "5": "bad", "true": "good"}
    assert [label_of(read, value, label_values=values) for value in (1, "5", 5.0, True)] == [1, 0, 0, 1]
    with raises_code(DataError, "rows-do-not-match", "none of label_values"):
        label_of(read, "good", label_values=values)


def test_names_that_look_like_other_positions_are_refused_when_a_number_could_mean_both(read: Read) -> None:
    swapped = ("1", "0")
    assert label_of(read, "1", labels=swapped) == 0  # text is a name first
    with raises_code(DataError, "rows-do-not-match", "both a name and a position"):
        label_of(read, 1, labels=swapped)
    assert label_of(read, 1, labels=("0", "1")) == 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (2, "label 2 is outside 0 to 1"),
        (-1, "label -1 is outside"),
        ("goood", "did you mean 'good'"),
        (None, "no label"),
        ("", "no label"),
        (float("nan"), "no label"),
        (0.5, "none of labels"),
        (True, "none of labels"),
    ],
)
def test_a_label_outside_the_declared_set(value: Any, message: str, read: Read) -> None:
    with raises_code(DataError, "rows-do-not-match", message):
        label_of(read, value)


def test_unlabelled_rows_are_dropped_only_when_declared_and_counted(tmp_path: Path, read: Read, declare: Any) -> None:
    content = "text,label\na,good\nb,-1\nc,bad\n,good\n"
    assert [e.idx for e in read("a.csv", content, drop_labels=("-1",), drop_empty=True)] == ["0", "2"]
    found = read_split(
        tmp_path, "mine", FilesSource(kind="files"), "a.csv", declare(drop_labels=("-1",), drop_empty=True)
    )
    assert found.dropped == {"label -1": 1, "without text": 1}
    with raises_code(DataError, "rows-do-not-match", "2 of 4"):
        read("a.csv", content)


# ------------------------------------------------------------------------------- regression


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("nan", "not a finite number"),
        ("inf", "not a finite number"),
        (float("nan"), "not a finite number"),
        ("high", "'high' is not a number"),
        (5.01, "5.01 is outside range"),
        (-1, "outside range"),
        ("", "no target"),
        (None, "no target"),
        (True, "not a number"),
        ([1], "not a number"),
        (10**400, "not a number"),
    ],
)
def test_targets_are_finite_numbers_in_range(value: Any, message: str, read: Read) -> None:
    with raises_code(DataError, "rows-do-not-match", message):
        label_of(read, value, kind="regression", labels=None, range=(0.0, 5.0))


def test_targets_are_floats(read: Read) -> None:
    for value in (3, "3", 3.0, " 3.0 "):
        label = label_of(read, value, kind="regression", labels=None, range=(0.0, 5.0))
        assert label == 3.0
        assert isinstance(label, float)


# ------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 5000], ids=["plus", "minus"])
def test_numbers_of_thousands_of_digits_are_named_by_their_row(read: Read, number: str) -> None:
    for name, content in {
        "a.csv": f"text,label\na,good\nb,{number}\n",
        "a.jsonl": f'{{"text": "b", "label": "{number}"}}',
    }.items():
        with raises_code(DataError, "rows-do-not-match", "row", "(line", "): label", "is outside 0 to 1") as caught:
            read(name, content)
        assert len(caught.value.text) < 400
    with raises_code(DataError, "not-json", "line 2"):
        read("b.jsonl", f'{{"text": "a", "label": 0}}\n{{"text": "b", "label": {number}}}')
    with raises_code(DataError, "rows-do-not-match", "row 1 (line 2): target", "is not a finite number") as caught:
        read("c.csv", f"text,label\na,{number}\n", kind="regression", labels=None, range=None)
    assert len(caught.value.text) < 400


def test_zeros_in_front_of_an_index_do_not_count(read: Read) -> None:
    assert [label_of(read, value) for value in ("0" * 5000, "-0", "0" * 5000 + "1", "+1")] == [0, 0, 1, 1]


def test_the_row_the_line_and_the_value_are_named(read: Read) -> None:
    with pytest.raises(DataError) as caught:
        read("a.csv", 'text,label\n"two\nlines",good\nx,great\n')
    assert "task 'mine', a.csv: 1 of 2 rows" in str(caught.value)
    assert "row 2 (line 4): label 'great'" in str(caught.value)


def test_five_problems_are_shown_and_the_rest_counted(read: Read) -> None:
    with pytest.raises(DataError) as caught:
        read("a.csv", "text,label\n" + "x,odd\n" * 12)
    lines = str(caught.value).splitlines()
    assert "12 of 12 rows" in lines[0]
    assert len(lines) == 8
    assert lines[-2].strip() == "... and 7 more"
    assert lines[-1].strip().startswith("-> correct the rows, or the task's YAML")


@pytest.mark.parametrize("value", [None, "", "  ", "\n"])
def test_empty_text(value: Any, read: Read) -> None:
    with raises_code(DataError, "rows-do-not-match", "row 1", "column 'text' has no text"):
        read("a.jsonl", json.dumps({"text": value, "label": 0}))


def test_text_that_is_no_text(read: Read) -> None:
    with raises_code(DataError, "rows-do-not-match", "is 7, not text"):
        read("a.jsonl", '{"text": 7, "label": 0}')
    with raises_code(DataError, "rows-do-not-match", "surrogate"):
        read("a.jsonl", '{"text": "x\\ud800", "label": 0}')


def test_a_list_of_keywords_is_one_text(read: Read) -> None:
    assert read("a.jsonl", '{"text": ["one", "two"], "label": 0}')[0].text == "one two"
    with raises_code(DataError, "rows-do-not-match", "no text"):
        read("a.jsonl", '{"text": [], "label": 0}')


def test_a_missing_column_names_the_nearest(read: Read) -> None:
    with raises_code(DataError, "column-missing", "'labels'", "columns.label: no column 'label'") as caught:
        read("a.csv", "text,labels\na,good\n")
    assert "its columns are 'text', 'labels'" in str(caught.value)


def test_identifiers_are_unique_and_present(read: Read) -> None:
    with raises_code(DataError, "rows-do-not-match", "row 2", "'a' was already used by row 1"):
        read("a.csv", "n,text,label\na,x,good\na,y,bad\n", columns={"id": "n"})
    with raises_code(DataError, "rows-do-not-match", "no identifier"):
        read("a.csv", "n,text,label\n,x,good\n", columns={"id": "n"})


@pytest.mark.parametrize("name", ["a.csv.gz", "a.jsonl.gz", "a.parquet", "a.parquet.gz"])
def test_files_cut_off_anywhere(name: str, read: Read) -> None:
    content = contents()[name.removesuffix(".gz")]
    whole = gzip.compress(content) if name.endswith(".gz") else content
    for end in (0, 5, len(whole) // 2, len(whole) - 3):
        with pytest.raises(DataError) as caught:
            read(name, whole[:end])
        assert caught.value.code in ("damaged-file", "empty-file", "no-rows")


def test_not_gzip_not_utf8_not_json(read: Read) -> None:
    with raises_code(DataError, "damaged-file"):
        read("a.csv.gz", "text,label\na,good\n")
    with raises_code(DataError, "not-utf8", "(line 2", "0xe9"):
        read("a.csv", "text,label\ncafé,good\n".encode("latin-1"))
    with raises_code(DataError, "not-json", "line 2"):
        read("a.jsonl", '{"text": "a", "label": 0}\n{"text": \n')
    with raises_code(DataError, "not-an-object"):
        read("a.jsonl", "[1]")


def test_another_separator_is_named(read: Read) -> None:
    with raises_code(DataError, "column-missing", "no column 'text'", 'delimiter: ";"'):
        read("a.csv", "text;a, b;label\na;b;good\n")
    with raises_code(DataError, "column-missing", "'other', 'columns'"):
        read("a.csv", "other;columns\na;good\n")


def test_rows_that_do_not_match_come_with_the_keys_that_settle_them(read: Read) -> None:
    with raises_code(DataError, "rows-do-not-match", "'worse' is none of labels"):
        read("a.csv", "text,label\na,worse\n")


def test_tables_of_the_wrong_shape(read: Read) -> None:
    with raises_code(DataError, "field-count", "row 2", "(line 3", "has 3", "header 2"):
        read("a.csv", "text,label\na,good\nb,c,bad\n")
    with raises_code(DataError, "field-count", "row 2", "(line 3", "header 2"):
        read("a.csv", "text,label\na,good\nb\n")
    with raises_code(DataError, "column-twice", "text"):
        read("a.csv", "text,text\na,good\n")
    with raises_code(DataError, "csv-syntax"):
        read("a.csv", 'text,label\n"a,good\n')


@pytest.mark.parametrize(("name", "content"), [("a.csv", ""), ("a.csv", "text,label\n"), ("a.jsonl", "\n")])
def test_no_rows(name: str, content: str, read: Read) -> None:
    with pytest.raises(DataError) as caught:
        read(name, content)
    assert caught.value.code in ("empty-file", "no-rows")


def test_all_rows_dropped(read: Read) -> None:
    with raises_code(DataError, "no-rows", "(all 1"):
        read("a.csv", "text,label\na,-1\n", drop_labels=("-1",))


def test_where_files_may_be(tmp_path: Path, read: Read, declare: Callable[..., Declaration]) -> None:
    read("train.csv", "text,label\na,good\n")
    (tmp_path / "secret.csv").write_text("text,label\na,good\n")
    source = FilesSource(kind="files")
    with raises_code(DataError, "file-missing", "train.csv"):
        read_split(tmp_path, "mine", source, "trian.csv", declare())
    with raises_code(DataError, "outside-data"):
        read_split(tmp_path, "mine", source, "../secret.csv", declare())
    with raises_code(DataError, "outside-data"):
        read_split(tmp_path, "mine", source, str(tmp_path / "secret.csv"), declare())
    with raises_code(DataError, "unknown-format"):
        read_split(tmp_path, "mine", source, "train.xls", declare())
    (tmp_path / "data" / "dev.csv").mkdir()
    os.mkfifo(tmp_path / "data" / "pipe.csv")
    for name, kind in {"dev.csv": "a directory", "pipe.csv": "a named pipe"}.items():
        with raises_code(DataError, "not-a-file", f"data/{name}", kind):
            read_split(tmp_path, "mine", source, name, declare())
    with raises_code(DataError, "file-missing", "dev1.csv") as caught:
        read_split(tmp_path, "mine", source, "dev1.csv", declare())
    assert "did you mean" not in str(caught.value)  # a directory is no suggestion
    with raises_code(DataError, "not-a-file", "File name too long"):
        read_split(tmp_path, "mine", source, "a" * 300 + ".csv", declare())
