"""A complete project for tests of what users call: a tiny encoder, one task from files, few rows and steps."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from regft_core.catalogue import Catalogue
from regft_core.settings.project import Project
from regft_core.settings.read_project import open_project
from stages import cli
from tests import warm
from tests.tiny import tiny_model_dir

REPOSITORY = Path(__file__).resolve().parents[1]
TASK: dict[str, Any] = {
    "source": {"kind": "files"},
    "splits": {"train": "train.csv", "dev": "dev.csv"},
    "columns": {"text": "review", "label": "verdict"},
    "labels": ["bad", "good"],
    "metrics": ["accuracy"],
    "primary": "accuracy",
    "ood": {"shop": {"source": {"kind": "files"}, "split": "shop.csv"}},
}
PAIRS: dict[str, Any] = {
    **TASK,
    "splits": {"train": "pairs.csv", "dev": "pairs-dev.csv"},
    "columns": {"text": "one", "text_pair": "other", "label": "verdict"},
    "ood": {},
}
SCORES: dict[str, Any] = {
    "kind": "regression",
    "source": {"kind": "files"},
    "splits": {"train": "scores.csv", "dev": "scores-dev.csv"},
    "columns": {"text": "review", "label": "stars"},
    "range": [0, 5],
    "metrics": ["pearson", "mse"],
    "primary": "pearson",
}
PARAMS: dict[str, Any] = {
    "model": {"name": "models/tiny", "max_length": 32},
    "grid": {"tasks": ["reviews"], "sizes": [16], "seeds": [0, 1]},
    "methods": ["vanilla"],
    "subsample": {},
    "training": {"epochs": 1, "batch_size": 8, "learning_rate": 1.0e-3},
    "execution": {"executor": "serial", "device": "cpu"},
    "report": {"reference": "vanilla", "bootstrap_samples": 200},
    # Making MLflow's tables takes five seconds.
    "trackers": [],
}


def review(number: int, words: int = 6) -> str:
    """A text whose first word tells its label."""
    return " ".join(
        ["good" if number % 2 else "bad", *[["film", "story", "actor", "the", "was", "it"][number % 6]] * words]
    )


def build(
    root: Path, *, tasks: dict[str, Any] | None = None, words: int = 6, encoder: str = "bert", **changes: Any
) -> Path:
    """Write a project at ``root``.

    Args:
        tasks: task name -> YAML; ``reviews`` by default.
        words: length of the texts of the training split.
        encoder: its architecture; with ``-mlm`` at the end it has a masked-LM head.
        changes: sections of ``params.yaml``; mappings are merged.
    """
    root.mkdir(parents=True, exist_ok=True)
    for name in ("dvc.yaml", "pipelines"):
        source = REPOSITORY / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, root / name)
    for name, declared in (tasks or {"reviews": TASK}).items():
        (root / "pipelines" / "tasks" / f"{name}.yaml").write_text(yaml.dump(declared))
    params = PARAMS | {
        key: {**PARAMS.get(key, {}), **value} if isinstance(value, dict) else value for key, value in changes.items()
    }
    (root / "params.yaml").write_text(yaml.dump(params))
    names = ["bad", "good"]
    texts = {"train": words, "dev": 6, "shop": 9}
    for name, length in texts.items():
        write_csv(
            root / "data" / f"{name}.csv",
            [("review", "verdict"), *((review(n, length), names[n % 2]) for n in range(32))],
        )
    for ending, more in (("", 0), ("-dev", 3)):
        rows = [(review(n), review(n + n % 3, 9 + more), names[n % 2]) for n in range(32)]
        write_csv(root / "data" / f"pairs{ending}.csv", [("one", "other", "verdict"), *rows])
        stars = ((review(n, 6 + more), n % 6) for n in range(32))
        write_csv(root / "data" / f"scores{ending}.csv", [("review", "stars"), *stars])
    made = tiny_model_dir(root / "scratch", encoder.removesuffix("-mlm"), masked_lm=encoder.endswith("-mlm"))
    shutil.copytree(made, root / "models" / "tiny")
    shutil.rmtree(root / "scratch")
    return root


@contextlib.contextmanager
def also(catalogue: Catalogue, folder: Path) -> Iterator[None]:
    """Take the files of a ``folder`` as well, within a ``with`` block, whatever project is opened there."""
    before: Any = Catalogue.folders
    with patch.object(Catalogue, "folders", property(lambda one: [*before.fget(one), *[folder] * (one is catalogue)])):
        yield


@cache
def preset(name: str) -> Project:
    """A shipped preset, which takes a while to open; tests leave it as it is."""
    return open_project(REPOSITORY, f"pipelines/presets/{name}.yaml")


def write_csv(path: Path, rows: Sequence[Sequence[Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


def workbook(**sheets: Sequence[Sequence[Any]]) -> bytes:
    """Return an .xlsx with a sheet for each keyword."""
    import openpyxl

    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    written = io.BytesIO()
    book.save(written)
    return written.getvalue()


def parquet(rows: list[dict[str, Any]]) -> bytes:
    """Return a Parquet file of some rows."""
    import pyarrow
    import pyarrow.parquet

    written = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), written)
    return written.getvalue()


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def predictions(root: Path, method: str, task: str, seed: int = 1, size: str = "16") -> list[dict[str, Any]]:
    """What the stage evaluate wrote of the validation set."""
    return read_jsonl(root / f"work/evaluate/{method}/{task}/{size}/predictions/seed-{seed}/dev.jsonl")


def git(root: Path, *arguments: str) -> str:
    """Run git as somebody in a folder; return what it prints."""
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def stage(root: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``regft <name>`` in the project, in this process: a new one takes seconds to import what it needs."""
    code: Any = 0
    out, error = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(root),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(error),
        patch.dict(os.environ, {"COLUMNS": "120", "REGFT_ONEDNN": "0"}),
        patch.object(sys, "argv", ["regft"]),
    ):
        try:
            cli.dispatch(name.replace("_", "-"), arguments)
        except SystemExit as end:
            code = end.code
    return subprocess.CompletedProcess([name, *arguments], int(code or 0), out.getvalue(), error.getvalue())


def python(root: Path, *arguments: str, given: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the project, in a process of its own."""
    environment = {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", "COLUMNS": "120", **variables}
    return warm.run(root, *arguments, environment={**os.environ, **environment}, given=given)
