"""A small but complete project: tiny local encoder, built-in tasks, three methods."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from regft_core.data.prepare import prepare_dataset
from regft_core.data.subsample import write_subsamples
from regft_core.methods.registry import discover
from regft_core.phases.context import open_project
from regft_core.runs.fingerprint import write_fingerprints
from tests.tiny import tiny_model_dir

REPOSITORY = Path(__file__).resolve().parents[2]
PARAMS: dict[str, Any] = {
    "model": {"name": "models/tiny", "max_length": 32},
    "grid": {"tasks": ["cue_sentence"], "sizes": [24], "seeds": [0, 1]},
    "protocols": {"finetune": ["vanilla", "vanilla_no_dropout", "hype_n"], "search_finetune": ["weight_mixup"]},
    "subsample": {"stratified": False},
    "report": {"reference": "vanilla"},
    "training": {"epochs": 2, "batch_size": 8, "learning_rate": 1e-3},
    "execution": {"executor": "serial", "checkpoint_seconds": 0, "device": "cpu"},
}


def build(root: Path, params: dict[str, Any] | None = None) -> Path:
    """Write a project at ``root`` and everything up to its subsamples."""
    root.mkdir(parents=True, exist_ok=True)
    for name in ("dvc.yaml", "pipelines", "data"):
        source = REPOSITORY / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, root / name)
    task = root / "pipelines" / "tasks" / "cue_sentence.yaml"
    declared = yaml.safe_load(task.read_text())
    rows = {"train": 60, "dev": 40, "no_cue": 40, "reversed": 40}
    for source in (declared["source"], *(ood["source"] for ood in declared["ood"].values())):
        source["options"] = {**source["options"], "rows": rows}
    task.write_text(yaml.dump(declared))
    (root / "params.yaml").write_text(yaml.dump(params or PARAMS))
    if not (root / "models").exists():
        made = tiny_model_dir(root / "scratch", "bert")
        shutil.copytree(made, root / "models" / "tiny")
    refresh(root)
    return root


def refresh(root: Path) -> None:
    """What the stages code, dataset and subsample do."""
    project = open_project(root)
    registry = discover()
    methods = {n: [registry[r].__module__ for r, _ in m.regularisers] for n, m in project.methods.items()}
    write_fingerprints(root, methods, code_root=REPOSITORY)
    for task in project.params.grid.tasks:
        prepare_dataset(root, task, project.tasks, root / "work" / "datasets" / task)
        for size in project.params.grid.sizes:
            write_subsamples(root, task, size, project.params.grid.seeds, project.params.subsample.stratified)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("template") / "project")


@pytest.fixture
def project(template: Path, tmp_path: Path) -> Path:
    """A fresh copy of the template, with nothing trained."""
    return Path(shutil.copytree(template, tmp_path / "project"))


@pytest.fixture
def make_project(tmp_path: Path) -> Callable[..., Path]:
    def make(**changes: Any) -> Path:
        return build(tmp_path / "made", {**PARAMS, **changes})

    return make
