"""Files as programs write them: delimiters, encodings, quoting, sheets; each reads as its rows were written."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regft_core.data.examples import Example
from regft_core.data.file_format import DELIMITERS
from regft_core.data.read_split import read_split
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
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]),
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
