"""Files as programs write them: delimiters, encodings, quoting, sheets; each reads as its rows were written."""

from __future__ import annotations

import csv
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
from regft_core.data.file_format import DELIMITERS, FileFormat
from regft_core.data.headers import columns_of
from regft_core.data.rows import open_table
from regft_core.data.sources import read_split
from regft_core.errors import DataError
from regft_core.schema.tasks import FilesSource
from tests.errors import raises_code

Read = Callable[..., list[Example]]
CAFE = [Example("0", "Das Café, wirklich", None, 1), Example("1", "schöner", None, 0)]
TEXT = 'text,label\n"Das Café, wirklich",good\nschöner,bad\n'


def rows_of(path: Path, how: FileFormat) -> tuple[list[str], list[dict[str, Any]]]:
    with open_table(path, how) as table:
        return table.names, [dict(row.values) for row in table.rows]


# ---------------------------------------------------------------------------------- delimiters


@pytest.mark.parametrize("mark", DELIMITERS)
@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_the_delimiter_is_told_from_the_header(read: Read, mark: str, suffix: str) -> None:
    assert [row.text for row in read(f"a.{suffix}", f"text{mark}label\na b{mark}good\nc{mark}bad\n")] == ["a b", "c"]


def test_the_own_delimiter_of_a_format_comes_first(read: Read, tmp_path: Path) -> None:
    assert read("a.csv", "text,label,a;b;c;d\nx,good,1\n")[0].text == "x"
    assert read("a.tsv", "text\tlabel\ta,b,c,d\nx\tgood\t1\n")[0].text == "x"
    assert read("b.csv", '"text";label;"a, b"\nx;good;1\n')[0].text == "x"  # a comma within quotes is none
    (tmp_path / "one.csv").write_text("text\na; b\n")
    assert rows_of(tmp_path / "one.csv", FileFormat()) == (["text"], [{"text": "a; b"}])


def test_a_delimiter_that_is_said_is_taken(tmp_path: Path, read: Read, declare: Any) -> None:
    content = "text;a, b;label\nx;y;good\n"
    with raises_code(DataError, "column-missing", 'write delimiter: ";" under source'):
        read("a.csv", content)
    source = FilesSource(kind="files", delimiter=";")
    assert read_split(tmp_path, "mine", source, "a.csv", declare()).examples[0].text == "x"
    assert source.model_dump(mode="json") == {"kind": "files", "delimiter": ";"}


