"""A wrong file of every kind gives one clear error before anything is trained; an odd one gives one warning."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regft_core.data.prepare import prepare_dataset
from regft_core.data.remarks import remark_warnings
from regft_core.errors import ConfigError, RegftError
from regft_core.io.reading import read_json
from regft_core.settings.read_project import load_project

PARAMS = """\
model: {name: minilm}
grid: {tasks: [reviews], sizes: [full], seeds: [0, 1, 2, 3, 4, 5]}
methods: [vanilla]
training: {epochs: 1}
subsample: {}
report: {}
"""
TASK = """\
source: {kind: files}
splits: {train: rows.csv, dev: dev.csv}
columns: {text: text, label: label}
labels: [bad, good]
metrics: [accuracy]
primary: accuracy
"""
ROWS = "text,label\ngreat,good\nawful,bad\n"
LABELS = "columns: {text: text, label: label}"
Content = str | bytes
Build = Callable[..., Path]


def zipped() -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
    return held.getvalue()


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """A project of one task; ``files`` below data/, ``old`` and ``new`` change the task's YAML."""

    def make(files: dict[str, Content | None], old: str = "", new: str = "") -> Path:
        assert old in TASK
        written: dict[str, Content | None] = {
            "params.yaml": PARAMS,
            "dvc.yaml": "stages: {}\n",
            "pipelines/methods/vanilla.yaml": "override: true\nregularisers: {}\ntraining: {}\n",
            "pipelines/tasks/reviews.yaml": TASK.replace(old, new),
            "data/dev.csv": "text,label\nfine,good\npoor,bad\n",
            "data/rows.csv": ROWS,
            **{f"data/{name}": content for name, content in files.items()},
        }
        for name, content in written.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                path.mkdir()
            else:
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path

    return make


def refusal(root: Path) -> RegftError:
    """What speaks against a project's rows, from validation or from the preparation of its rows; nothing is left."""
    with pytest.raises(RegftError) as caught:
        prepare_dataset(root, "reviews", load_project(root, {}).tasks)
    assert not (root / "work").exists()
    return caught.value


#: (what is wrong, files, old text of the task, new text, code, what the message shows)
WRONG: list[tuple[str, dict[str, Content | None], str, str, str, tuple[str, ...]]] = [
    ("empty", {"rows.csv": ""}, "", "", "empty-file", ("reviews.yaml:2", "data/rows.csv", "names the columns")),
    ("header only", {"rows.csv": "text,label\n"}, "", "", "no-rows", ("rows.csv", "at least one labelled row")),
    ("one row", {"rows.csv": "text,label\na,good\n"}, "", "", "one-class", ("reviews.yaml:2", "one training row")),
    ("one class", {"rows.csv": ROWS.replace("bad", "good")}, "", "", "one-class", ("all 2", "'good'", "other labels")),
    ("a folder", {"folder.csv": None}, "rows.csv", "folder.csv", "not-a-file", ("reviews.yaml:2", "a directory")),
    ("no such file", {}, "rows.csv", "row.csv", "file-missing", ("reviews.yaml:2", "did you mean 'rows.csv'?")),
    ("old Excel", {"rows.xls": b"x"}, "rows.csv", "rows.xls", "unknown-format", (".csv", ".xlsx")),
    ("Excel named .csv", {"rows.csv": zipped()}, "", "", "another-format", ("Excel workbook", "name it .xlsx")),
    ("text named .xlsx", {"rows.xlsx": ROWS}, "rows.csv", "rows.xlsx", "another-format", ("not an Excel workbook",)),
    ("Parquet named .csv", {"rows.csv": b"PAR1\0\0"}, "", "", "another-format", ("a Parquet file", ".parquet")),
    ("gzip named .csv", {"rows.csv": b"\x1f\x8b\x08\0"}, "", "", "another-format", ("a gzip file", "add .gz")),
    ("an image", {"rows.csv": b"\x89PNG\r\n\x1a\n\0\0\0\r"}, "", "", "binary-file", ("not text",)),
    ("binary", {"rows.csv": b"text,label\0\1\2"}, "", "", "binary-file", ("reviews.yaml:2", "a binary file")),
    ("Latin-1", {"rows.csv": "text,label\né,good\n".encode("latin-1")}, "", "", "not-utf8", ("line 2", "cp1252")),
    (
        "another encoding than said",
        {"rows.csv": "text,label\né,good\n"},
        "{kind: files}",
        "{kind: files, encoding: ascii}",
        "not-its-encoding",
        ("line 2", "is not ascii text"),
    ),
    (
        "no encoding",
        {},
        "{kind: files}",
        "{kind: files, encoding: utf-9}",
        "invalid-value",
        ("reviews.yaml:1", "'utf-9' is not a text encoding"),
    ),
    (
        "a delimiter for JSON lines",
        {"rows.jsonl": '{"text": "a", "label": "good"}\n', "dev.jsonl": '{"text": "b", "label": "bad"}\n'},
        "{kind: files}\nsplits: {train: rows.csv, dev: dev.csv}",
        '{kind: files, delimiter: ";"}\nsplits: {train: rows.jsonl, dev: dev.jsonl}',
        "key-without-effect",
        ("reviews.yaml:1", "'delimiter' is for .csv, .tsv"),
    ),
    ("open quote", {"rows.csv": 'text,label\n"a,good\n'}, "", "", "csv-syntax", ("line 2", "check the quotes")),
    ("ragged", {"rows.csv": ROWS + "a,b,good\n"}, "", "", "field-count", ("rows.csv", "(line 4) has 3 fields")),
    ("a column twice", {"rows.csv": "text,label,text\na,good,b\n"}, "", "", "column-twice", ("'text' twice",)),
    ("no column", {"rows.csv": "texts,label\na,good\n"}, "", "", "column-missing", ("did you mean 'texts'?",)),
    (
        "wrong delimiter",
        {"rows.csv": "text;a, b;label\nx;y;good\n"},
        "",
        "",
        "column-missing",
        ("semicolons seem", 'delimiter: ";"'),
    ),
    ("an unknown label", {"rows.csv": ROWS + "a,goood\n"}, "", "", "rows-do-not-match", ("line 4", "'good'?")),
    ("no label", {"rows.csv": ROWS + "a,\n"}, "", "", "rows-do-not-match", ("(line 4): column 'label' has no label",)),
    ("no text", {"rows.csv": ROWS + ",good\n"}, "", "", "rows-do-not-match", ("(line 4): column 'text' has no text",)),
    ("text is label", {}, "text: text", "text: label", "inconsistent", ("reviews.yaml:3", "holds labels")),
    (
        "both texts one column",
        {},
        LABELS,
        "columns: {text: text, text_pair: text}",
        "inconsistent",
        ("reviews.yaml:3", "which is 'text' too"),
    ),
    ("not JSON", {"rows.jsonl": "{'text': 1}\n"}, "rows.csv", "rows.jsonl", "not-json", ("first line",)),
    ("a JSON list", {"rows.jsonl": "[{}]\n"}, "rows.csv", "rows.jsonl", "not-an-object", ("one object on each line",)),
    (
        "nested",
        {"rows.jsonl": '{"text": {"en": "a"}, "label": "good"}\n'},
        "rows.csv",
        "rows.jsonl",
        "rows-do-not-match",
        ("line 1", "not text"),
    ),
    (
        "cut Parquet",
        {"rows.parquet": b"PAR1"},
        "rows.csv",
        "rows.parquet",
        "damaged-file",
        ("cut off", "copy it again"),
    ),
    ("one file twice", {}, "dev: dev.csv", "dev: rows.csv", "judged-on-training-rows", ("memorised",)),
]


