"""Presets: seeds and arms, matched compute, runs in miniature."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from regft_core.hooks.registry import discover
from regft_core.runs.records import MARK
from regft_core.settings.cost import TRAINING_ROWS, optimiser_steps, phase_cost, planned_rows
from regft_core.settings.project import Project
from regft_core.settings.published import read_published
from regft_core.settings.yaml_paths import PUBLISHED
from regft_core.settings.yaml_paths import names as files_of
from tests.presets.miniature import PRESETS, build, failures, names, run
from tests.small_project import REPOSITORY, preset


@pytest.mark.parametrize("name", [name for name in names() if "_table" in name])
def test_it_has_the_seeds_and_the_arms_of_its_table(name: str) -> None:
    params = yaml.safe_load((PRESETS / f"{name}.yaml").read_text(encoding="utf-8"))
    table = re.match(r"[a-z_]+_table\d+", name)
    assert params["report"]["published"] == table.group()
    config = read_published(REPOSITORY, table.group())
    if config.seeds is not None and name != "weight_mixup_table5":
        assert len(params["grid"]["seeds"]) == config.seeds
    model = params["model"]["name"].rsplit("/", 1)[-1]
    for row in config.rows:
        if row.arm is not None and row.copied_from is None and (config.model(row) or "").endswith(f"/{model}"):
            assert row.arm in params["methods"]
            assert row.size in params["grid"]["sizes"]


def test_every_printed_table_with_numbers_has_a_preset() -> None:
    # Test sets of GLUE need submissions to its server; prose has no experiment of its own.
    without = {name for name in files_of(REPOSITORY, PUBLISHED) if not list(PRESETS.glob(f"{name}*.yaml"))}
    assert without == {"hype_table12", "hype_prose", "tdt_prose", "weight_mixup_prose"}


# ------------------------------------------------------------------------------------- matched compute


def cost(project: Project, name: str, task: str, rows: int) -> float:
    """Plain steps that a run of a method on ``rows`` rows is worth."""
    method = project.method(name, task)
    counts = [planned_rows(project, task, phase, rows) for phase in method.phases]
    found = [phase_cost(*phase, discover(), method.training) for phase in zip(method.phases, counts, strict=True)]
    return sum(cost for cost in found if cost is not None)


@pytest.mark.parametrize("name", [name for name in names() if name.startswith("weight_mixup")])
def test_the_matched_control_costs_what_the_method_costs(name: str) -> None:
    project = preset(name)
    pairs = {
        control: control.removesuffix("_matched_compute").replace("vanilla_matched", "weight_mixup_released")
        for control in project.methods
        if "_matched" in control
    }
    for control, method in pairs.items():
        for task in project.params.grid.tasks:
            plain, rows = project.method(control, task), TRAINING_ROWS["nyu-mll/glue", task]
            assert plain.training.batch_size == project.method(method, task).training.batch_size
            wanted = cost(project, method, task, rows)
            assert optimiser_steps(plain.training, rows) == pytest.approx(wanted, rel=0.03), (control, task)


def test_the_control_is_there_wherever_the_method_is_compared() -> None:
    for name in names():
        if name.startswith("weight_mixup") and name != "weight_mixup_table5":  # which compares costs, not scores
            methods = preset(name).params.methods
            assert {"vanilla_matched", "weight_mixup_released_matched_compute"} & set(methods), name


# ---------------------------------------------------------------------------------------- in miniature


#: The others take minutes together: ``pytest -m slow tests/presets``.
QUICK = ("pats_table3",)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names()]
)
def test_every_preset_runs_in_miniature(name: str, tmp_path: Path) -> None:
    folder = build(tmp_path, name)
    report = run(folder)
    assert failures(report) == []
    assert report.mark.startswith(f"Not the paper's experiment: preset {name} at small scale.")
    assert report.mark.replace("'", "&#39;") in report.html
    claims = [claim for table in report.published for claim in table.claims if claim.claim.numbers]
    assert all(any(test.ours for test in claim.tested) for claim in claims)
    assert json.loads((folder / "reports" / "results.json").read_text())[MARK] == report.mark
