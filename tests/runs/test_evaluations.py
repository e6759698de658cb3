"""An evaluation is one file: validated, run, cached and reported; those that look into models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regft_core.catalogue import EVALUATIONS
from regft_core.errors import ConfigError
from regft_core.evaluate.analyses import enabled
from regft_core.grid.cell_keys import write_plan
from regft_core.grid.compute import compute_only
from regft_core.runs import evaluate as evaluating
from regft_core.runs import training_run
from regft_core.runs.analyses import evaluation_inputs
from regft_core.runs.context import Context
from regft_core.settings.read_project import open_project
from tests.errors import raises_code
from tests.runs.conftest import SIZE, TASK, change, edit, edit_method, job, refresh, reported, runs
from tests.small_project import also

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
    with also(EVALUATIONS, folder):
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


def found(records: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Name -> numbers of every run."""
    names = dict.fromkeys(name for record in records for name in record["evaluations"])
    return {name: [record["evaluations"][name]["scalars"] for record in records] for name in names}


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
    change(project, evaluations={"calibration": {}, "toy": {"factor": -1}, "sensitivity": {}})
    with raises_code(ConfigError, "invalid-value", "params.yaml", "evaluations.toy.factor", "greater than 0"):
        open_project(project)
    change(project, evaluations={"calibration": {}, "toy": {"factor": 2.0}, "sensitivity": {}})
    train(project, "vanilla")
    second = judge(project, "vanilla")
    lines = (project / "work" / "datasets" / TASK / "dev.jsonl").read_text().splitlines()
    words = [len(json.loads(line)["text"].split()) for line in lines]
    assert found(second)["toy"][0]["dev"]["words"] == pytest.approx(2 * sum(words) / len(words))
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


def test_an_evaluation_that_raises_costs_its_own_panel(project: Path, toy: Path) -> None:
    change(project, methods=["vanilla"], grid={**GRID, "seeds": [0]}, evaluations=["toy", "calibration"])
    edit(toy, ".mean()}", ".mean() * float('nan')}")
    train(project, "vanilla")
    (record,) = judge(project, "vanilla")
    failed, fine = record["evaluations"]["toy"], record["evaluations"]["calibration"]
    assert (record["status"], fine["status"], failed["status"]) == ("ok", "ok", "failed")
    assert re.search(r"dev\.words: .* \(\w+\.py:\d+\)$", failed["error"], re.DOTALL)
    report = reported(project)
    assert [text for text in report.warnings if "Evaluation toy on" in text]
    assert fine["scalars"]["dev"]


# ---------------------------------------------------------------------------------- evaluations that look into models


ALL: dict[str, dict[str, Any]] = {
    "confidence": {"rows": 10},
    "deletion": {"rows": 10, "shares": [0.5], "confidence_of": "tdt"},
    "layer_probes": {"tasks": ["cue_pair"], "rows": 20, "test_rows": 20},
    "robustness": {"rows": 10, "rates": [0.5], "copies": 1},
    "sensitivity": {"batches": 2, "batch_size": 8, "between": [1e-12, 1.0]},
    "token_similarity": {"rows": 10},
    "views": {"rows": 10},
}
METHODS = ["vanilla", "tdt", "tfidf_logistic"]


def planned(root: Path) -> dict[str, str]:
    """Name -> content of every file of the plan."""
    write_plan(open_project(root))
    return {path.stem: path.read_text() for path in (root / "work" / "plan").iterdir()}


def remarks(records: list[dict[str, Any]], name: str) -> str:
    return " ".join(records[0]["evaluations"][name]["remarks"])


