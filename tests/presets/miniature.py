"""A preset as ``--scale small`` makes it, on one task with its OOD sets, with a tiny encoder and generated rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow
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
from regft_core.report import Report, project_inputs, write_report
from regft_core.runs.opened_project import open_project
from regft_core.runs.run import STAGES
from regft_core.schema.sources import HubSource
from regft_core.settings.preset import capped, lay_out_small
from regft_core.settings.project import Project, cells
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
