"""A file or a stream of texts goes in, one line per row comes out: what was scored, cut texts counted, nothing lost."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from regft_core.data.examples import Example
from regft_core.data.table import open_table
from regft_core.errors import DataError, ModelError
from regft_core.models import devices
from regft_core.models import precision as precisions
from regft_core.models.export_record import Abstain
from regft_core.schema.sources import FileFormat
from regft_core.serve import predict as serving
from regft_core.serve.answers import safe_cell
from regft_core.serve.loaded import LoadedModel
from regft_core.serve.model import ServedModel, load_served
from regft_core.serve.predict import predict_file, predict_stream
from stages.predict import _say
from tests import warm
from tests.errors import raises_code
from tests.small_project import REPOSITORY, parquet, read_csv, read_jsonl, review, write_csv
from tests.stages.conftest import LONG, Exported

TEXTS = [review(0), LONG, review(3, 20), "a", review(2, 11)]


@pytest.fixture(scope="module")
def model(exported: Exported) -> ServedModel:
    return load_served(exported["vanilla", "reviews"], "cpu")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "new.csv", [("id", "review"), *enumerate(TEXTS)])


def test_a_score_takes_labels_as_frames_have_them(model: ServedModel) -> None:
    loaded, texts = LoadedModel(model.directory, "cpu"), [review(n, n + 1) for n in range(6)]
    for kind in ("classification", "multi_label"):
        loaded._model = replace(model, served=model.served.model_copy(update={"kind": kind}), labels=("1", "2"))
        answers = loaded.predict(texts).tolist()
        numbers = [float(one) if isinstance(one, str) else [int(part) for part in one[::-1]] for one in answers]
        assert loaded.score(texts, numbers) == loaded.score(texts, [";".join(one) for one in answers]) == 1
        assert loaded.score(texts, [[*one, "3"] for one in answers]) == 0
    loaded._model = replace(
        model, served=loaded._model.served.model_copy(update={"label_delimiter": "|"}), labels=("1", "2")
    )
    assert loaded.score(texts, ["|".join(one) or np.nan for one in loaded.predict(texts)]) == 1
    for labels, dtype in ((("FALSE", "TRUE"), bool), (("1.50", "2.0"), np.float32), (("false", "true"), "boolean")):
        loaded._model = replace(model, labels=labels)
        right = pd.Series([yaml.safe_load(str(one)) for one in loaded.predict(texts)]).astype(dtype)
        assert loaded.score(texts, right) == loaded.score(texts, right.to_numpy()) == 1


def test_chunks_change_neither_order_nor_predictions(
    model: ServedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_csv(tmp_path / "new.csv", [("review",), *((review(n, n % 17),) for n in range(50))])
    predict_file(model, data, tmp_path / "whole.jsonl")
    monkeypatch.setattr(serving, "CHUNK_ROWS", 7)
    monkeypatch.setattr("regft_core.evaluate.logits.evaluation_tokens", lambda device: 40)
    predict_file(model, data, tmp_path / "chunks.jsonl")
    monkeypatch.setattr(serving, "CHUNK_CHARACTERS", 1)
    predict_file(model, data, tmp_path / "rows.jsonl")
    assert len(read_jsonl(tmp_path / "rows.jsonl")) == 50
    whole, chunks = (read_jsonl(tmp_path / f"{name}.jsonl") for name in ("whole", "chunks"))
    assert [row["row"] for row in chunks] == list(range(1, 51))
    for one, other in zip(whole, chunks, strict=True):
        assert one["prediction"] == other["prediction"]
        assert one["probability_good"] == pytest.approx(other["probability_good"], abs=2e-6)


def test_rows_without_a_text_get_no_prediction_and_are_counted(model: ServedModel, tmp_path: Path) -> None:
    data = tmp_path / "new.jsonl"
    data.write_text('{"review": "good film"}\n{"review": null}\n{"review": "  "}\n{"other": 1}\n{"review": "bad"}\n')
    counted = predict_file(model, data, tmp_path / "out.csv")
    assert (counted.rows, counted.empty) == (5, 3)
    assert [bool(row["prediction"]) for row in read_csv(tmp_path / "out.csv")] == [True, False, False, False, True]
    data.write_text('{"review": "good film"}\n{"review": 7}\n{"review": "\\ud83d"}\n')
    counted = predict_file(model, data, tmp_path / "again.csv")
    assert (counted.rows, counted.empty, counted.unreadable) == (3, 2, 2)
    assert "row 2 (line 2)" in counted.unreadable_rows[0]
    data.write_text('{"review": 7}\n')
    with raises_code(DataError, "not-text", "row 1 (line 1)", "review", "is 7"):
        predict_file(model, data, tmp_path / "none.csv")
    assert not (tmp_path / "none.csv").exists()


def test_tokens_of_unknown_words_are_counted(model: ServedModel, tmp_path: Path) -> None:
    data = write_csv(tmp_path / "new.csv", [("review",), ("good film",), ("ሰላም ነው",)])
    counted = predict_file(model, data, tmp_path / "out.csv")
    assert (counted.unknown, counted.tokens) == (2, 4)


def test_what_is_missing_is_named(model: ServedModel, exported: Exported, tmp_path: Path) -> None:
    data = write_csv(tmp_path / "new.csv", [("Review ", "date"), ("good film", "1")])
    with raises_code(DataError, "column-missing", "'Review '", "no column 'review' (--text)") as error:
        predict_file(model, data, tmp_path / "out.csv")
    assert "line 1 names the columns: 'Review ', 'date'; name the right one: --text COLUMN" in str(error.value)
    predict_file(model.reading("Review ", None), data, tmp_path / "out.csv")
    with raises_code(DataError, "column-missing", "'date'", "no column 'dat' (--keep)"):
        predict_file(model.reading("Review ", None), data, tmp_path / "new.out.csv", keep=["dat"])
    with raises_code(DataError, "single-text-model"):
        predict_file(model.reading("Review ", "date"), data, tmp_path / "new.out.csv")
    # A model of pairs needs both texts.
    pairs = load_served(exported["pooled", "pairs"], "cpu")
    assert pairs.served.rows_per_example == 2
    data = write_csv(tmp_path / "new.csv", [("one", "second"), ("good film", "bad film")])
    with raises_code(DataError, "column-missing", "no column 'other' (--text-pair)"):
        predict_file(pairs, data, tmp_path / "pairs.csv")
    assert predict_file(pairs.reading(None, "second"), data, tmp_path / "pairs.csv").rows == 1


def test_an_output_is_replaced_whole_or_not_at_all(model: ServedModel, data: Path) -> None:
    out = data.parent / "out.csv"
    predict_file(model, data, out)
    before = out.read_bytes()
    wrong = write_csv(data.parent / "wrong.csv", [("review",), ("good",), ("bad", "too many")])
    with raises_code(DataError, "field-count", "has 2"):
        predict_file(model, wrong, out, overwrite=True)
    assert out.read_bytes() == before
    with raises_code(DataError, "output-is-input"):
        predict_file(model, data, data, overwrite=True)
    with raises_code(DataError, "unknown-format", ".csv or .jsonl"):
        predict_file(model, data, data.with_suffix(".parquet"))


def test_what_is_kept_stays_as_it_is(model: ServedModel, tmp_path: Path) -> None:
    (tmp_path / "new.parquet").write_bytes(parquet([{"review": "good", "weight": 1.5e-9}]))
    predict_file(model, tmp_path / "new.parquet", tmp_path / "weights.csv", keep=["weight"])
    (row,) = read_csv(tmp_path / "weights.csv")
    assert (row["weight"], len(row["probability_good"])) == ("1.5e-09", len("0.123456"))
    texts = [f"good{mark}film" for mark in ("\r", "\n", "\r\n", "\r\r", "\u2028")] + ["bad\r"]
    (tmp_path / "new.jsonl").write_text("".join(json.dumps({"review": text}) + "\n" for text in texts))
    predict_file(model, tmp_path / "new.jsonl", tmp_path / "out.csv", keep=["review"])
    with open_table(tmp_path / "out.csv") as table:
        assert [row.values["review"] for row in table.rows] == texts
    assert (tmp_path / "out.csv").read_bytes().startswith(b"row,review,prediction,probability_bad,probability_good\n1")


def test_no_cell_is_a_formula(model: ServedModel, tmp_path: Path) -> None:
    evil = ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "\tx", "  =1", "-5", "2.5", "a=b"]
    data = write_csv(tmp_path / "new.csv", [("review", "=note"), *(("good", text) for text in evil)])
    predict_file(model, data, tmp_path / "out.csv", keep=["=note"])
    found = [row["'=note"] for row in read_csv(tmp_path / "out.csv")]
    assert found == ["'=1+1", "'+cmd", "'-2+3", "'@SUM(A1)", "'\tx", "'  =1", "-5", "2.5", "a=b"]
    assert safe_cell(-0.5) == -0.5


def test_a_classifier_from_elsewhere_is_served_and_an_encoder_is_not(
    exported: Exported, trained: Path, tmp_path: Path
) -> None:
    own = Path(shutil.copytree(exported["vanilla", "reviews"], tmp_path / "own"))
    (own / "regft.json").unlink()
    served = load_served(own, "cpu")
    assert (served.labels, served.served.max_length) == (("bad", "good"), 32)
    data = write_csv(tmp_path / "new.csv", [("text",), ("good film",)])
    predict_file(served, data, tmp_path / "out.csv")
    named = json.loads((own / "config.json").read_text())
    (own / "config.json").write_text(json.dumps(named | {"id2label": {"0": "good", "1": "good"}}))
    with raises_code(ModelError, "labels-alike", "'good'"):
        load_served(own, "cpu")
    with raises_code(ModelError, "weights-missing"):
        load_served(trained / "models" / "tiny", "cpu")
    with raises_code(ModelError, "not-an-export"):
        load_served(tmp_path / "nothing", "cpu")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / ".models").symlink_to(trained)
    with raises_code(ModelError, "not-an-export"):
        load_served(tmp_path / "project", "cpu")
    (own / "regft.json").write_text("{}")
    with raises_code(ModelError, "outdated-export"):
        load_served(own, "cpu")


def test_rows_below_the_exported_threshold_are_not_answered(
    exported: Exported, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The threshold is that of ``regft.json``; probabilities stay, the prediction is empty."""
    model = load_served(exported["vanilla", "reviews"], "cpu")
    plain = predict_file(model, data, tmp_path / "all.csv")
    assert plain.abstained == 0
    answered = read_csv(tmp_path / "all.csv")
    assert "answered" not in answered[0]
    best = [max(float(row["probability_bad"]), float(row["probability_good"])) for row in answered]
    threshold = (sorted(best)[1] + sorted(best)[2]) / 2
    abstain = Abstain(threshold=threshold, accuracy=0.996, confidence=0.95, coverage=0.6, rows=100)
    abstaining = replace(model, served=model.served.model_copy(update={"abstain": abstain}))
    counted = predict_file(abstaining, data, tmp_path / "some.csv")
    found = read_csv(tmp_path / "some.csv")
    assert counted.abstained == 2
    _say(abstaining, counted, sys.stdout)
    assert "99.6%" in capsys.readouterr().out  # never rounded up to all
    for row, value in zip(found, best, strict=True):
        assert row["answered"] == ("true" if value >= threshold else "false")
        assert bool(row["prediction"]) is (row["answered"] == "true")
        assert row["probability_good"]