def test_methods_show_what_they_have_and_say_what_they_have_not(project: Path) -> None:
    change(project, methods=METHODS, grid={**GRID, "seeds": [0]}, evaluations=ALL)
    refresh(project)
    records = {}
    for method in METHODS:
        train(project, method)
        records[method] = judge(project, method)
    numbers = {method: {name: one[0] for name, one in found(own).items()} for method, own in records.items()}
    assert all(set(own) == set(ALL) for own in numbers.values())
    # What every model has.
    for method in METHODS[:-1]:
        for name in ("deletion", "robustness", "token_similarity"):
            assert set(numbers[method][name]) == {"dev"}
        assert numbers[method]["sensitivity"]["run"]["sd"] > 0
        assert "the confidence that 'tdt' has learned" in remarks(records[method], "deletion")
        probes = {f"cue_pair.{name}" for name in ("best", "mean", "last", "last_pretrained")}
        assert set(numbers[method]["layer_probes"]["run"]) == probes
    # What one method has.
    assert 0 < numbers["tdt"]["confidence"]["dev"]["mean"] < 1
    assert {"cosine_positive", "cosine_negative"} == set(numbers["tdt"]["views"]["dev"])
    # What the others have not.
    assert "no method here learns a confidence per token" in remarks(records["vanilla"], "confidence")
    for name in ALL:
        assert numbers["tfidf_logistic"][name] == {}
        assert "'tfidf_logistic' answers instead of a model" in remarks(records["tfidf_logistic"], name)
    # The pretrained model is everybody's.
    assert len({own["layer_probes"]["run"]["cue_pair.last_pretrained"] for own in list(numbers.values())[:-1]}) == 1
    # All of it is shown.
    report = reported(project)
    assert [section.name for section in report.evaluations] == sorted(ALL)
    for name in ("robustness", "deletion", "views", "token_similarity", "layer_probes", "sensitivity"):
        assert f'aria-label="{name}: ' in report.html
    # And nothing is found out twice.
    before = set(runs(project))
    assert found(judge(project, "tdt")) == found(records["tdt"])
    assert set(runs(project)) == before


def test_a_run_beside_is_trained_first_and_in_key_and_plan(project: Path) -> None:
    asked = {"deletion": {"rows": 10, "shares": [0.5], "confidence_of": "tdt"}}
    change(project, methods=["vanilla", "tdt"], grid={**GRID, "seeds": [0]}, evaluations=asked)
    train(project, "vanilla")
    before, first = planned(project), judge(project, "vanilla")  # no run of tdt was asked for
    assert "the confidence that 'tdt' has learned" in remarks(first, "deletion")
    (own,) = [one for one in runs(project).values() if one.get("evaluation") == "deletion"]
    assert own["other_run"] in runs(project)
    # Another tdt has another key, and orders tokens in another way; the run itself stays.
    edit_method(project, "tdt", "w_distill: 0.5", "w_distill: 0.4")
    after = planned(project)
    cell = f"vanilla/{TASK}/24"
    assert json.loads(before["finetune"])[cell] == json.loads(after["finetune"])[cell]
    assert json.loads(before["evaluate"])[cell] != json.loads(after["evaluate"])[cell]
    judge(project, "vanilla")
    both = [one for one in runs(project).values() if one.get("evaluation") == "deletion"]
    assert len({one["other_run"] for one in both}) == 2
    assert len({one["run"] for one in both}) == 1


def test_other_rows_are_in_the_key_of_an_evaluation(project: Path) -> None:
    change(project, methods=["vanilla"], evaluations={"layer_probes": ALL["layer_probes"]})

    def inputs() -> dict[str, Any]:
        refresh(project)
        return evaluation_inputs(
            Context(job(project, "vanilla")), *enabled(open_project(project).params)["layer_probes"]
        )

    before = inputs()
    edit(project / "data" / "cue_pair" / "train.csv", "film", "movie")
    assert {key for key, value in inputs().items() if value != before[key]} == {"other_rows"}


def test_who_does_not_declare_it_may_not_ask_for_other_tasks_or_runs(project: Path) -> None:
    folder = project / "own"
    folder.mkdir()
    asks = {"tasks": "run.rows_of('cue_pair')", "method": "run.model_of('vanilla')"}
    with also(EVALUATIONS, folder):
        for name, call in asks.items():
            text = 'DESCRIPTION = "asks"\nKINDS = ("classification",)\nNEEDS_MODEL = True\n'
            (folder / f"asks_{name}.py").write_text(f"{text}\n\ndef run(run):\n    {call}\n")
        change(project, methods=["vanilla"], grid={**GRID, "seeds": [0]}, evaluations=["asks_tasks"])
        train(project, "vanilla")
        for name, said in (("tasks", 'TASKS = "tasks"'), ("method", 'METHOD = "of"')):
            change(project, evaluations=[f"asks_{name}"])
            assert compute_only(project, "evaluate", [f"vanilla/{TASK}"], lambda _: None) == {}
            [finding] = (project / "work" / "evaluate" / "vanilla").rglob(f"asks_{name}.json")
            assert said.replace('"', '\\"') in finding.read_text()
