"""Whatever answers in place of a model can be the best arm: it is exported and predicts like any other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest
from mlflow.pyfunc import load_model
from safetensors.torch import load_file, save_file
from torch import Tensor

from regft_core.api import Project
from regft_core.errors import ModelError
from regft_core.runs.opened_project import Job
from regft_core.serve.export import export
from regft_core.serve.model import load_served
from regft_core.serve.predict import predict_file
from tests.errors import raises_code
from tests.small_project import PAIRS, SCORES, TASK, build, predictions, read_csv

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


@pytest.mark.parametrize("method", ["pair_cosine", "zero_shot_similarity"])
def test_a_similarity_is_exported_with_its_encoder(tmp_path: Path, method: str) -> None:
    pairs = [("good film", "good film", 5), ("bad plot", "slow actor", 0), ("good plot", "good film", 3)] * 6
    task = SCORES | {"columns": {"text": "one", "text_pair": "other", "label": "stars"}}
    folder = tmp_path / "project"
    build(folder, tasks={"alike": task}, methods=["vanilla", method], grid={"tasks": ["alike"], "seeds": [1]})
    for name in ("scores", "scores-dev"):
        lines_of = [f"{one},{other},{stars}" for one, other, stars in pairs]
        (folder / "data" / f"{name}.csv").write_text("\n".join(["one,other,stars", *lines_of]) + "\n")
    Project.open(folder).run(method, "alike")
    served = load_served(export(Job(str(folder), method, "alike", "16", 1), tmp_path / "exported"), "cpu")
    predict_file(served, folder / "data" / "scores-dev.csv", tmp_path / "out.csv")
    expected = [row["prediction"] for row in predictions(folder, method, "alike")]
    found = [float(row["prediction"]) for row in read_csv(tmp_path / "out.csv")]
    assert found == pytest.approx(expected, abs=1e-4)
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
    from regft_core.errors import ExportMismatch

    def other(path: Path, tensors: Mapping[str, Tensor]) -> None:
        save_file({name: t if name != "bias" else t + 1 for name, t in tensors.items()}, path)

    monkeypatch.setattr("regft_core.serve.export.write_tensors", other)
    job = Job(str(root), "tfidf_logistic", "scores", "16", 1)
    with pytest.raises(ExportMismatch):
        export(job, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()
    monkeypatch.undo()
    assert "weight" in load_file(export(job, tmp_path / "exported") / "kept.safetensors")
