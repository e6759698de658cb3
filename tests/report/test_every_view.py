"""MLflow's tags, model card, API and plan have the verdicts of the report; page and terminal: test_one_verdict."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

from regft_core.api import Project
from regft_core.report import planner, project_inputs, write_report
from regft_core.runs.opened_project import open_project
from regft_core.settings.project import cells
from regft_core.tracking.entries import read_grid
from tests.report.synthetic import Arm, Task, build
from tests.small_project import build as build_project

SEEDS = range(6)
ARMS = {
    "vanilla": Arm(0.7, shift=-0.05),
    "hype_n": Arm(0.9, shift=-0.6),
    "vanilla_no_dropout": Arm(0.71, control_for="hype_n", shift=-0.05),
    "linear_probe": Arm(0.35, shift=0.0, trains_encoder=False, declared=0.03, seconds=0.4, search=True),
}
#: What all views must say of the development set: (method, other) -> word.
WORDS = {
    ("hype_n", "vanilla"): "better",
    ("hype_n", "vanilla_no_dropout"): "better",
    ("vanilla_no_dropout", "vanilla"): "no difference shown",
    ("linear_probe", "vanilla"): "worse",
}
ROLE = {"vanilla": "reference", "vanilla_no_dropout": "control"}
BELOW = {("hype_n", "shop"), ("linear_probe", "dev"), ("linear_probe", "shop")}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A real project whose runs are simulated."""
    root = build_project(tmp_path_factory.mktemp("views") / "project", methods=list(ARMS), grid={"seeds": list(SEEDS)})
    build(root, ARMS, {"reviews": Task(metrics=("accuracy",), n=200, ood=("shop",))}, (16,), SEEDS)
    project = open_project(root)
    report = write_report(project_inputs(project, cells(project), {}))
    results = json.loads((root / "reports" / "results.json").read_text())["reviews-16"]
    return SimpleNamespace(root=root, project=project, report=report, results=results)


def test_the_tags_of_mlflow(seen: Any) -> None:
    entries = read_grid(seen.root, cells(seen.project), SEEDS, seen.root / ".regft")
    records = {one.params["method"]: one.tags for one in entries}
    for (method, other), word in WORDS.items():
        assert records[method][f"verdict_{ROLE[other]}"] == word
    for method in ARMS:
        found = set(filter(None, records[method].get("no_better_than_constant", "").split(", ")))
        assert found == {s for m, s in BELOW if m == method}


def test_the_data_frame(seen: Any) -> None:
    results = Project.open(seen.root).results()
    pairs = results.verdicts
    dev = pairs[(pairs["set"] == "dev") & (pairs["role"] != "opponent")]
    assert {(one["method"], one["other"]): one["verdict"] for one in dev.to_dict("records")} == WORDS
    for one in results[results["set"] == "dev"].to_dict("records"):
        own = {ROLE[other]: word for (method, other), word in WORDS.items() if method == one["method"]}
        assert {role: one[f"vs_{role}"] for role in own} == own
    assert "take hype_n" in results._repr_html_()
    low = results[results["no_better_than_constant"]]
    assert set(zip(low["method"], low["set"])) == BELOW


def test_the_plan(seen: Any) -> None:
    inputs = project_inputs(seen.project, cells(seen.project), {})
    table = planner.table(planner.needs(inputs, lambda cell: None, 5.0), 5.0)
    for (method, other), word in WORDS.items():
        assert re.search(rf"^{method} - {other} .*\n{word}  ", table, re.MULTILINE)
