"""Promise 22: one table of odd files. `fit`, `init`, the plan and `predict` read each in the same way; so does `serve`.

A file is read rightly, warned of, or refused with a code before anything is trained; never silently wrong.
"""

from __future__ import annotations

import csv
import io
import json
from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from regft_core.data.checks import oddities, warnings_of
from regft_core.data.examples import Example, read_jsonl
from regft_core.data.prepare import prepare_dataset
from regft_core.data.read_split import Split
from regft_core.disk.reading import read_json
from regft_core.errors import ConfigError, RegftError
from regft_core.models.export_record import Served
from regft_core.schema.sources import UNSAID, FileFormat
from regft_core.schema.tasks import TaskConfig
from regft_core.serve.model import ServedModel
from regft_core.serve.predict import predict_file, predict_stream
from regft_core.settings.read_project import open_project
from stages.fit import fit, init
from tests.errors import codes_of
from tests.small_project import parquet, review, workbook

TEXTS = [f"{review(number)} {number}" for number in range(40)]
LABELS = ["bad", "good"] * 20
OPTIONS = ("pair", "group", "kind", "encoding", "delimiter", "sheet", "decimal", "model", "out")


def table(rows: Iterable[Sequence[Any]], mark: str = ",", head: str = "text,label", ends: str = "\n") -> str:
    """Return a CSV file; cells are quoted where they have to be."""
    written = io.StringIO(newline="")
    csv.writer(written, delimiter=mark, lineterminator=ends).writerows([head.split(","), *rows])
    return written.getvalue()


def labelled(labels: Iterable[Any], mark: str = ",", **how: Any) -> str:
    return table(zip(TEXTS, labels), mark, **how)


def lines(labels: Iterable[Any], first: str = TEXTS[0]) -> str:
    rows = [{"text": text, "label": label} for text, label in zip([first, *TEXTS[1:]], labels)]
    return "".join(json.dumps(row) + "\n" for row in rows)


SHEET = [["text", "label"], *zip(TEXTS, LABELS)]
LISTED = [["bad"], ["bad", "gift"], ["good", "gift"], ["good"]] * 10
MULTI = {"kind": "multi_label", "labels": ["bad", "gift", "good"]}
PLAIN = labelled(LABELS)
WIDE = table([(text, "x", label) for text, label in zip(TEXTS, LABELS)], ";", head="text,a~b,label").replace(
    "a~b", "a, b"
)
ACCENT = PLAIN.replace("film", "fílm").encode("cp1252")
TWO_SHEETS = workbook(notes=[["x"], ["y"]], answers=SHEET)
NONES = ["nan", "None", "NULL", "#N/A"]
UNREAD = "rows-do-not-match"


@dataclass(frozen=True)
class Odd:
    """One file.

    Attributes:
        fit: code with which `fit` and `init` refuse it; empty where they read it.
        plan: code with which the plan of a task of classes bad and good refuses it; the same as ``fit`` when None.
        predict: code with which `predict` refuses it, or how many of its rows get no prediction.
        task: what the task's YAML has to have, as `init` writes it.
        warns: the part of ``task.json`` that says what is odd.
        options: of the command line.
    """

    name: str
    content: str | bytes
    fit: str = ""
    plan: str | None = None
    predict: str | int = 0
    task: dict[str, Any] = field(default_factory=dict)
    warns: str = ""
    options: dict[str, str] = field(default_factory=dict)
    rows: int = 40


def refused(name: str, content: str | bytes, code: str) -> Odd:
    """A file that every command refuses with one code."""
    return Odd(name, content, code, predict=code)