class Killed(BaseException):
    """Stands for a process that ends in the middle."""


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_a_killed_prediction_goes_on_and_writes_the_same_bytes(
    model: ServedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, ending: str
) -> None:
    monkeypatch.setattr(serving, "CHUNK_ROWS", 7)
    texts = [(n, review(n, n % 17) if n % 9 else " ") for n in range(40)]
    data = write_csv(tmp_path / "new.csv", [("id", "review"), *texts])
    whole = predict_file(model, data, tmp_path / f"whole{ending}", keep=["id"])
    out, scores, calls = tmp_path / f"out{ending}", ServedModel.scores, list[int]()

    def counted(self: ServedModel, examples: Any) -> Any:
        calls.append(len(examples))
        if len(calls) == 4:
            raise Killed
        return scores(self, examples)

    monkeypatch.setattr(ServedModel, "scores", counted)
    with pytest.raises(Killed):
        predict_file(model, data, out, keep=["id"])
    assert not out.exists()
    with (tmp_path / f"out{ending}.partial").open("a") as file:
        file.write("half a line that was never counted")
    calls[:] = [0] * 10
    again = predict_file(model, data, out, keep=["id"])
    assert len(calls) == 13
    assert out.read_bytes() == (tmp_path / f"whole{ending}").read_bytes()
    assert (again.rows, again.resumed, again.empty, again.cut) == (40, 21, whole.empty, whole.cut)
    assert "goes on after 21 rows" in capsys.readouterr().err
    assert list(tmp_path.glob("*.partial*")) == []


