"""What is exported is what was scored, also what answers in place of a model; cards, submissions."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from huggingface_hub import ModelCard
from mlflow.pyfunc import load_model
from safetensors.torch import load_file, save_file
from torch import Tensor

from regft_core.api import Project
from regft_core.data.examples import Example
from regft_core.errors import DataError, ExportMismatch, ModelError
from regft_core.runs.context import Job
from regft_core.runs.work import Work
from regft_core.schema.tasks import SubmissionConfig, TaskConfig
from regft_core.serve.export import export, push, submission_lines
from regft_core.serve.model import load_served
from regft_core.serve.predict import predict_file
from regft_core.settings.project import Cell
from tests.errors import raises_code
from tests.hub_double import serving
from tests.promises.kit import done
from tests.small_project import PAIRS, REPOSITORY, SCORES, TASK, build, predictions, read_csv, write_csv
from tests.stages.conftest import Exported


def card_of(directory: Path) -> str:
    return (directory / "README.md").read_text(encoding="utf-8")


def test_the_card_tells_data_scores_cost_and_limits(trained: Path, exported: Exported) -> None:
    card = card_of(exported["vanilla", "reviews"])
    results = json.loads((trained / "reports" / "results.json").read_text())["reviews-16"]["vanilla"]
    dev = results["dev"]["accuracy"]
    shown = f"| {dev['mean']:.4f} | {dev['low']:.4f} to {dev['high']:.4f} | 2 |"
    assert shown in card
    assert "| shop | accuracy |" in card
    for text in ("16 of 32, drawn with seed 1", "text `review`, label `verdict`", "2 steps in", "3.1% of dev"):
        assert text in card, text
    key = json.loads((exported["vanilla", "reviews"] / "regft.json").read_text())["run_key"]
    assert f"- **Run**: {key}\n" in card


def test_the_hub_reads_the_scores_of_a_card_that_is_pushed(
    trained: Path, exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = exported["vanilla", "reviews"]
    results = ModelCard.load(folder / "README.md").data.eval_results or []
    shown = {one.dataset_name: (one.metric_type, one.metric_value) for one in results}
    runs = json.loads((trained / "work/evaluate/vanilla/reviews/16/result.json").read_text())["runs"]
    scores = {f"reviews {name}": sets["metrics"]["accuracy"] for name, sets in runs[1]["sets"].items()}
    assert shown == {name: ("accuracy", pytest.approx(value, abs=5e-5)) for name, value in scores.items()}

    monkeypatch.setenv("HF_TOKEN", "hf_none")
    with serving() as hub:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
        with raises_code(ModelError, "push-refused", "someone/new", "hf auth login"):
            push(folder, "someone/new")
        hub.made = []
        assert push(folder, "someone/new").startswith(hub.url)
        pushed = hub.find("models", "someone/new")
        files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        assert (hub.made, pushed.files) == (["new"], {name: path.read_bytes() for name, path in files.items()})


def test_the_commands_that_the_report_names_work(trained: Path) -> None:
    page = (trained / "reports" / "report.html").read_text()
    name, *arguments = re.search(r"<pre>regft (export [^<]+)</pre>", page)[1].split()
    exported = done(trained, name, *arguments)
    command = re.search(r"regft (predict --model \S+ --data new.csv --out predictions.csv)", exported)[1]
    write_csv(trained / "new.csv", [("review", "one", "other"), ("good film", "good", "bad")])
    done(trained, *command.split(), "--overwrite")
    assert (trained / "predictions.csv").is_file()


def test_a_threshold_is_exported_where_the_rows_guarantee_the_accuracy(trained: Path, tmp_path: Path) -> None:
    """The answers of the evaluation are replaced by ones whose guarantee is known."""
    copy = tmp_path / "project"
    shutil.copytree(trained, copy, symlinks=True)
    job = Job(str(copy), "vanilla", "reviews", "16", 1)
    file = copy / "work" / "evaluate" / "vanilla" / "reviews" / "16" / "predictions" / "seed-1" / "dev.jsonl"
    rows = [
        {"idx": str(i), "label": 0, "prediction": int(i >= 300), "scores": [1 - i / 800, i / 800]} for i in range(400)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    folder = export(job, tmp_path / "careful", accuracy=0.985)
    abstain = json.loads((folder / "regft.json").read_text())["abstain"]
    assert 0.7 <= abstain["coverage"] <= 0.8
    assert abstain["threshold"] == pytest.approx(1 - (400 * abstain["coverage"] - 1) / 800)
    assert "At least 98.5% of the answers above are right (95% confidence, from 400 development rows" in card_of(folder)
    with raises_code(ModelError, "no-guarantee", "guarantee at most 0.9"):
        export(job, tmp_path / "none", accuracy=0.999)
    with raises_code(ModelError, "bad-accuracy", "like 0.95"):
        export(job, tmp_path / "none", accuracy=95)
    with raises_code(ModelError, "bad-accuracy", "regression"):
        export(Job(str(copy), "vanilla", "scores", "16", 1), tmp_path / "none", accuracy=0.9)
    result = file.parents[2] / "result.json"  # from before an edit, which the stage finetune alone has followed
    recorded = result.read_text()
    result.write_text(re.sub(r'"key": "\w+"', '"key": "another"', recorded))
    with raises_code(DataError, "not-judged"):
        export(job, tmp_path / "none", accuracy=0.95)
    assert not (tmp_path / "none").exists()
    assert "| dev |" not in card_of(export(job, tmp_path / "later"))
    result.write_text(recorded.replace('"status": "ok"', '"status": "failed"'))
    assert "Not evaluated" in card_of(export(job, tmp_path / "failed"))


def test_a_card_shows_nothing_of_a_report_from_before_an_edit(trained: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(trained, tmp_path / "project", symlinks=True))
    job, shown = Job(str(root), "pooled", "reviews", "16", 1), r"\| dev .* \| [\d.]+ \| [\d.]+ \||Against vanilla"
    assert len(re.findall(shown, card_of(export(job)))) == 2
    for method, left in (("vanilla", 1), ("pooled", 0)):  # the stages after the edit ran, the report did not
        file = Work(root).result_file("evaluate", Cell(method, "reviews", 16))
        file.write_text(re.sub(r'"key": "\w+"', '"key": "another"', file.read_text(), count=1))  # of seed 0
        assert len(re.findall(shown, card_of(export(job, tmp_path / method)))) == left
    Project.open(root).set("model.max_length", 16)  # no stage ran
    with raises_code(DataError, "outdated-run", "model.max_length: 32, now 16"):
        export(job)


# -------------------------------------------------------------------------------------------------------- submissions


ROWS = [Example(str(10 + n), "x", None, 0) for n in range(3)]
LOGITS = [[0.0, 1.0], [2.0, 1.0], [0.0, 3.0]]
NUMBERED = {"labels": {"bad": "0", "good": "1"}}


@pytest.mark.parametrize(
    ("asked", "logits", "lines"),
    [
        ({"format": "glue"}, LOGITS, ["index\tprediction", "0\tgood", "1\tbad", "2\tgood"]),
        ({"format": "glue", **NUMBERED}, LOGITS, ["index\tprediction", "0\t1", "1\t0", "2\t1"]),
        # Values are within the range.
        ({"format": "glue"}, [[-0.2], [3.14159], [7.0]], ["index\tprediction", "0\t0.000", "1\t3.142", "2\t5.000"]),
        # JSON lines have the set's own ids.
        ({"format": "clue", **NUMBERED}, LOGITS, [{"id": 10 + n, "label": label} for n, label in enumerate("101")]),
    ],
)
def test_a_submission_is_in_the_benchmarks_format(asked: dict[str, Any], logits: list[Any], lines: list[Any]) -> None:
    config = SubmissionConfig.model_validate({"files": {"X.tsv": "test"}, **asked})
    kinds = {1: {"kind": "regression", "labels": None, "range": [0.0, 5.0]}}
    task = kinds.get(len(logits[0]), {"kind": "classification", "labels": ["bad", "good"]})
    found = submission_lines(config, ROWS, np.array(logits), task)
    assert [json.loads(line) if line[0] == "{" else line for line in found] == lines


def test_the_tasks_of_glue_name_its_files_and_their_own_labels() -> None:
    names = {"cola": "CoLA", "sst2": "SST-2", "stsb": "STS-B", "mnli": "MNLI-m"}
    for name in ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte"):
        data = yaml.safe_load((REPOSITORY / f"pipelines/tasks/{name}.yaml").read_text())
        assert next(iter(TaskConfig.model_validate(data).submission.files)) == f"{names.get(name, name.upper())}.tsv"
    data["submission"]["labels"] = {"negative": "0"}
    with pytest.raises(ValueError, match=r"submission\.labels"):
        TaskConfig.model_validate(data)


# ----------------------------------------------------------------------------------- what answers in place of a model


TASKS = {"reviews": (TASK, "dev"), "pairs": (PAIRS, "pairs-dev"), "scores": (SCORES, "scores-dev")}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words") / "project"
    tasks = {name: declared for name, (declared, _) in TASKS.items()}
    methods = ["vanilla", "tfidf_logistic", "majority", "combination"]
    build(folder, tasks=tasks, methods=methods, grid={"tasks": list(tasks), "seeds": [1]})
    project = Project.open(folder)
    for method in methods[1:]:
        for task in tasks:
            project.run(method, task)
    return folder


@pytest.mark.parametrize("method", ["tfidf_logistic", "majority", "combination"])
@pytest.mark.parametrize("task", list(TASKS))
def test_predictions_are_those_of_the_evaluation(root: Path, tmp_path: Path, method: str, task: str) -> None:
    folder = export(Job(str(root), method, task, "16", 1), tmp_path / "exported")
    encoder = ["encoder"] if method == "combination" else []
    names = ["MLmodel", "README.md", *encoder, "kept.safetensors", "regft.json"]
    assert sorted(path.name for path in folder.iterdir()) == names
    served = load_served(folder, "cpu")
    by_mlflow = load_model(str(folder)).predict(pd.read_csv(root / "data" / f"{TASKS[task][1]}.csv"))
    counted = predict_file(served, root / "data" / f"{TASKS[task][1]}.csv", tmp_path / "out.csv")
    found, expected = read_csv(tmp_path / "out.csv"), predictions(root, method, task)
    assert (counted.rows, counted.cut) == (len(expected), 0)
    assert [list(by_mlflow), len(by_mlflow)] == [[name for name in found[0] if name in by_mlflow], len(found)]
    assert [str(value) for value in by_mlflow["prediction"]] == [row["prediction"] for row in found]
    for row, one in zip(found, expected, strict=True):
        if task == "scores":
            assert float(row["prediction"]) == pytest.approx(one["prediction"], rel=1e-5)  # six digits
        else:
            assert row["prediction"] == ("bad", "good")[one["prediction"]]
            scores = [float(row["probability_bad"]), float(row["probability_good"])]
            assert scores == pytest.approx(one["scores"], abs=2e-6)


def test_a_similarity_is_exported_with_its_encoder(tmp_path: Path) -> None:
    methods = ["pair_cosine", "zero_shot_similarity"]
    pairs = [("good film", "good film", 5), ("bad plot", "slow actor", 0), ("bad " * 99 + "plot", "bad film", 3)] * 6
    task = SCORES | {"columns": {"text": "one", "text_pair": "other", "label": "stars"}}
    folder = tmp_path / "project"
    build(folder, tasks={"alike": task}, methods=["vanilla", *methods], grid={"tasks": ["alike"], "seeds": [1]})
    for name in ("scores", "scores-dev"):
        lines_of = [f"{one},{other},{stars}" for one, other, stars in pairs]
        (folder / "data" / f"{name}.csv").write_text("\n".join(["one,other,stars", *lines_of]) + "\n")
    told = folder / "models" / "tiny" / "tokenizer_config.json"
    told.write_text(json.dumps(json.loads(told.read_text()) | {"truncation_side": "left"}))  # long texts keep their end
    for method in methods:
        Project.open(folder).run(method, "alike")
        served = load_served(export(Job(str(folder), method, "alike", "16", 1), tmp_path / method), "cpu")
        predict_file(served, folder / "data" / "scores-dev.csv", tmp_path / f"{method}.csv")
        expected = [row["prediction"] for row in predictions(folder, method, "alike")]
        found = [float(row["prediction"]) for row in read_csv(tmp_path / f"{method}.csv")]
        assert found == pytest.approx(expected, abs=1e-4), method
        assert len(set(found)) > 1


def test_what_is_damaged_or_something_else_is_said(root: Path, tmp_path: Path) -> None:
    job = Job(str(root), "tfidf_logistic", "reviews", "16", 1)
    folder = export(job, tmp_path / "exported")
    for change, code, said in (
        ({"answered_by": {"regulariser": "gone"}}, "bad-export", "'gone'"),
        ({"answered_by": {"regulariser": "hype"}}, "bad-export", "'hype'"),
        ({"answered_by": {"regulariser": "tfidf_logistic", "options": {"wrods": 2}}}, "bad-export", "wrods"),
        ({"answered_by": None}, "not-an-export", "config.json"),
    ):
        other = Path(shutil.copytree(folder, tmp_path / "other", dirs_exist_ok=True))
        described = json.loads((folder / "regft.json").read_text()) | change
        (other / "regft.json").write_text(json.dumps(described))
        with raises_code(ModelError, code, said):
            load_served(other, "cpu")
    (folder / "kept.safetensors").write_bytes(b"no tensors")
    with raises_code(ModelError, "bad-export", "cannot be read as safetensors"):
        load_served(folder, "cpu")
    combined = export(Job(str(root), "combination", "reviews", "16", 1), tmp_path / "combined")
    (combined / "encoder" / "config.json").write_text("{}")
    with raises_code(ModelError, "cannot-load", "encoder"):
        load_served(combined, "cpu")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with raises_code(ModelError, "in-the-way"):
        export(job, tmp_path / "mine")


def test_nothing_is_left_behind_when_it_would_answer_differently(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(path: Path, tensors: Mapping[str, Tensor]) -> None:
        save_file({name: t if name != "bias" else t + 1 for name, t in tensors.items()}, path)

    monkeypatch.setattr("regft_core.serve.export.write_tensors", other)
    job = Job(str(root), "tfidf_logistic", "scores", "16", 1)
    with pytest.raises(ExportMismatch):
        export(job, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()
    monkeypatch.undo()
    assert "weight" in load_file(export(job, tmp_path / "exported") / "kept.safetensors")
