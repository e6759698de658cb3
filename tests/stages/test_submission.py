"""Submission files: GLUE's and CLUE's formats, every row in order, labels as the benchmark writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from regft_core.data.examples import Example
from regft_core.schema.tasks import SubmissionConfig, TaskConfig
from regft_core.serve.export import submission_lines

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