CLASSES = {"kind": "classification", "labels": ["bad", "good"]}
ODD: dict[str, Odd] = {
    # How files are written.
    "plain": Odd("a.csv", PLAIN, task=CLASSES),
    "byte-order mark and CRLF": Odd("a.csv", "\ufeff" + labelled(LABELS, ends="\r\n"), task=CLASSES),
    "old Mac line ends": Odd("a.csv", labelled(LABELS, ends="\r"), task=CLASSES),
    "semicolons": Odd("a.csv", labelled(LABELS, ";"), task=CLASSES),
    "tabs": Odd("a.tsv", labelled(LABELS, "\t"), task=CLASSES),
    "sep=": Odd("a.csv", "sep=;\n" + labelled(LABELS, ";"), task=CLASSES),
    "sep=, wrongly quoted": Odd("a.csv", '"sep=|"\r\n' + labelled(LABELS, "|", ends="\r\n"), task=CLASSES),
    "UTF-16": Odd("a.csv", PLAIN.encode("utf-16"), task=CLASSES),
    "UTF-32": Odd("a.csv", b"\0\0\xfe\xff" + PLAIN.encode("utf-32-be"), task=CLASSES),
    "cp1252": refused("a.csv", ACCENT, "not-utf8"),
    "cp1252, said": Odd("a.csv", ACCENT, task=CLASSES, options={"encoding": "cp1252"}),
    "a delimiter that is said": Odd("a.csv", WIDE, task=CLASSES, options={"delimiter": ";"}),
    "the wrong delimiter": refused("a.csv", WIDE, "column-missing"),
    "a workbook": Odd("a.xlsx", workbook(reviews=SHEET), task=CLASSES),
    "a workbook of two sheets": refused("a.xlsx", TWO_SHEETS, "sheet-missing"),
    "a sheet that is said": Odd("a.xlsx", TWO_SHEETS, task=CLASSES, options={"sheet": "answers"}),
    # The first line.
    "no header": refused("a.csv", PLAIN.partition("\n")[2], "column-missing"),
    "a title above": refused("a.csv", "Survey 2024\n\n" + PLAIN, "column-missing"),
    "a title and cells above": refused("a.csv", "Survey,\n,\n" + PLAIN, "column-missing"),
    "a title above a sheet": refused("a.xlsx", workbook(a=[["Survey"], [None], *SHEET]), "column-missing"),
    "a header in the middle": refused("a.csv", labelled(LABELS[:20]) + PLAIN, "header-repeated"),
    "a column twice": refused("a.csv", table(zip(TEXTS, LABELS, LABELS), head="text,label,label"), "column-twice"),
    # Quotes.
    "a stray quote in every second row": refused(
        "a.csv",
        "text,label\n" + "".join(f'"{one},good\n{two}",bad\n' for one, two in zip(TEXTS[::2], TEXTS[1::2])),
        "rows-in-quotes",
    ),
    "a stray quote once": refused(
        "a.csv", PLAIN.replace(TEXTS[4], f'"{TEXTS[4]}').replace(TEXTS[8], f'{TEXTS[8]}"'), "rows-in-quotes"
    ),
    "a stray quote behind the label": refused(
        "a.csv",
        "label,text\n" + "".join(f'good,"{one}\nbad,{two}"\n' for one, two in zip(TEXTS[::2], TEXTS[1::2])),
        "rows-in-quotes",
    ),
    "an open quote": refused("a.csv", PLAIN.replace(TEXTS[4], f'"{TEXTS[4]}'), "csv-syntax"),
    "texts of several lines": Odd(
        "a.csv",
        "text,label\n" + "".join(f'"{text}\nWell, good\n3,5 stars, I think",{y}\n' for text, y in zip(TEXTS, LABELS)),
        task=CLASSES,
    ),
    "a row too long": refused("a.csv", PLAIN + "a,b,good\n", "field-count"),
    # Texts.
    "words for a missing text": Odd("a.csv", table(zip([*NONES, *TEXTS[4:]], LABELS)), task=CLASSES, warns="none"),
    "half a surrogate pair": Odd("a.jsonl", lines(LABELS, "bad \ud83d"), "not-text", UNREAD, predict=1),
    "a number as text": Odd("a.jsonl", lines(LABELS).replace(json.dumps(TEXTS[3]), "7"), "not-text", UNREAD, 1),
    "a number as text in a sheet": Odd("a.xlsx", workbook(a=[*SHEET, [7, "good"]]), task=CLASSES, rows=41),
    "an empty text": Odd("a.csv", PLAIN + ",good\n", task={**CLASSES, "drop_empty": True}, predict=1),
    "no label": Odd("a.csv", PLAIN + "film,\n", task={**CLASSES, "drop_labels": [""]}),
    "null as label": Odd("a.jsonl", lines([*LABELS[:38], None, None]), task={**CLASSES, "drop_labels": [""]}, rows=38),
    "a key twice": refused("a.jsonl", lines(LABELS) + '{"text": "a", "label": "bad", "text": "b"}\n', "not-json"),
    # Labels that are lists.
    "lists as pandas writes them": Odd("a.csv", labelled(map(str, LISTED)), plan=UNREAD, task=MULTI),
    "lists of JSON in cells": Odd("a.csv", labelled(map(json.dumps, LISTED)), plan=UNREAD, task=MULTI),
    "lists": Odd("a.jsonl", lines(LISTED), plan=UNREAD, task=MULTI),
    "lists in Parquet": Odd(
        "a.parquet", parquet([{"text": t, "label": y} for t, y in zip(TEXTS, LISTED)]), plan=UNREAD, task=MULTI
    ),
    "choices of Label Studio": Odd("a.jsonl", lines([{"choices": y} for y in LISTED]), plan=UNREAD, task=MULTI),
    "choices of Label Studio in cells": Odd(
        "a.csv", labelled([json.dumps({"choices": y}) if y[1:] else y[0] for y in LISTED]), plan=UNREAD, task=MULTI
    ),
    "objects": Odd("a.jsonl", lines([{"gift": 1, "good": 0}, {"good": 1, "gift": 0}] * 20), "label-is-object", UNREAD),
    "objects in lists": Odd("a.jsonl", lines([[{"name": label}] for label in LABELS]), "label-is-object", UNREAD),
    "objects as text": Odd(
        "a.csv", labelled([{"gift": 1, "good": n % 2} for n in range(40)]), "label-is-object", UNREAD
    ),
    "lists of one label": Odd("a.csv", labelled([f"['{label}']" for label in LABELS]), task=CLASSES),
    "0 and 1 without names": Odd("a.jsonl", lines([[1, 0, 0], [0, 1, 1]] * 20), "labels-without-names", UNREAD),
    "lists, said to be classes": Odd("a.csv", labelled(LISTED), "several-labels", options={"kind": "classification"}),
    # Spellings of one label.
    "1 and 1.0": Odd("a.csv", labelled(["1", "2", "1.0", "2.0"] * 10), plan=UNREAD, warns="spellings"),
    "01 and 1": Odd("a.csv", labelled(["1", "2", "01", "2"] * 10), plan=UNREAD, warns="spellings"),
    "case": Odd("a.csv", labelled(["good", "bad", "GOOD", "bad"] * 10), plan=UNREAD, warns="spellings"),
    "Unicode forms": Odd(
        "a.csv", labelled(["schön", "bad", "scho\u0308n", "bad"] * 10), plan=UNREAD, warns="spellings"
    ),
    "invisible characters": Odd(
        "a.csv", labelled(["good", "bad", "good\u200b", "bad"] * 10), plan=UNREAD, warns="spellings"
    ),
    "none as label": Odd("a.csv", labelled(["good", "None", "bad", "bad"] * 10), plan=UNREAD, warns="none_labels"),
    "nan as label": Odd("a.csv", labelled(["good", "nan", "bad", "bad"] * 10), "missing-label", UNREAD),
    # Numbers.
    "numbers": Odd("a.csv", labelled([f"{n}.5" for n in range(40)]), plan=UNREAD, task={"kind": "regression"}),
    "decimal commas": Odd("a.csv", labelled([f"{n},5" for n in range(40)], ";"), "not-a-number", UNREAD),
    "grades with decimal commas": Odd(
        "a.csv", labelled(["1,5", "2,0", "2,5", "3,0"] * 10, ";"), "not-a-number", UNREAD
    ),
    "decimal commas, said": Odd(
        "a.csv",
        labelled([f"1.00{n % 10},5" for n in range(40)], ";"),
        plan=UNREAD,
        task={"kind": "regression"},
        options={"decimal": ","},
    ),
    "thousands": Odd("a.csv", labelled([f"{n + 70},{n + 100}" for n in range(40)]), "not-a-number", UNREAD),
    "per cent": Odd("a.csv", labelled([f"{n}%" for n in range(40)]), "not-a-number", UNREAD),
    "NA among numbers": Odd("a.csv", labelled([*range(39), "NA"]), "not-a-number", UNREAD),
    "NA among stars": Odd("a.csv", labelled([*[1, 2, 3] * 12, "NA", 1, 2, 3]), "not-a-number", UNREAD),
    "inf among numbers": Odd("a.csv", labelled([*range(39), "inf"]), "not-a-number", UNREAD),
}