@pytest.mark.parametrize(("files", "old", "new", "code", "shown"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_wrong_file_of_every_kind_gives_one_clear_error_before_anything_is_trained(
    build: Build, files: dict[str, Content | None], old: str, new: str, code: str, shown: tuple[str, ...]
) -> None:
    error = refusal(build(files, old, new))
    if isinstance(error, ConfigError):
        assert [problem.code for problem in error.problems] == [code], str(error)
    else:
        assert error.code == code, str(error)
    for words in shown:
        assert words in str(error)
    assert len(str(error)) < 600


def test_wrong_rows_of_several_files_are_said_at_once(build: Build) -> None:
    text = str(refusal(build({"rows.csv": ROWS + "a,goood\n", "dev.csv": "text,label\nb,\n"})))
    assert "rows.csv: 1 of 3 rows" in text
    assert "dev.csv: 1 of 1 rows" in text
    assert text.count("[rows-do-not-match]") == 2


ODD: list[tuple[str, dict[str, Content | None], str, str, tuple[str, ...]]] = [
    ("contradiction", {"rows.csv": ROWS + "great,bad\n"}, "", "", ("2 rows", "another label elsewhere", "'great'")),
    ("dev is train", {"dev.csv": ROWS}, "", "", ("all rows of dev repeat", "folds: 5")),
    ("dev in train", {"dev.csv": ROWS + "new,bad\n"}, "", "", ("2 of 3 rows of dev repeat",)),
    ("Arabic digits", {"rows.csv": ROWS.replace("good", "١")}, "", "", ("1 row", "other digits than 0 to 9")),
    ("no words", {"rows.csv": ROWS + "--,bad\n"}, "", "", ("1 row", "without a letter or digit", "'--'")),
]


@pytest.mark.parametrize(("files", "old", "new", "shown"), [o[1:] for o in ODD], ids=[o[0] for o in ODD])
def test_an_odd_file_gives_one_warning(
    build: Build, files: dict[str, Any], old: str, new: str, shown: tuple[str, ...]
) -> None:
    root = build(files, old, new)
    folder = prepare_dataset(root, "reviews", load_project(root, {}).tasks)
    (warning,) = remark_warnings("reviews", read_json(folder / "task.json"))
    for words in shown:
        assert words in warning


def test_an_ordinary_file_has_no_remark(build: Build) -> None:
    root = build({})
    folder = prepare_dataset(root, "reviews", load_project(root, {}).tasks)
    assert list(remark_warnings("reviews", read_json(folder / "task.json"))) == []


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        ("text,tags\ngreat,fast|good\npoor,cheap\nnone,\n", 'label: tags, label_delimiter: "|"'),
        ("text;f;c;g\ngreat;1;0;1\npoor;0;1;0\nnone;0;0;0\n", "labels: [f, c, g]"),
    ],
    ids=["delimited", "0 and 1"],
)
def test_several_labels_of_a_row_from_one_column_or_from_several(build: Build, rows: str, columns: str) -> None:
    rest = "labels: [fast, cheap, good]\nmetrics: [f1_micro]\nprimary: f1_micro\n"
    root = build({"rows.csv": rows, "dev.csv": rows.replace("great", "grand").replace("poor", "mean")})
    task = f"kind: multi_label\nsource: {{kind: files}}\nsplits: {{train: rows.csv, dev: dev.csv}}\n{rest}"
    (root / "pipelines/tasks/reviews.yaml").write_text(f"{task}columns: {{text: text, {columns}}}\n")
    folder = prepare_dataset(root, "reviews", load_project(root, {}).tasks)
    labels = [line.split('"label": ')[1].split(",")[0] for line in (folder / "train.jsonl").read_text().splitlines()]
    assert labels == ["5", "2", "0"]
