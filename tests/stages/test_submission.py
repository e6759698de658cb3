"""Submission files: GLUE's and CLUE's formats, every row in order, labels as the benchmark writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from regft_core.data.examples import Example
from regft_core.errors import ConfigError
from regft_core.runs.job import Job
from regft_core.schema.tasks import SubmissionConfig, TaskConfig
from regft_core.serve.submission import submission_lines, write_submission
from tests.errors import raises_code
from tests.small_project import review, stage, write_csv

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
    assert task.submission is not None
    names = {"cola": "CoLA", "sst2": "SST-2", "stsb": "STS-B", "mnli": "MNLI-m"}
    assert next(iter(task.submission.files)) == f"{names.get(name, name.upper())}.tsv"


def test_labels_that_are_not_the_tasks_are_refused() -> None:
    data = yaml.safe_load((REPOSITORY / "pipelines" / "tasks" / "sst2.yaml").read_text())
    data["submission"]["labels"] = {"negative": "0"}
    with pytest.raises(ValueError, match=r"submission\.labels"):
        TaskConfig.model_validate(data)


def test_a_run_predicts_every_row_of_the_test_split(trained: Path) -> None:
    """A row without text too: the server wants a prediction for each."""
    task = trained / "pipelines" / "tasks" / "reviews.yaml"
    before = task.read_text()
    job = Job(str(trained), "vanilla", "reviews", "16", 1)
    with raises_code(ConfigError, "no-submission"):
        write_submission(job)
    rows = [(review(n),) for n in range(5)] + [("",)]
    write_csv(trained / "data" / "hidden.csv", [("review",), *rows])
    added = {"format": "glue", "files": {"Reviews.tsv": "hidden.csv"}, "labels": {"bad": "0", "good": "1"}}
    task.write_text(yaml.dump({**yaml.safe_load(before), "submission": added}))
    try:
        arguments = ["--method", "vanilla", "--task", "reviews", "--size", "16", "--seed", "1"]
        done = stage(trained, "submission", *arguments)
        assert done.returncode == 0, done.stderr
        file = "submissions/vanilla-reviews-16-seed-1/Reviews.tsv"
        assert f"{file}: 6 predictions" in done.stdout
        lines = (trained / file).read_text().splitlines()
        assert lines[0] == "index\tprediction"
        assert [line.split("\t")[0] for line in lines[1:]] == [str(n) for n in range(6)]
        assert {line.split("\t")[1] for line in lines[1:]} <= {"0", "1"}
    finally:
        task.write_text(before)
