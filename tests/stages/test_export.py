"""What is exported is what was scored; the card says what it is; files of a submission."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from huggingface_hub import ModelCard

from regft_core.data.examples import Example
from regft_core.errors import ModelError
from regft_core.runs.opened_project import Job
from regft_core.schema.tasks import SubmissionConfig, TaskConfig
from regft_core.serve.export import export, push, submission_lines
from tests.errors import raises_code
from tests.hub_double import serving
from tests.promises.kit import done
from tests.small_project import write_csv


def card_of(directory: Path) -> str:
    return (directory / "README.md").read_text(encoding="utf-8")


def test_the_card_tells_data_scores_cost_and_limits(trained: Path, exported: dict[tuple[str, str], Path]) -> None:
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
    trained: Path, exported: dict[tuple[str, str], Path], monkeypatch: pytest.MonkeyPatch
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
    command = re.search(r"<pre>regft (export [^<]+)</pre>", page)
    name, *arguments = command[1].split()
    printed = re.search(
        r"regft (predict --model \S+ --data new.csv --out predictions.csv)", done(trained, name, *arguments)
    )
    write_csv(trained / "new.csv", [("review", "one", "other"), ("good film", "good", "bad")])
    done(trained, *printed[1].split(), "--overwrite")
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
    folder = export(job, tmp_path / "careful", accuracy=0.95)
    abstain = json.loads((folder / "regft.json").read_text())["abstain"]
    assert 0.7 <= abstain["coverage"] <= 0.8
    assert abstain["threshold"] == pytest.approx(1 - (400 * abstain["coverage"] - 1) / 800)
    assert "At least 95% of the answers above are right (95% confidence, from 400 development rows" in card_of(folder)
    with raises_code(ModelError, "no-guarantee", "guarantee at most 0.9"):
        export(job, tmp_path / "none", accuracy=0.999)
    with raises_code(ModelError, "bad-accuracy", "like 0.95"):
        export(job, tmp_path / "none", accuracy=95)
    with raises_code(ModelError, "bad-accuracy", "regression"):
        export(Job(str(copy), "vanilla", "scores", "16", 1), tmp_path / "none", accuracy=0.9)
    assert not (tmp_path / "none").exists()


# -------------------------------------------------------------------------------------------------------- submissions


REPOSITORY = Path(__file__).resolve().parents[2]
TASK = {"kind": "classification", "labels": ["bad", "good"]}
ROWS = [Example(str(10 + n), "x", None, 0) for n in range(3)]
LOGITS = np.array([[0.0, 1.0], [2.0, 1.0], [0.0, 3.0]])


def submission(**given: Any) -> SubmissionConfig:
    return SubmissionConfig.model_validate({"files": {"X.tsv": "test"}, **given})


def test_glue_has_positions_and_labels_by_name() -> None:
    lines = submission_lines(submission(format="glue"), ROWS, LOGITS, TASK)
    assert lines == ["index\tprediction", "0\tgood", "1\tbad", "2\tgood"]
    named = submission(format="glue", labels={"bad": "0", "good": "1"})
    assert submission_lines(named, ROWS, LOGITS, TASK)[1:] == ["0\t1", "1\t0", "2\t1"]


def test_glue_values_are_within_the_range() -> None:
    task = {"kind": "regression", "labels": None, "range": [0.0, 5.0]}
    lines = submission_lines(submission(format="glue"), ROWS, np.array([[-0.2], [3.14159], [7.0]]), task)
    assert lines[1:] == ["0\t0.000", "1\t3.142", "2\t5.000"]


def test_clue_is_json_lines_with_the_sets_own_ids() -> None:
    lines = submission_lines(submission(format="clue", labels={"bad": "0", "good": "1"}), ROWS, LOGITS, TASK)
    assert [json.loads(line) for line in lines] == [
        {"id": 10, "label": "1"},
        {"id": 11, "label": "0"},
        {"id": 12, "label": "1"},
    ]


@pytest.mark.parametrize("name", ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte"])
def test_the_tasks_of_glue_name_its_files(name: str) -> None:
    task = TaskConfig.model_validate(yaml.safe_load((REPOSITORY / f"pipelines/tasks/{name}.yaml").read_text()))
    names = {"cola": "CoLA", "sst2": "SST-2", "stsb": "STS-B", "mnli": "MNLI-m"}
    assert next(iter(task.submission.files)) == f"{names.get(name, name.upper())}.tsv"


def test_labels_that_are_not_the_tasks_are_refused() -> None:
    data = yaml.safe_load((REPOSITORY / "pipelines" / "tasks" / "sst2.yaml").read_text())
    data["submission"]["labels"] = {"negative": "0"}
    with pytest.raises(ValueError, match=r"submission\.labels"):
        TaskConfig.model_validate(data)
