"""Runs whose answers do not come from a trained model: through the same stages, store, keys and evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from regft_core.data.examples import read_jsonl
from regft_core.runs.context import Context
from regft_core.runs.evaluate import evaluate
from regft_core.runs.opened_project import Job
from regft_core.runs.outputs import trains_encoder
from regft_core.runs.train import finetune, search
from tests.runs.conftest import change, stored, write_method


def ran(root: Path, method: str, task: str = "cue_sentence") -> tuple[dict[str, Any], dict[str, Any]]:
    """Records of finetune and evaluate of seed 0."""
    job = Job(str(root), method, task, "24", 0)
    trained = finetune(Context(job), search(Context(job)))
    assert trained["status"] == "ok", trained["error"]
    return trained, evaluate(Context(job), trained)


def rows(record: dict[str, Any], name: str = "dev") -> list[dict[str, Any]]:
    return [json.loads(line) for line in record["predictions"][name].splitlines()]


def test_the_majority_of_the_training_rows(project: Path) -> None:
    change(project, methods=["vanilla", "majority"])
    trained, evaluated = ran(project, "majority")
    train = read_jsonl(project / "work/subsamples/cue_sentence/24/seed-0.jsonl")
    counts = [sum(row.label == label for row in train) for label in (0, 1)]
    expected = [count / 24 for count in counts]
    for row in rows(evaluated):
        assert row["scores"] == pytest.approx(expected, abs=1e-6)
    assert evaluated["collapsed"] is None  # a constant on purpose
    assert set(evaluated["sets"]) == {"dev", "no_cue", "reversed"}
    assert trained["cost"]["fit_seconds"] > 0
    # No encoder is stored to answer the same whatever it reads.
    assert "weights" not in stored(project, trained["key"]).tensor_names
    # A number of steps in the shared protocol trains no phase without epochs.
    change(project, training={"max_steps": 3})
    assert not trains_encoder(Context(Job(str(project), "majority", "cue_sentence", "24", 0)))
    assert ran(project, "majority")[0]["steps"] == 0


CONSTANT = {"regularisers": {"constant_answer": {}}, "training": {"epochs": 0}}
PROBE = {"regularisers": {"linear_head": {}}, "training": {"epochs": 0}}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({}, True),
        ({"training": {"epochs": 0}}, False),
        (CONSTANT, False),
        ({"regularisers": {"tfidf_logistic": {}}, "training": {"epochs": 0}}, False),
        # What is put into a frozen encoder is trained; at rank 0 that is nothing.
        ({"regularisers": {"lora": {"rank": 2}}}, True),
        ({"regularisers": {"lora": {"rank": 0}}}, False),
        ({"regularisers": {"prefix_tuning": {}}}, True),
        ({"regularisers": {"prompt_tuning": {}}}, True),
        # A fitted head on an encoder that an earlier phase has trained.
        ({"phases": {"first": {}, "finetune": PROBE}}, True),
        ({"phases": {"first": {"training": {"epochs": 0}}, "finetune": {"training": {"epochs": 0}}}}, False),
    ],
)
def test_whether_the_encoder_is_trained(project: Path, content: dict[str, Any], expected: bool) -> None:
    write_method(project, "arm", **content)
    assert trains_encoder(Context(Job(str(project), "arm", "cue_sentence", "24", 0))) is expected
