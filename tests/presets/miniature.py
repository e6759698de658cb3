"""A preset as ``--scale small`` makes it, on one task with its OOD sets, with a tiny encoder of the preset's family."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import yaml

from regft_core.grid.cell_keys import write_plan
from regft_core.grid.compute import compute
from regft_core.grid.data import prepare
from regft_core.report import Report, project_inputs, write_report
from regft_core.runs.opened_project import open_project
from regft_core.runs.run import STAGES
from regft_core.settings.preset import capped, lay_out_small
from regft_core.settings.project import cells
from tests.presets.generated import fetch_generated
from tests.small_project import REPOSITORY
from tests.tiny import MASKED_LM_ARCHITECTURES, tiny_model_dir

PRESETS = REPOSITORY / "pipelines" / "presets"
#: As many as the packaged encoder has, so that methods find the layers that their files name.
LAYERS = 6
#: How a checkpoint's name tells its family; the first that fits.
FAMILIES = (
    ("xlnet", "xlnet"),
    ("electra", "electra"),
    ("deberta", "deberta"),
    ("bart", "bart"),
    ("chinese", "bert"),
    ("roberta", "roberta"),
    ("bert", "bert"),
    ("minilm", "bert"),
)
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
    family = next(family for word, family in FAMILIES if word in params["model"]["name"])
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
