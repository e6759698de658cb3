"""A phase that another method of the grid stands in for, and one with an encoder of its own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from regft_core.errors import ConfigError
from regft_core.grid.cell_keys import cached_seeds
from regft_core.grid.missing_files import fetch_all
from regft_core.runs.context import Context, Job
from regft_core.runs.encoder_tensors import load_whole
from regft_core.runs.evaluate import evaluate
from regft_core.runs.finished_model import FinishedModel
from regft_core.runs.outputs import manifest_head
from regft_core.runs.phase import phase_inputs
from regft_core.runs.train import finetune, search
from regft_core.settings.cost import plan_rows
from regft_core.settings.project import Cell
from regft_core.settings.read_project import open_project
from tests.errors import problems_of
from tests.runs.conftest import (
    SIZE,
    TASK,
    Trained,
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
from tests.tiny import tiny_model_dir

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
    lending: Path, tmp_path: Path, trained: Trained
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
        *("teacher-teacher-warm", "teacher-teacher", "teacher", "finetune")
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
        ({"teacher": {"method": "soup", "training": {"epochs": 1}}, "finetune": STUDENT}, 5, "inconsistent"),
        ({"finetune": {"method": "soup"}}, 4, "inconsistent"),
        ({"teacher": {"method": "sopu"}, "finetune": STUDENT}, 4, "unknown-method"),
        ({"teacher": {"method": "student"}, "finetune": STUDENT}, 4, "method-in-circle"),
        ({"teacher": {"method": "adamax"}, "finetune": STUDENT}, 4, "not-listed"),
    ],
)
def test_what_cannot_stand_in(lending: Path, phases: dict[str, Any], line: int, code: str) -> None:
    write_method(lending, "student", phases=phases)
    assert [(problem.line, problem.code) for problem in problems_of(open_project, lending)] == [(line, code)]


def test_tuned_apart_neither_has_the_others_phases(lending: Path) -> None:
    change(lending, tuning={"split": 0.5, "methods": {"soup": {"training.learning_rate": [1e-3, 2e-3]}}})
    assert [problem.code for problem in problems_of(open_project, lending)] == ["lent-tuned"]


# ---------------------------------------------------------------------------------------------- an encoder of its own


LARGE = {"name": "models/large"}
PHASES: dict[str, Any] = {
    "teacher": {"model": LARGE},
    "finetune": {"start": "checkpoint", "regularisers": {"distil": {"weight": 1.0}}},
}


@pytest.fixture
def two(project: Path) -> Path:
    """A project with a second encoder, of another family, width and vocabulary."""
    shutil.copytree(tiny_model_dir(project / "scratch", "mpnet", num_hidden_layers=4), project / "models" / "large")
    return project


def taught(root: Path, name: str = "taught", **phases: Any) -> Context:
    write_method(root, name, phases={**PHASES, **phases} if "finetune" not in phases else phases)
    return Context(job(root, name))


def test_a_phase_trains_its_encoder_and_the_next_one_learns_its_answers(two: Path) -> None:
    context = taught(two)
    settings = manifest_head(context)["settings"]
    shared, own = settings["model"], settings["phases"]["teacher"]["model"]
    assert (shared["name"], own["name"], shared["sha256"] == own["sha256"]) == ("models/tiny", "models/large", False)
    assert "model" not in settings["phases"]["finetune"]
    found = search(context)
    record = finetune(Context(context.job), found)
    assert record["status"] == "ok", record["error"]
    teacher = stored(two, found["phases"]["teacher"])
    assert any(name.startswith("mpnet.") for name in teacher.load_tensors("weights"))
    assert all(name.startswith(("bert.", "classifier.")) for name in weights_of(two, record["key"]))
    inputs = phase_inputs(context.phase("finetune"), None)
    answers = inputs.handed["teacher"].answers
    assert answers.shape == (24, 2)
    assert answers[0].tolist() != answers[1].tolist()
    again = phase_inputs(Context(context.job).last, None).handed["teacher"].answers
    assert torch.equal(answers, again), "without dropout"
    # Half as many steps of the teacher would give other answers, so other weights.
    other = taught(two, "briefly", **{**PHASES, "teacher": {"model": LARGE, "training": {"epochs": 1}}})
    assert train(two, "briefly")["key"] != record["key"]
    assert other.last.identity() | {"needs": {}} == context.last.identity() | {"needs": {}}
    assert evaluate(context, record)["status"] == "ok"
    assert FinishedModel(context).answer(inputs.examples[:2]).shape == (2, 2)


def test_hidden_states_of_another_width_are_learned_and_not_exported(two: Path) -> None:
    shutil.rmtree(two / "models" / "large")
    shutil.copytree(tiny_model_dir(two / "wide", "mpnet", hidden_size=48), two / "models" / "large")
    student = {"start": "checkpoint", "regularisers": {"distil": {"hidden": 1.0}}}
    context = taught(two, teacher=PHASES["teacher"], finetune=student)
    found = search(context)
    inputs = phase_inputs(context.phase("finetune"), None)
    teacher = inputs.handed["teacher"]
    assert (tuple(teacher.answers.shape), tuple(teacher.hidden.shape)) == ((24, 2), (24, 48))
    record = finetune(Context(context.job), found)
    assert record["status"] == "ok", record["error"]
    assert all(name.startswith(("bert.", "classifier.")) for name in weights_of(two, record["key"]))


def test_only_runs_that_learn_from_it_depend_on_a_phases_encoder(two: Path) -> None:
    context, plain = taught(two), Context(job(two, "vanilla"))
    before = [context.key(name) for name in ("teacher", "finetune")], plain.key("finetune")
    shutil.rmtree(two / "models" / "large")
    shutil.copytree(tiny_model_dir(two / "scratch", "mpnet", num_hidden_layers=4), two / "models" / "large")
    again = Context(job(two, "taught"))
    assert [again.key(name) for name in ("teacher", "finetune")] == before[0]
    shutil.rmtree(two / "models" / "large")
    shutil.copytree(tiny_model_dir(two / "other", "bert", num_hidden_layers=3), two / "models" / "large")
    edited = Context(job(two, "taught"))
    assert not {edited.key(name) for name in ("teacher", "finetune")} & set(before[0])
    assert Context(job(two, "vanilla")).key("finetune") == before[1]


def test_texts_without_labels_are_learned_and_the_head_passes_on(two: Path) -> None:
    student = {**PHASES["finetune"], "data": {"size": 40, "labels": False}}
    context = taught(two, teacher=PHASES["teacher"], student=student, finetune={})
    found = search(context)
    assert found["status"] == "ok", found["error"]
    inputs = phase_inputs(context.phase("student"), None)
    assert len(inputs.encoded) == 40
    assert {row.label for row in inputs.examples} == {0}
    assert context.last.start_head
    record = finetune(Context(context.job), found)
    assert record["status"] == "ok", record["error"]
    assert any("40 training rows, without their labels" in mark for mark in record["degraded"])


def test_a_head_that_is_dropped_is_told(two: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_method(two, "once", phases={"first": {"data": {"size": "full"}, "seed": 0}, "finetune": {}})
    caplog.set_level("INFO")
    assert "first" in train(two, "once")["new_head"]
    assert any("new head" in message for message in caplog.messages)


def test_costs_count_an_encoder_by_its_size(two: Path) -> None:
    """Four layers in place of two: twice the passes; the answers are a third of an epoch of theirs."""
    taught(two)
    change(two, methods=["vanilla", "taught"])
    project = open_project(two)
    rows = {row.cell.method: row for row in plan_rows(project)}
    plain = rows["vanilla"].cost
    assert plain == 6.0
    assert rows["taught"].cost == pytest.approx(2 * plain + 2 * 3 / 3 + plain)
    assert train(two, "taught")["cost"]["declared_ratio"] == pytest.approx(rows["taught"].cost / plain)


def test_a_missing_encoder_is_told_before_anything_runs(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = {"name": "someone/large", "revision": "a" * 40}
    write_method(two, "taught", phases={**PHASES, "teacher": {"model": hub}})
    project = open_project(two)
    assert cached_seeds(project, Cell("taught", TASK, 24)) == set()
    asked: list[str] = []

    def fetched(name: str, revision: str, root: Path) -> None:
        asked.append(name)

    monkeypatch.setattr("regft_core.grid.missing_files.hub_encoder", fetched)
    fetch_all(project, lambda _: None)
    assert asked == ["someone/large"]


@pytest.mark.parametrize(
    ("phases", "line", "code"),
    [
        ({**PHASES, "teacher": {"model": {"name": "models/lost"}}}, 5, "revision-missing"),
        ({**PHASES, "teacher": {"model": {"name": "models/large", "windows": 2}}}, 6, "unknown-key"),
        ({**PHASES, "teacher": {"model": {**LARGE, "max_length": 4000}}}, 6, "input-too-long"),
        ({**PHASES, "teacher": {"model": {**LARGE, "max_length": "long"}}}, 6, "invalid-value"),
        ({"teacher": {"model": LARGE}, "finetune": {}}, 6, "inconsistent"),
        ({"finetune": {"model": LARGE}}, 4, "inconsistent"),
        ({**PHASES, "teacher": {"model": LARGE, "data": {"labels": False}}}, 2, "bad-composition"),
    ],
)
def test_what_a_phase_cannot_honour_is_refused_with_its_line(
    two: Path, phases: dict[str, Any], line: int, code: str
) -> None:
    write_method(two, "taught", phases=phases)
    assert {(problem.line, problem.code) for problem in problems_of(open_project, two)} == {(line, code)}


def test_answers_of_values_and_of_other_labels(two: Path) -> None:
    change(two, grid={"tasks": ["cue_regression"]})
    no_labels = {**PHASES["finetune"], "data": {"labels": False}}
    write_method(two, "taught", phases={**PHASES, "finetune": no_labels})
    with pytest.raises(ConfigError, match="values"):
        open_project(two)
    write_method(two, "taught", phases={"teacher": {"data": {"task": "cue_sentence"}}, "finetune": PHASES["finetune"]})
    with pytest.raises(ConfigError, match="other labels"):
        open_project(two)