class Model(ServedModel):
    """Answers each text with the same probabilities."""

    def __init__(self, **told: Any) -> None:
        served = Served(text="text", kind="classification", max_length=None, **told)
        super().__init__(served, ("bad", "good"), Path("nowhere"), lambda examples: np.full((len(examples), 2), 0.5))

    def count_tokens(self, examples: Sequence[Any]) -> tuple[int, int, int]:
        return 0, 0, 0


@pytest.fixture(params=list(ODD))
def odd(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Odd:
    case = ODD[request.param]
    content = case.content if isinstance(case.content, bytes) else case.content.encode()
    (tmp_path / case.name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return case


def arguments(odd: Odd, **more: Any) -> Namespace:
    return Namespace(**(dict.fromkeys(OPTIONS) | {"text": "text", "label": "label"} | odd.options | more))


def test_fit_and_init_say_the_same_and_the_plan_reads_what_init_wrote(odd: Odd, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    if odd.fit:
        for call in (
            lambda: fit(tmp_path, arguments(odd, file=odd.name, minutes=10.0, seed=0, model="minilm")),
            lambda: init(tmp_path, arguments(odd, folder="new", task=odd.name)),
        ):
            with pytest.raises(ConfigError) as caught:
                call()
            assert codes_of(caught.value)[0] == odd.fit, str(caught.value)
            assert "\n    -> " in str(caught.value)
            assert "under source" not in str(caught.value)  # these commands have options
        assert sorted(tmp_path.rglob("*")) == before
        return
    init(tmp_path, arguments(odd, folder="new", task=odd.name))
    task = yaml.safe_load((tmp_path / "new/pipelines/tasks/a.yaml").read_text())
    assert {key: task.get(key) for key in odd.task} == odd.task
    folder = prepare_dataset(tmp_path / "new", "a", open_project(tmp_path / "new").tasks)
    assert len(read_jsonl(folder / "train.jsonl")) == odd.rows
    described = read_json(folder / "task.json")
    said = list(warnings_of("a", described))
    assert (odd.warns in described["oddities"]) if odd.warns else said == []
    assert len(said) == bool(odd.warns)


def test_the_plan_of_a_written_task_says_the_same(odd: Odd, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / odd.name).rename(tmp_path / "data" / odd.name)
    told = {key: value for key, value in odd.options.items() if key != "kind"}
    task = TaskConfig.model_validate(
        {
            "source": {"kind": "files", **told},
            "splits": {"train": odd.name, "dev": {"folds": 2}},
            "columns": {"text": "text", "label": "label"},
            "labels": ["bad", "good"],
            "metrics": ["accuracy"],
            "primary": "accuracy",
            **{key: value for key, value in odd.task.items() if key.startswith("drop")},
        }
    )
    expected = odd.fit if odd.plan is None else odd.plan
    if "kind" in odd.options:
        expected = UNREAD
    if not expected:
        prepare_dataset(tmp_path, "a", {"a": task})
        return
    with pytest.raises(RegftError) as caught:
        prepare_dataset(tmp_path, "a", {"a": task})
    assert caught.value.code == expected
    assert "--" not in caught.value.text.partition("\n")[0]
    assert not (tmp_path / "work").exists()


def test_predict_says_the_same(odd: Odd, tmp_path: Path) -> None:
    told = FileFormat(**{key: value for key, value in odd.options.items() if key in vars(UNSAID)})
    if isinstance(odd.predict, str):
        with pytest.raises(RegftError) as caught:
            predict_file(Model(), tmp_path / odd.name, tmp_path / "out.jsonl", told)
        assert caught.value.code == odd.predict
        assert "under source" not in str(caught.value)
        return
    counted = predict_file(Model(), tmp_path / odd.name, tmp_path / "out.jsonl", told, keep=["label"])
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(answers) == counted.rows >= 40
    assert sum(answer["prediction"] is None for answer in answers) == odd.predict
    assert (counted.words_for_none > 0) == (odd.warns == "none")


def test_an_export_remembers_how_its_file_was_read(tmp_path: Path) -> None:
    """A new file is read as UTF-8 where it is that, else as the training file was."""
    model = Model(file_format={"encoding": "cp1252", "sheet": "answers", "delimiter": ";"})
    for name, content in {
        "western.csv": "text;a, b\nschön;x\n".encode("cp1252"),
        "utf.csv": "text\nschön\n".encode(),
        "utf16.csv": "text\nschön\n".encode("utf-16"),
        "utf, semicolons.csv": "text;a, b\nschön;x\n".encode(),
        "one column.csv": '"text"\n"schön"\nschön, gut\n'.encode(),
        "two.xlsx": workbook(notes=[["x"]], answers=[["text"], ["schön"]]),
    }.items():
        (tmp_path / name).write_bytes(content)
        predict_file(model, tmp_path / name, tmp_path / f"{name}.jsonl", keep=["text"])
        assert json.loads((tmp_path / f"{name}.jsonl").read_text().partition("\n")[0])["text"] == "schön"
    quoted, content = Model(file_format={"quoted": True}), b'text\tlabel\n"the ""film"""\tgood\n'
    (tmp_path / "quoted.tsv").write_bytes(content)
    predict_file(quoted, tmp_path / "quoted.tsv", tmp_path / "quoted.jsonl", keep=["text"])
    predict_stream(quoted, io.BytesIO(content), streamed := io.StringIO(), "tsv", keep=["text"])
    assert r'"the \"film\""' in streamed.getvalue() == (tmp_path / "quoted.jsonl").read_text()


def test_the_line_that_joins_spellings_maps_what_the_file_has() -> None:
    rows = {"train": Split([Example(text, text, None, n % 3) for n, text in enumerate(TEXTS)])}
    labels, values = ["good", "Good", "bad"], {"g": "good", "G": "Good", "b": "bad"}
    described = {"labels": labels, "counts": {}, "oddities": oddities("classification", labels, rows, values)}
    assert 'label_values: {"g": "good", "G": "good", "b": "bad"}, and' in next(warnings_of("a", described))
