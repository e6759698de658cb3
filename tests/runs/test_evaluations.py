"""An evaluation is one file: it is validated, run, cached and reported, and nothing is made again for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regft_core.catalogue import EVALUATIONS
from regft_core.errors import ConfigError
from regft_core.grid.compute import compute_only
from regft_core.runs import evaluate as evaluating
from regft_core.runs import training_run
from regft_core.runs.opened_project import open_project
from tests.errors import raises_code
from tests.runs.conftest import SIZE, TASK, change, edit, reported, runs

TOY = '''\
"""How long the texts are that a run gets right."""

from pydantic import Field

from regft_core.schema import StrictModel
from regft_core.evaluate.analysis_result import Findings, Table
from regft_core.lazy import np

DESCRIPTION = "words of what is right"
KINDS = ("classification",)
NEEDS_MODEL = False


class Config(StrictModel):
    factor: float = Field(1.0, gt=0)


def run(run):
    words = {n: np.array([len(e.text.split()) for e in s.examples]) for n, s in run.sets.items()}
    scalars = {n: {"words": run.options.factor * words[n].mean()} for n in run.sets}
    rows = tuple((e.idx, e.text) for e in run.sets["dev"].examples[:2])
    return Findings(scalars, {"dev": {"first": Table(("idx", "<text>"), rows)}}, {"words": (0, 100)})
'''
GRID = {"tasks": [TASK], "sizes": [24], "seeds": [0, 1]}


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "toy.py").write_text(TOY)
    with EVALUATIONS.also(folder):
        yield folder / "toy.py"


def train(root: Path, method: str) -> None:
    """The stages search and finetune of a method."""
    assert compute_only(root, "finetune", [f"{method}/{TASK}"], lambda _: None) == {}


def judge(root: Path, method: str) -> list[dict[str, Any]]:
    """The stage evaluate of a method; its records."""
    assert compute_only(root, "evaluate", [f"{method}/{TASK}"], lambda _: None) == {}
    folder = root / "work" / "evaluate" / method / TASK / SIZE
    records = list(json.loads((folder / "result.json").read_text())["runs"])
    for record in records:
        record["evaluations"] = {}
        for path in sorted((folder / "evaluations").glob("*.json")):
            for run in json.loads(path.read_text())["runs"]:
                if run["seed"] == record["seed"]:
                    record["evaluations"][path.stem] = run
    return records


def written(root: Path, method: str, name: str) -> dict[str, Any]:
    path = root / "work" / "evaluate" / method / TASK / SIZE / "evaluations" / f"{name}.json"
    return dict(json.loads(path.read_text()))


def found(records: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Name -> numbers of every run."""
    names = dict.fromkeys(name for record in records for name in record["evaluations"])
    return {name: [record["evaluations"][name]["scalars"] for record in records] for name in names}


def test_a_file_is_all_that_an_evaluation_needs(project: Path, toy: Path) -> None:
    change(project, methods=["vanilla"], grid=GRID, evaluations=["toy"])
    # Validated.
    assert open_project(project).params.evaluations == {"toy": {}}
    change(project, evaluations={"toy": {"factor": -1}})
    with raises_code(ConfigError, "invalid-value", "params.yaml", "evaluations.toy.factor", "greater than 0"):
        open_project(project)
    change(project, evaluations={"toy": {"factor": 2.0}})
    # Run, on every set, and written.
    train(project, "vanilla")
    judge(project, "vanilla")
    content = written(project, "vanilla", "toy")
    assert content["description"] == "words of what is right"
    assert content["options"] == {"factor": 2.0}
    assert [run["seed"] for run in content["runs"]] == [0, 1]
    assert set(content["runs"][0]["scalars"]) == {"dev", "no_cue", "reversed"}
    lines = (project / "work" / "datasets" / TASK / "dev.jsonl").read_text().splitlines()
    words = [len(json.loads(line)["text"].split()) for line in lines]
    assert content["runs"][0]["scalars"]["dev"]["words"] == pytest.approx(2 * sum(words) / len(words))
    # Reported.
    report = reported(project)
    assert '<section id="evaluations">' in report.html
    assert "Words of what is right." in report.html
    assert "&lt;text&gt;" in report.html
    assert "<text>" not in report.html
    shown = json.loads((project / "reports" / "results.json").read_text())[f"{TASK}-{SIZE}"]["vanilla"]
    assert shown["evaluations"]["toy"]["dev"]["words"]["n"] == 2


def test_switching_one_on_trains_nothing_scores_nothing_and_leaves_the_others_alone(
    project: Path, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(project, methods=["vanilla"], grid=GRID, evaluations=["calibration"])
    train(project, "vanilla")
    first = judge(project, "vanilla")
    before = set(runs(project))
    results = (project / "work" / "evaluate" / "vanilla" / TASK / SIZE / "result.json").read_text()

    def never(*_: object, **__: object) -> Any:
        raise AssertionError("made again")

    monkeypatch.setattr(training_run, "train", never)
    monkeypatch.setattr(evaluating, "_evaluate", never)
    monkeypatch.setattr("regft_core.runs.finished_model.FinishedModel.predict", never)
    monkeypatch.setattr("regft_core.evaluate.analyses.calibration.scores", never)
    change(project, evaluations=["calibration", "toy", "sensitivity"])
    train(project, "vanilla")
    second = judge(project, "vanilla")
    assert found(second)["calibration"] == found(first)["calibration"]
    assert set(found(second)) == {"calibration", "toy", "sensitivity"}
    identities = runs(project)
    new = [identities[key] for key in set(identities) - before]
    assert sorted(one["evaluation"] for one in new) == sorted(["toy", "sensitivity"] * 2)
    assert (project / "work" / "evaluate" / "vanilla" / TASK / SIZE / "result.json").read_text() == results
    # Nothing is found out twice either, and what is switched off is gone from the stage's files.
    edit(toy, "def run(run):", "def run(run):\n    raise AssertionError('made again')\n\n\ndef _unused(run):")
    change(project, evaluations=["calibration"])
    assert found(judge(project, "vanilla")) == {"calibration": found(second)["calibration"]}
    assert [path.stem for path in (project / "work/evaluate/vanilla" / TASK / SIZE / "evaluations").iterdir()] == [
        "calibration"
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (".mean()}", ".mean() * float('nan')}", r"dev\.words: Input should be a finite number"),
        ("{n: {", "{n + 'x': {", r"\['devx', .*\], which is no set"),
    ],
)
def test_an_evaluation_that_raises_costs_its_own_panel(
    project: Path, toy: Path, old: str, new: str, message: str
) -> None:
    change(project, methods=["vanilla"], grid={**GRID, "seeds": [0]}, evaluations=["toy", "calibration"])
    edit(toy, old, new)
    train(project, "vanilla")
    (record,) = judge(project, "vanilla")
    failed, fine = record["evaluations"]["toy"], record["evaluations"]["calibration"]
    assert (record["status"], fine["status"], failed["status"]) == ("ok", "ok", "failed")
    assert re.search(message, failed["error"])
    assert re.search(r"\(\w+\.py:\d+\)$", failed["error"])
    report = reported(project)
    assert [text for text in report.warnings if "Evaluation toy on" in text]
    assert fine["scalars"]["dev"]
