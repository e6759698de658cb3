"""A phase that another method of the grid stands in for: one result for both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from regft_core.runs.context import Context
from regft_core.runs.encoder_tensors import load_whole
from regft_core.runs.opened_project import Job, open_project
from regft_core.runs.train import finetune, search
from regft_core.settings.cost import plan_rows
from regft_core.settings.read_project import load_project
from tests.errors import problems_of
from tests.runs.conftest import (
    SIZE,
    change,
    job,
    refresh,
    run_stages,
    runs,
    stored,
    train,
    weights_of,
    write_method,
)

STUDENT: dict[str, Any] = {"start": "checkpoint", "regularisers": {"distil": {"weight": 1.0}}}


@pytest.fixture
def lending(project: Path) -> Path:
    """A soup of two members after a warm start, and a student of it."""
    write_method(
        project,
        "soup",
        model={"pooling": "mean"},
        phases={"warm": {"training": {"max_steps": 1}}, "finetune": {"repeat": {"times": 2, "vary": ["order"]}}},
    )
    write_method(project, "student", phases={"teacher": {"method": "soup"}, "finetune": STUDENT})
    return project


@pytest.mark.parametrize(
    "training",
    [
        {"checkpoint": "best_on_split", "checkpoint_share": 0.2},
        {"checkpoint": "best_on_dev_as_published"},
        {"epoch_scores": True},
    ],
)
def test_it_is_the_lenders_last_phase_in_its_protocol_too(lending: Path, training: dict[str, Any]) -> None:
    change(lending, training=training)
    write_method(lending, "soup", regularisers={}, training={})
    soup, student = (Context(job(lending, name)) for name in ("soup", "student"))
    assert student.key("teacher") == soup.key("finetune")
    assert student.phase("teacher").training == soup.phase("finetune").training


def test_it_reads_pairs_as_the_lender_does(project: Path) -> None:
    write_method(project, "apart", model={"pooling": "mean", "pairs": "separately"}, regularisers={}, training={})
    write_method(project, "student", phases={"teacher": {"method": "apart"}, "finetune": STUDENT})
    change(project, grid={"tasks": ["cue_pair"]})
    refresh(project)
    for name in ("student", "apart"):
        record = finetune(context := Context(Job(str(project), name, "cue_pair", SIZE, 0)), search(context))
        assert record["status"] == "ok", record["error"]
    apart = Context(Job(str(project), "apart", "cue_pair", SIZE, 0))
    weights = load_whole(apart.phase("finetune"), stored(project, record["key"]), "weights")
    assert weights["classifier.weight"].shape == (2, 4 * 32)  # u, v, |u - v|, u * v


def test_it_is_trained_once_whoever_comes_first_and_its_record_is_the_same(
    lending: Path, tmp_path: Path, trained: list[tuple[str, int]]
) -> None:
    records = []
    for folder, order in (("one", ("soup", "student")), ("other", ("student", "soup"))):
        change(lending, store={"path": str(tmp_path / folder)})
        trained.clear()
        finished = {method: train(lending, method) for method in order}
        assert sorted(trained) == [("finetune", 0)] * 3 + [("warm", 0)]  # two members and the student
        soup, student = (Context(job(lending, name)) for name in ("soup", "student"))
        assert student.key("teacher") == soup.key("finetune")
        assert student.key("teacher-warm") == soup.key("warm")
        assert (student.phase("teacher").encoder.pooling, student.last.encoder.pooling) == ("mean", "head")
        found = search(student)
        records.append({name: [row[:4] for row in found[name]] for name in ("curve", "diagnostics")})
        labels = dict.fromkeys(row[0] for row in found["curve"])
        assert list(labels) == ["teacher-warm", "teacher-0", "teacher-1"]
        assert list(found["phase_steps"]) == list(found["phases"]) == ["teacher-warm", "teacher"]
        identity = runs(lending)[found["phases"]["teacher"]]
        assert identity["phase"] == "finetune"
        records[-1]["weights"] = [weights_of(lending, finished["student"]["key"])]
    one, other = (record.pop("weights")[0] for record in records)
    assert records[0] == records[1]
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_all_stages_and_a_lender_of_a_lender(lending: Path) -> None:
    write_method(lending, "grandchild", phases={"teacher": {"method": "student"}, "finetune": STUDENT})
    context = Context(job(lending, "grandchild"))
    assert [phase.name for phase in context.method.phases] == [
        *("teacher-teacher-warm", "teacher-teacher", "teacher", "finetune"),
    ]
    assert run_stages(lending, "grandchild")["evaluate"][0]["status"] == "ok"
    assert context.key("teacher") == Context(job(lending, "student")).key("finetune")
    cost = {row.cell.method: row.cost for row in plan_rows(open_project(lending))}
    plain, soup, student = (cost[name] or 0.0 for name in ("vanilla", "soup", "student"))
    # Of three rows a batch, and an epoch's forward passes by the teacher: three batches, a third of a step each.
    assert student == pytest.approx(soup + plain + 1.0)


@pytest.mark.parametrize(
    ("phases", "line", "code"),
    [
        ({"teacher": {"method": "soup", "training": {"epochs": 1}}, "finetune": STUDENT}, 4, "inconsistent"),
        ({"finetune": {"method": "soup"}}, 4, "inconsistent"),
        ({"teacher": {"method": "sopu"}, "finetune": STUDENT}, 4, "unknown-method"),
        ({"teacher": {"method": "student"}, "finetune": STUDENT}, 4, "method-in-circle"),
        ({"teacher": {"method": "adamax"}, "finetune": STUDENT}, 4, "not-listed"),
    ],
)
def test_what_cannot_stand_in(lending: Path, phases: dict[str, Any], line: int, code: str) -> None:
    write_method(lending, "student", phases=phases)
    assert [(problem.line, problem.code) for problem in problems_of(load_project, lending)] == [(line, code)]


def test_tuned_apart_neither_has_the_others_phases(lending: Path) -> None:
    change(lending, tuning={"split": 0.5, "methods": {"soup": {"training.learning_rate": [1e-3, 2e-3]}}})
    assert [problem.code for problem in problems_of(load_project, lending)] == ["lent-tuned"]
