"""Embedders, an instruction and windows in a project: from params.yaml to the predictions of an export."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from regft_core.api import Project
from regft_core.evaluate.analysis_result import Unfit
from regft_core.evaluate.hidden import editable
from regft_core.models.export_record import read_served
from regft_core.runs.context import Context
from regft_core.runs.finished_model import FinishedModel
from regft_core.runs.opened_project import Job
from regft_core.serve.export import export
from regft_core.serve.model import load_served
from regft_core.serve.predict import predict_file
from tests.small_project import PAIRS, TASK, build, predictions, read_csv, review, stage, write_csv
from tests.tiny import EMBEDDERS

#: Two windows of 8 tokens and a rest that is cut, behind an instruction.
READING = {"prompt": "see the film : ", "windows": 2, "stride": 2, "max_length": 16}


@pytest.fixture(scope="module", params=EMBEDDERS)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every way to train on an embedder, and one evaluation that looks into rows."""
    root = tmp_path_factory.mktemp(request.param) / "project"
    methods = ["vanilla", "lp_ft", "lora"]
    build(
        root,
        tasks={"reviews": TASK, "pairs": PAIRS},
        words=14,
        encoder=request.param,
        methods=methods,
        grid={"tasks": ["reviews", "pairs"], "seeds": [0]},
        model={"pooling": EMBEDDERS[request.param], **READING},
    )
    rows = [(review(n, 3 + n), ("bad", "good")[n % 2]) for n in range(32)]
    write_csv(root / "data" / "dev.csv", [("review", "verdict"), *rows])
    done = Project.open(root)
    for method in methods[1:]:
        for task in ("reviews", "pairs"):
            done.run(method, task)
    return root


@pytest.mark.parametrize("task", ["reviews", "pairs"])
@pytest.mark.parametrize("method", ["lp_ft", "lora"])
def test_an_export_gives_the_scores_of_the_evaluation(project: Path, tmp_path: Path, method: str, task: str) -> None:
    directory = export(Job(str(project), method, task, "16", 0), tmp_path / "model")
    served = read_served(directory)
    assert (served.instruction, served.windows, served.stride) == ("see the film : ", 2, 2)
    model = load_served(directory, "cpu")
    context = Context(Job(str(project), method, task, "16", 0))
    assert model.model.pooling == context.last.encoder.pooling
    file = "dev" if task == "reviews" else "pairs-dev"
    counted = predict_file(model, project / "data" / f"{file}.csv", tmp_path / "out.csv")
    found = read_csv(tmp_path / "out.csv")
    assert len(found) == 32
    for row, one in zip(found, predictions(project, method, task, seed=0), strict=True):
        scores = [float(row["probability_bad"]), float(row["probability_good"])]
        assert scores == pytest.approx(one["scores"], abs=2e-6)
    if task == "reviews":
        assert 0 < counted.cut < 32
        card = (directory / "README.md").read_text()
        assert "up to 2 windows that share 2 tokens" in card
        assert "classifier('see the film : a text')" in card


def test_evaluations_that_look_into_rows_say_why_they_cannot(project: Path) -> None:
    context = Context(Job(str(project), "lora", "reviews", "16", 0))
    trained = FinishedModel(context)
    encoded = trained.encode(context.phase("finetune").rows.examples)
    for look in (trained.batches, editable):
        with pytest.raises(Unfit, match=r"model\.windows"):
            list(look(encoded))


def test_how_texts_are_read_is_in_the_key_and_cut_rows_are_counted(project: Path) -> None:
    context = Context(Job(str(project), "lora", "reviews", "16", 0))
    identity = context.phase("finetune").identity()
    wanted = {"prompt": "see the film : ", "windows": 2, "stride": 2}
    assert {name: identity["model"][name] for name in wanted} == wanted
    lengths = json.loads((project / "work" / "lengths" / "reviews.json").read_text())
    assert lengths["windows"] == 2
    assert 0 < lengths["sets"]["dev"]["cut"] < 1


def test_methods_that_cannot_read_windows_are_refused_by_name(project: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(project, copy, ignore=shutil.ignore_patterns("work", ".regft"))
    params = (copy / "params.yaml").read_text().replace("- lora", "- freelb")
    (copy / "params.yaml").write_text(params)
    done = stage(copy, "check")
    assert done.returncode != 0
    assert "'freelb' does not run with model.windows" in done.stderr + done.stdout
