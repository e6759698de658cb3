"""A small but complete project: tiny local encoder, built-in tasks, and ways to change it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from regft_core.data.prepare import prepare_dataset
from regft_core.data.subsample import write_subsamples
from regft_core.disk.files import write_json
from regft_core.disk.reading import read_json
from regft_core.grid.compute import compute_only
from regft_core.grid.data import prepared_task
from regft_core.grid.measured_lengths import lengths_file, measure_task
from regft_core.grid.missing_files import tasks_to_prepare
from regft_core.runs import training_run
from regft_core.runs.context import Context, project_store
from regft_core.runs.encoder_tensors import load_whole
from regft_core.runs.opened_project import Job, open_project
from regft_core.runs.run_folder import StoredRun
from regft_core.runs.train import finetune, search
from regft_core.settings.yaml_paths import METHODS, ships
from tests.promises.kit import change, edit
from tests.tiny import tiny_model_dir

REPOSITORY = Path(__file__).resolve().parents[2]
TASK, SIZE = "cue_sentence", "24"
PARAMS: dict[str, Any] = {
    "model": {"name": "models/tiny", "max_length": 32},
    "grid": {"tasks": [TASK], "sizes": [24], "seeds": [0, 1]},
    "methods": ["vanilla", "hype_n", "weight_mixup"],
    "subsample": {"stratified": False},
    "report": {"reference": "vanilla"},
    "training": {"epochs": 2, "batch_size": 8, "learning_rate": 1e-3},
    "execution": {"executor": "serial", "checkpoint_seconds": 0, "device": "cpu"},
}
ROWS = {"train": 60, "dev": 40, "no_cue": 40, "reversed": 40}


def build(root: Path, params: dict[str, Any] | None = None) -> Path:
    """Write a project at ``root`` and everything up to its subsamples."""
    root.mkdir(parents=True, exist_ok=True)
    for name in ("dvc.yaml", "pipelines", "data"):
        source = REPOSITORY / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, root / name)
    for name in ("cue_sentence", "cue_pair", "cue_regression"):
        shrink_task(root, name)
    (root / "params.yaml").write_text(yaml.dump(params or PARAMS))
    shutil.copytree(tiny_model_dir(root / "scratch", "bert"), root / "models" / "tiny")
    shutil.rmtree(root / "scratch")
    refresh(root)
    return root


def shrink_task(root: Path, name: str) -> None:
    """Give the built-in task ``name`` few rows."""
    task = root / "pipelines" / "tasks" / f"{name}.yaml"
    declared = yaml.safe_load(task.read_text())
    for source in (declared["source"], *(ood["source"] for ood in declared["ood"].values())):
        splits = source["options"].get("rows", ROWS)
        source["options"] = {**source["options"], "rows": {split: ROWS.get(split, 40) for split in splits}}
    task.write_text(yaml.dump({"override": True, **declared}))


def refresh(root: Path) -> None:
    """Rows, subsamples and lengths, without a look at what is there."""
    project = open_project(root)
    for task in tasks_to_prepare(project):
        prepare_dataset(root, task, {**project.tasks, task: prepared_task(project, task)})
    for task in (grid := project.params.grid).tasks:
        write_subsamples(root, task, grid.sizes, grid.seeds, project.params.subsample.stratified)
        write_json(lengths_file(root, task), measure_task(project, task))


def write_method(root: Path, name: str, **content: Any) -> None:
    """Write ``pipelines/methods/<name>.yaml`` and list it."""
    path = root / "pipelines" / "methods" / f"{name}.yaml"
    own = {"override": True} if ships(METHODS, name) else {}
    path.write_text(yaml.dump({**own, "description": "a test", **content}, sort_keys=False))
    listed = yaml.safe_load((root / "params.yaml").read_text())["methods"]
    if name not in listed:
        change(root, methods=[*listed, name])


def edit_method(root: Path, name: str, old: str, new: str) -> None:
    path = root / "pipelines" / "methods" / f"{name}.yaml"
    if ships(METHODS, name) and not path.read_text().startswith("override"):
        path.write_text(f"override: true\n{path.read_text()}")
    edit(path, old, new)


#: Noise whose sum overflows: the loss is not a number in the first step.
DIVERGES: dict[str, Any] = {"hype": {"scale": 3.0e38, "hidden_dropout": "keep"}}


def job(root: Path, method: str, seed: int = 0) -> Job:
    return Job(str(root), method, TASK, SIZE, seed)


def run_stages(root: Path, method: str) -> dict[str, list[dict[str, Any]]]:
    """All stages of a method on the task, as its part of `dvc repro`; the records that they wrote, by stage."""
    assert compute_only(root, "evaluate", [f"{method}/{TASK}"], lambda _: None) == {}
    found = {}
    for stage, name in (("search", "manifest"), ("finetune", "manifest"), ("evaluate", "result")):
        files = sorted((root / "work" / stage / method / TASK).glob(f"*/{name}.json"))
        found[stage] = [record for file in files for record in read_json(file)["runs"]]
    return found


def train(root: Path, method: str, seed: int = 0) -> dict[str, Any]:
    """Both training stages of one run: the record of finetune."""
    return finetune(Context(job(root, method, seed)), search(Context(job(root, method, seed))))


def weights_of(root: Path, key: str) -> dict[str, Any]:
    """The weights of a stored fine-tuning, whole."""
    context = Context(job(root, "vanilla"))
    return load_whole(context.phase("finetune"), stored(root, key), "weights")


def stored(root: Path, key: str) -> StoredRun:
    """A complete run of the project's store."""
    found = project_store(open_project(root)).get(key)
    assert found is not None, key
    return found


def runs(root: Path) -> dict[str, dict[str, Any]]:
    """Key -> identity of every complete run in the project's store."""
    store = project_store(open_project(root))
    return {key: run.identity for key in list(store.keys()) if (run := store.get(key)) is not None}


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("template") / "project")


@pytest.fixture
def project(template: Path, tmp_path: Path) -> Path:
    """A fresh copy of the template, with nothing trained."""
    return Path(shutil.copytree(template, tmp_path / "project"))


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """(phase, seed) of every training that really runs, in order."""
    found: list[tuple[str, int]] = []
    original = training_run.train

    def counting(inputs: training_run.PhaseInputs, **options: Any) -> Any:
        found.append((inputs.phase.name, inputs.seed))
        return original(inputs, **options)

    monkeypatch.setattr(training_run, "train", counting)
    return found


@pytest.fixture
def make_project(project: Path) -> Callable[..., Path]:
    """The project with other sections in ``params.yaml``."""

    def make(**changes: Any) -> Path:
        change(project, **changes)
        refresh(project)
        return project

    return make
