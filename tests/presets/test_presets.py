"""Presets: seeds, arms, matched compute; each as ``--scale small`` makes it, with a tiny encoder, generated rows."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow
import pytest
import yaml
from pyarrow import parquet

from regft_core.data.fetched import is_fetched, split_folder
from regft_core.data.prepare import EvaluationSet, declaration_of, resolve_ood
from regft_core.data.read_split import Declaration
from regft_core.disk.canonical import sha256_file
from regft_core.disk.files import write_json
from regft_core.grid.cell_keys import write_plan
from regft_core.grid.compute import compute
from regft_core.grid.data import prepare
from regft_core.grid.missing_files import tasks_to_prepare
from regft_core.hooks.registry import discover
from regft_core.report import project_inputs, write_report
from regft_core.report.values import Report
from regft_core.runs.context import STAGES
from regft_core.runs.records import MARK
from regft_core.schema.sources import HubSource
from regft_core.settings.cost import optimiser_steps, phase_cost, planned_rows
from regft_core.settings.preset import capped, lay_out_small
from regft_core.settings.project import Project, cells
from regft_core.settings.published import read_published
from regft_core.settings.read_project import open_project
from regft_core.settings.yaml_paths import PUBLISHED
from regft_core.settings.yaml_paths import names as files_of
from tests.small_project import REPOSITORY, preset
from tests.tiny import MASKED_LM_ARCHITECTURES, tiny_model_dir

PRESETS = REPOSITORY / "pipelines" / "presets"
#: As many as the packaged encoder has, so that methods find the layers that their files name.
LAYERS = 6
#: Families by their word in a checkpoint's name, the first that fits; else bert, as for all Chinese checkpoints.
FAMILIES = ("xlnet", "electra", "deberta", "bart", "roberta")
#: Presets that are no experiment of a paper, so that nothing printed stands beside their numbers.
OWN = {"distil_mpnet", "unlabelled_film"}


def names() -> list[str]:
    """Every preset."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def project(root: Path, *presets: str) -> Path:
    """A project with the shipped tasks, methods and printed tables, and these presets."""
    for folder in ("tasks", "methods"):
        shutil.copytree(REPOSITORY / "pipelines" / folder, root / "pipelines" / folder)
    shutil.copytree(REPOSITORY / "published", root / "published")
    (root / "pipelines" / "presets").mkdir()
    for name in presets:
        shutil.copy(PRESETS / f"{name}.yaml", root / "pipelines" / "presets")
    shutil.copy(REPOSITORY / "dvc.yaml", root / "dvc.yaml")
    return root


def build(root: Path, name: str) -> Path:
    """The folder of a preset in small, in a project of its own: its last task, one seed."""
    params = yaml.safe_load((PRESETS / f"{name}.yaml").read_text(encoding="utf-8"))
    name_of_model = params["model"]["name"].replace("chinese-roberta", "bert")
    family = next((family for family in FAMILIES if family in name_of_model), "bert")
    encoder = tiny_model_dir(
        root / "scratch", family, masked_lm=family in MASKED_LM_ARCHITECTURES, num_hidden_layers=LAYERS
    )
    shutil.copytree(encoder, project(root, name) / "models" / "tiny")
    last = params["grid"]["tasks"][-1]
    own = {task: capped(own, 1.0) for task, own in params.get("task_settings", {}).items() if task == last}
    changes = {
        "model.name": "models/tiny",
        "model.max_length": 24,
        "grid.tasks": [last],
        "grid.seeds": [0],
        "ood": "none" if params.get("ood") == "none" else "all",  # a list may name sets of other tasks
        "task_settings": own,
        "execution": {"executor": "serial", "device": "cpu"},
        "report.averages": {},
        "report.bootstrap_samples": 100,
    }
    folder = lay_out_small(root, name, [f"{key}={json.dumps(value)}" for key, value in changes.items()])
    fetch_generated(root, open_project(folder))
    return folder


def run(root: Path) -> Report:
    """Every stage in this process, in DVC's order; returns the report."""
    project = open_project(root)
    prepare(project)
    write_plan(project)
    for stage in STAGES:
        failed = compute(root, stage, say=lambda _: None)
        assert failed == {}, f"stage {stage}: {failed}"
    return write_report(project_inputs(project, cells(project), {}))


def failures(report: Report) -> list[str]:
    """The cells of a report in which a run failed."""
    return [f"{block.name}: {row.method}" for block in report.blocks for row in block.rows if row.failed]


# --------------------------------------------------------------------------- rows of hub sets as if they were fetched


#: Rows of each set.
ROWS = 48


def fetch_generated(root: Path, project: Project) -> None:
    """Put generated rows where the hub sets of a project would be."""
    for name, wanted in _sets(project):
        if isinstance(wanted.source, HubSource) and not is_fetched(root, wanted.source, wanted.split):
            folder = split_folder(root, wanted.source, wanted.split)
            folder.mkdir(parents=True)
            rows = list(_rows(f"{name} {wanted.split}", wanted.declaration))
            parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "rows.parquet")
            write_json(folder / "source.json", {"commit": "generated", "sha256": sha256_file(folder / "rows.parquet")})


def _sets(project: Project) -> Iterator[tuple[str, EvaluationSet]]:
    for name in tasks_to_prepare(project):
        task = project.tasks[name]
        for split in (task.splits.train, task.splits.dev):
            if isinstance(split, str):
                yield name, EvaluationSet(task.source, split, declaration_of(task), None, name)
        for judge in task.ood if name in project.params.grid.tasks else ():
            yield judge, resolve_ood(name, judge, project.tasks)


def _rows(name: str, declaration: Declaration) -> Iterator[Mapping[str, object]]:
    """Rows whose answers are spread over the labels, or over the range; each text tells its answer."""
    columns, labels = declaration.columns, declaration.labels
    low, high = declaration.range or (0.0, 5.0)
    raw = {label: value for value, label in (declaration.label_values or {}).items()}
    for number in range(ROWS):
        index = number % len(labels) if labels else number % 6
        label = raw.get(labels[index], str(index)) if labels else low + (high - low) * index / 5
        row: dict[str, object] = {columns.text: f"The film {number} of {name} was {index}.", columns.label: label}
        row |= {columns.text_pair: f"A story {number} has {index}."} if columns.text_pair else {}
        yield row | ({columns.id: str(number)} if columns.id else {})


# --------------------------------------------------------------------------------------------------------- tests


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
            plain, rows = project.method(control, task), project.tasks[task].source.rows
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