# ----------------------------------------------------------------------------------- encodings


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_an_encoding_with_a_mark_is_told(read: Read, encoding: str, name: str) -> None:
    objects = "".join(json.dumps({"text": e.text, "label": int(e.label)}, ensure_ascii=False) + "\n" for e in CAFE)
    assert read(name, (objects if name == "a.jsonl" else TEXT).encode(encoding)) == CAFE


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16-le", "utf-8"])
def test_an_encoding_that_is_said_is_taken(tmp_path: Path, read: Read, declare: Any, encoding: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_bytes(TEXT.encode(encoding))
    source = FilesSource(kind="files", encoding=encoding)
    assert read_split(tmp_path, "mine", source, "a.csv", declare()).examples == CAFE


def test_bytes_that_are_no_text_are_named_by_their_line_wherever_they_are(tmp_path: Path, read: Read) -> None:
    with raises_code(DataError, "not-utf8", "a.csv", "(line 2, byte 0xe9)", "encoding: cp1252"):
        read("a.csv", TEXT.encode("latin-1"))
    far = b"text,label\n" + b"x,good\n" * 300_000 + "é,bad\n".encode("latin-1")
    with raises_code(DataError, "not-utf8", "(line 300002, byte 0xe9)"):
        read("b.csv", far)
    (tmp_path / "c.csv").write_bytes(TEXT.encode("cp1252"))
    with raises_code(DataError, "not-its-encoding", "is not ascii text (line 2"):
        rows_of(tmp_path / "c.csv", FileFormat(encoding="ascii"))


def test_a_codec_that_is_no_text_encoding_is_refused() -> None:
    for name in ("utf-9", "base64", "zip"):
        with pytest.raises(ValueError, match="is not a text encoding; give for instance utf-8"):
            FilesSource(kind="files", encoding=name)


# --------------------------------------------------------------------------------- round trips


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(
        st.tuples(*[st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)] * 2),
        min_size=1,
        max_size=6,
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
    assert rows_of(path, FileFormat()) == (["one", "two"], [dict(zip(("one", "two"), row)) for row in rows])
    assert columns_of(path) == ["one", "two"]


# -------------------------------------------------------------------------------------- sheets


def workbook(path: Path, **sheets: list[list[Any]]) -> Path:
    import openpyxl

    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    path.parent.mkdir(parents=True, exist_ok=True)
    book.save(path)
    return path


def test_the_only_sheet_of_a_workbook_is_read(tmp_path: Path, declare: Any) -> None:
    rows = [["text", "label", None], ["one\ntwo", 1], [None, None], ["three", "bad"]]
    path = workbook(tmp_path / "data" / "a.xlsx", reviews=rows)
    assert columns_of(path) == ["text", "label"]
    split = read_split(tmp_path, "mine", FilesSource(kind="files"), "a.xlsx", declare())
    assert split.examples == [Example("0", "one\ntwo", None, 1), Example("1", "three", None, 0)]
    with open_table(path) as table:
        positions = [row.position for row in table.rows]
        assert table.done() == 1.0 or table.done() > 0.6  # a blank line is no row
    assert positions == ["row 1 (line 2)", "row 2 (line 4)"]


def test_a_sheet_is_named_where_there_are_several(tmp_path: Path) -> None:
    path = workbook(tmp_path / "a.xlsx", rows=[["text"], ["x"]], notes=[["what"], ["y"]])
    assert rows_of(path, FileFormat(sheet="notes")) == (["what"], [{"what": "y"}])
    with raises_code(DataError, "sheet-missing", "'rows'", "'notes'", "sheet: rows"):
        rows_of(path, FileFormat())
    with raises_code(DataError, "sheet-missing", "no sheet 'note'", "did you mean 'notes'?"):
        rows_of(path, FileFormat(sheet="note"))


def test_sheets_that_are_no_tables_are_refused(tmp_path: Path) -> None:
    for rows, code, words in (
        ([], "empty-file", "is empty"),
        ([["text", "text"], ["a", "b"]], "column-twice", "'text'"),
        ([["text"], ["a", "b"]], "field-count", "line 2"),
        ([["text"], ["#N/A"]], "error-in-cell", "cell A2"),
    ):
        path = workbook(tmp_path / f"{code}.xlsx", rows=rows)
        with raises_code(DataError, code, words):
            rows_of(path, FileFormat())
    whole = workbook(tmp_path / "whole.xlsx", rows=[["text"], *[[f"row {n}"] for n in range(500)]]).read_bytes()
    (tmp_path / "cut.xlsx").write_bytes(whole[: len(whole) // 2])
    with raises_code(DataError, "damaged-file", "cut.xlsx"):
        rows_of(tmp_path / "cut.xlsx", FileFormat())


@pytest.mark.parametrize("entity", ['<!ENTITY x SYSTEM "file:///etc/passwd">', "many"])
def test_a_workbook_with_entities_is_refused(tmp_path: Path, entity: str) -> None:
    if entity == "many":  # a billion of them
        steps = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 9))
        entity = f'<!ENTITY e0 "ha">{steps}<!ENTITY x "{"&e8;" * 10}">'
    sound = workbook(tmp_path / "sound.xlsx", rows=[["text"], ["here"]])
    with zipfile.ZipFile(sound) as old, zipfile.ZipFile(tmp_path / "evil.xlsx", "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("sheet1.xml"):
                content = f"<!DOCTYPE w [{entity}]>".encode() + content[content.index(b"<worksheet") :]
                assert b">here<" in content
                content = content.replace(b">here<", b">&x;<")
            new.writestr(name, content)
    with raises_code(DataError, "damaged-file", "evil.xlsx"):
        rows_of(tmp_path / "evil.xlsx", FileFormat())


# ------------------------------------------------------------------------------------- objects


def test_fields_within_fields_are_refused_with_what_to_write(read: Read) -> None:
    nested = '{"review": {"text": "a"}, "label": 1}\n'
    with raises_code(DataError, "column-missing", "fields within 'review' are not read", "one level"):
        read("a.jsonl", nested, columns={"text": "review.text"})
    with raises_code(DataError, "rows-do-not-match", "line 1", "not text"):
        read("a.jsonl", nested, columns={"text": "review"})
    with raises_code(DataError, "rows-do-not-match", "line 1", "{'of': 1}"):
        read("a.jsonl", '{"text": "a", "label": {"of": 1}}\n')
