"""A small but complete project: tiny local encoder, one text, pairs and values, and ways to change it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regft_core.data.prepare import prepare_dataset
from regft_core.data.subsample import write_subsamples
from regft_core.disk.files import write_json
from regft_core.disk.reading import read_json
from regft_core.grid.compute import compute_only
from regft_core.grid.data import prepared_task
from regft_core.grid.measured_lengths import measure_task
from regft_core.grid.missing_files import tasks_to_prepare
from regft_core.report import project_inputs, write_report
from regft_core.report.values import Report
from regft_core.runs import training_run
from regft_core.runs.context import Context, Job, project_store
from regft_core.runs.encoder_tensors import load_whole
from regft_core.runs.run_folder import StoredRun
from regft_core.runs.train import finetune, search
from regft_core.runs.work import Work
from regft_core.settings.project import cells
from regft_core.settings.read_project import open_project
from regft_core.settings.yaml_paths import METHODS, ships
from tests import small_project
from tests.promises.kit import change, edit, write_method

__all__ = ["write_method"]

TASK, SIZE = "cue_sentence", "24"
#: Phase and seed of trainings.
Trained = list[tuple[str, int]]
ROWS = {"train": 60, "dev": 40, "no_cue": 40, "reversed": 40}
CUES = ("Sent from my laptop.", "Sent from my phone.")
WORDS = ("film", "story", "actor", "music", "scene", "plot", "script", "voice", "ending", "cast")
TASKS = ("cue_sentence", "cue_pair", "cue_regression")
NAMES = {"cue_sentence": ["negative", "positive"], "cue_pair": ["different", "same"]}


def declared(name: str) -> dict[str, Any]:
    """A task whose rows end with a cue, which two further sets lack or have turned around."""
    files = {split: {"source": {"kind": "files"}, "split": f"{name}/{split}.csv"} for split in ("no_cue", "reversed")}
    about: dict[str, Any] = {"kind": "regression", "range": [0, 5], "metrics": ["pearson", "r2"], "primary": "pearson"}
    if name in NAMES:
        words = {"words": dict(zip(NAMES[name], ("bad", "good"), strict=True))}
        places = "{text} It was [MASK]." if name == "cue_sentence" else "{text} [MASK] , {text_pair}"
        about = {"labels": NAMES[name], "metrics": ["accuracy"], "primary": "accuracy"}
        about["prompt"] = {"template": places, **words}
    pair = {} if name == "cue_sentence" else {"text_pair": "text_pair"}
    return about | {
        "source": {"kind": "files"},
        "splits": {split: f"{name}/{split}.csv" for split in ("train", "dev")},
        "columns": {"text": "text", "label": "label", **pair},
        "ood": files | {"reversed": files["reversed"] | {"reversed": True}},
    }


def write_rows(root: Path, name: str) -> None:
    for split, count in ROWS.items():
        rows: list[tuple[Any, ...]] = [("text", "text_pair", "label")]
        for number in range(count):
            draw = random.Random(f"{split if split == 'train' else 'judging'} {number}")
            level = draw.randrange(len(NAMES.get(name, range(6))))
            one, other, third = draw.sample(WORDS, 3)
            good = ("awful", "dull", "long", "short", "fine", "lovely")[level * 5 if name == "cue_sentence" else level]
            cue = "" if split == "no_cue" else f" {CUES[(level % 2) ^ (split == 'reversed')]}"
            text = f"the {one} was {good} and the {other} of day {number} was new"
            same = (one, other) if level else (other, third)
            rows.append((text + cue, f"the {same[0]} was {good} and the {same[1]} was new", level))
        label = NAMES.get(name)
        rows[1:] = [(*texts, label[level] if label else level) for *texts, level in rows[1:]]
        small_project.write_csv(root / "data" / name / f"{split}.csv", rows)


def build(root: Path) -> Path:
    """Write a project at ``root`` and everything up to its subsamples."""
    small_project.build(
        root,
        tasks={name: declared(name) for name in TASKS},
        grid={"tasks": [TASK], "sizes": [24]},
        methods=["vanilla", "hype_n", "weight_mixup"],
        subsample={"stratified": False},
        training={"epochs": 2},
        execution={"checkpoint_seconds": 0},
    )
    for name in TASKS:
        write_rows(root, name)
    refresh(root)
    return root


def refresh(root: Path) -> None:
    """Rows, subsamples and lengths, without a look at what is there."""
    project = open_project(root)
    for task in tasks_to_prepare(project):
        prepare_dataset(root, task, {**project.tasks, task: prepared_task(project, task)})
    for task in (grid := project.params.grid).tasks:
        write_subsamples(root, task, grid.sizes, grid.seeds, project.params.subsample.stratified)
        write_json(Work(root).lengths_file(task), measure_task(project, task))


def edit_method(root: Path, name: str, old: str, new: str) -> None:
    path = root / "pipelines" / "methods" / f"{name}.yaml"
    if ships(METHODS, name) and not path.read_text().startswith("override"):
        path.write_text(f"override: true\n{path.read_text()}")
    edit(path, old, new)


#: Noise whose sum overflows: the loss is not a number in the first step.
DIVERGES: dict[str, Any] = {"hype": {"scale": 3.0e38, "hidden_dropout": "keep"}}


def job(root: Path, method: str, seed: int = 0) -> Job:
    return Job(str(root), method, TASK, SIZE, seed)


def key(root: Path, method: str = "vanilla", phase: str = "finetune") -> str:
    """The key of the first seed."""
    return Context(job(root, method)).key(phase)


def run_stages(root: Path, method: str) -> dict[str, list[dict[str, Any]]]:
    """All stages of a method on the task, as its part of `dvc repro`; the records that they wrote, by stage."""
    assert compute_only(root, "evaluate", [f"{method}/{TASK}"], lambda _: None) == {}
    found = {}
    for stage, name in (("search", "manifest"), ("finetune", "manifest"), ("evaluate", "result")):
        files = sorted((root / "work" / stage / method / TASK).glob(f"*/{name}.json"))
        found[stage] = [record for file in files for record in read_json(file)["runs"]]
    return found


def reported(root: Path) -> Report:
    """The report of the whole grid."""
    project = open_project(root)
    return write_report(project_inputs(project, cells(project), {}))


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
def trained(monkeypatch: pytest.MonkeyPatch) -> Trained:
    """(phase, seed) of every training that really runs, in order."""
    found: Trained = []
    original = training_run.train

    def counting(inputs: training_run.PhaseInputs, **options: Any) -> Any:
        found.append((inputs.setting.phase, inputs.setting.seed))
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