def test_other_options_begin_anew_and_two_processes_do_not_mix(
    model: ServedModel, data: Path, tmp_path: Path, capsys: Any
) -> None:
    out = tmp_path / "out.csv"
    with contextlib.suppress(Killed), serving.partial_file(out, "another") as (file, _, keep):
        file.write("x" * 1000)
        keep({"rows": 3})
        with raises_code(DataError, "in-the-way", "another process"):
            predict_file(model, data, out)
        raise Killed
    assert predict_file(model, data, out, keep=["id"]).resumed == 0
    assert "begins anew" in capsys.readouterr().err
    assert [row["id"] for row in read_csv(out)] == list("01234")


@pytest.mark.parametrize(
    ("precision", "method", "task", "instructions"),
    [
        ("int8", "vanilla", "reviews", ("vnni",)),
        ("int8", "pooled", "pairs", ("vnni",)),
        ("int8", "vanilla", "scores", ("vnni",)),
        ("bf16", "pooled", "reviews", ("avx512_bf16", "int8")),  # what this processor has in its place
    ],
)
def test_fewer_bits_answer_nearly_as_fp32_or_are_refused(
    exported: Exported,
    monkeypatch: pytest.MonkeyPatch,
    precision: str,
    method: str,
    task: str,
    instructions: tuple[str, ...],
) -> None:
    def processor(*, bf16: bool, int8: bool) -> None:
        monkeypatch.setattr(devices, "multiplies_bf16", lambda kind: bf16)
        monkeypatch.setattr(precisions, "multiplies_int8", lambda: int8)

    processor(bf16=True, int8=True)
    examples = [Example(str(n), review(n, n % 9 + 1), review(n + 1) if task == "pairs" else None, 0) for n in range(20)]
    plain, small = (load_served(exported[method, task], "cpu", one).scores(examples) for one in ("fp32", precision))
    assert 0 < abs(plain - small).max() < 0.05 * max(1.0, abs(plain).max())
    processor(bf16=False, int8=precision == "bf16")
    with raises_code(ModelError, "precision-not-possible", precision, *instructions):
        load_served(exported[method, task], "cpu", precision)


