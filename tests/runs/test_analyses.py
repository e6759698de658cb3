"""The evaluations that look into models, on runs of the methods whose state they show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regft_core.evaluate.analyses import enabled
from regft_core.grid.cell_keys import write_plan
from regft_core.grid.compute import compute_only
from regft_core.runs.opened_project import open_project
from tests.runs.conftest import TASK, change, edit, edit_method, refresh, reported, runs
from tests.runs.test_evaluations import GRID, found, judge, train

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


def test_other_rows_are_in_the_key_and_other_code_too(project: Path) -> None:
    change(project, methods=["vanilla"], grid={**GRID, "seeds": [0]}, evaluations={"layer_probes": ALL["layer_probes"]})
    refresh(project)
    train(project, "vanilla")
    judge(project, "vanilla")
    before = runs(project)
    edit(project / "pipelines" / "tasks" / "cue_pair.yaml", "train: 60", "train: 50")
    refresh(project)
    judge(project, "vanilla")
    (new,) = [identity for key, identity in runs(project).items() if key not in before]
    (old,) = [identity for identity in before.values() if identity.get("evaluation") == "layer_probes"]
    assert {key for key in new if new[key] != old[key]} == {"other_rows"}
    evaluation, options = enabled(open_project(project).params)["layer_probes"]
    assert evaluation.other_tasks(options) == ("cue_pair",)


def test_who_does_not_declare_it_may_not_ask_for_other_tasks_or_runs(project: Path) -> None:
    from regft_core.catalogue import EVALUATIONS

    folder = project / "own"
    folder.mkdir()
    asks = {
        "tasks": "run.rows_of('cue_pair')",
        "method": "run.model_of('vanilla')",
    }
    with EVALUATIONS.also(folder):
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