# ----------------------------------------------------------------------------------------------------- standard input


LINES = [review(0), review(1, 20), " ", "eine Übung, mit Komma", *(review(n, n % 7) for n in range(30))]


def streamed(model: Any, content: bytes, form: str = "jsonl", **options: Any) -> list[dict[str, Any]]:
    out = io.StringIO()
    predict_stream(model, io.BytesIO(content), out, form, **options)
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("form", ["csv", "text"])
def test_lines_of_every_format_are_answered_as_in_a_file(model: ServedModel, tmp_path: Path, form: str) -> None:
    """The sixth digit may differ: which rows share a batch depends on time."""
    data = write_csv(tmp_path / "new.csv", [("id", "review"), *enumerate(LINES)])
    predict_file(model, data, tmp_path / "out.jsonl")
    expected = read_jsonl(tmp_path / "out.jsonl")
    content = "\n".join(LINES).encode() if form == "text" else b"\xef\xbb\xbf" + data.read_bytes()
    found = streamed(model, content, form)
    assert len(found) == len(expected) == 34
    for one, other in zip(found, expected, strict=True):
        assert (one["row"], one["prediction"]) == (other["row"], other["prediction"])
        assert one["probability_good"] == pytest.approx(other["probability_good"], abs=2e-6)
    assert found[2]["prediction"] is None


def test_columns_are_kept_and_pairs_need_names(model: ServedModel, exported: Exported) -> None:
    found = streamed(model, b'{"id": 7, "review": "good film"}\n', keep=["id"])
    assert list(found[0]) == ["row", "id", "prediction", "probability_bad", "probability_good"]
    assert found[0]["id"] == 7
    (found,) = streamed(model, b"id;review;a, b\n7;good film;x\n", "csv", keep=["id"], how=FileFormat(delimiter=";"))
    assert found["id"] == "7"
    pairs = load_served(exported["vanilla", "pairs"], "cpu")
    assert streamed(pairs, b'{"one": "a", "other": "b"}\n')[0]["prediction"] in ("bad", "good")
    with raises_code(DataError, "two-texts", "--format jsonl"):
        streamed(pairs, b"a\n", "text")


@pytest.mark.parametrize(
    ("form", "content", "code"),
    [
        ("jsonl", b'{"review": "good"}\nnot json\n', "not-json"),
        ("csv", b"review\ngood\nbad,film\n", "field-count"),
        ("text", b"good\n\xff\xfe\n", "not-utf8"),
        ("jsonl", b"", "empty-file"),
        ("csv", b"", "empty-file"),
        ("text", b"", "no-rows"),
    ],
)
def test_a_wrong_line_ends_it_and_those_before_are_answered(
    model: ServedModel, form: str, content: bytes, code: str
) -> None:
    out = io.StringIO()
    with raises_code(DataError, code, *["standard input"] * bool(content)):
        predict_stream(model, io.BytesIO(content), out, form)
    answered = bool(content) and form != "text"  # text is decoded block by block
    assert len(out.getvalue().splitlines()) == answered


def test_a_line_is_answered_before_the_next_one_comes(exported: Exported, tmp_path: Path) -> None:
    python, model = str(warm.folder() / "python"), str(exported["vanilla", "reviews"])
    command = [python, "-m", "regft_core", "predict", "--model", model, "--data", "-"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        for number in (1, 2):
            process.stdin.write(json.dumps({"review": review(number)}) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["row"] == number
        process.stdin.close()
        assert process.wait() == 0
