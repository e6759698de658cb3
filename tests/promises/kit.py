"""What the promises are tried with: the command line, the calls of ``regft_core.api``, and bytes on disk."""

from __future__ import annotations

import hashlib
import multiprocessing
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from regft_core.api import Project
from regft_core.settings.yaml_paths import METHODS, ships
from tests.small_project import TASK, build, python, review, stage, write_csv
from tests.tiny import tiny_model_dir

#: Forked children share what is imported; a new Python takes seconds to import torch.
FORK = multiprocessing.get_context("fork")
#: A method of a project's own: gradients times what a data file says. Every training adds a line to ``trained``.
OWN_METHOD = '''
import os
from pathlib import Path

from pydantic import Field

from regft_core.hooks.base import Declares, Regulariser
from regft_core.schema import StrictModel

SCALE = SCALE_OF_THE_FILE


class StretchedConfig(StrictModel):
    by: float = Field(1.5, gt=0)


class Stretched(Regulariser):
    """Gradients times a number."""

    name = "stretched"
    Config = StretchedConfig
    off = {"by": 1.0}

    @classmethod
    def declare(cls, options):
        return Declares(active=options.by != 1)

    def change_gradients(self, step):
        if step.index == 0:
            with open(os.environ["REGFT_TEST_TRAINED"], "a") as log:
                log.write(f"{os.getpid()}\\n")
        for _, parameter in step.trainee.named_trainable():
            if parameter.grad is not None:
                parameter.grad.mul_(self.options.by * SCALE)
'''


def regft(root: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command ``regft`` in a folder."""
    return python(root, "-m", "regft_core", *arguments, **{"COLUMNS": "80", **variables})


def done(root: Path, *arguments: str) -> str:
    """What a command that must succeed prints; those that call DVC or open a database have a process of their own."""
    ended = (regft if arguments[0] in ("fit", "preset", "run", "sync") else stage)(root, *arguments)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def run_cells(root: Path, *cells: tuple[str, str]) -> None:
    """Train and evaluate (method, task) pairs, in this process."""
    project = Project.open(root)
    for method, task in cells:
        project.run(method, task)


def forked(function: Callable[[], object]) -> Any:
    """A process that calls a function; it is started, and not waited for."""
    process = FORK.Process(target=function)
    process.start()
    return process


def exit_code(function: Callable[[], object]) -> int | None:
    """The exit code of a child that calls a function; negative: a signal ended it."""
    process = forked(function)
    process.join(300)
    return process.exitcode  # type: ignore[no-any-return]


def bits(root: Path) -> dict[str, str]:
    """File -> hash of the weights of all runs and of all predictions."""
    files = [*weights(root), *(root / "work" / "evaluate").rglob("*.jsonl")]
    return {path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def weights(root: Path) -> list[Path]:
    """The files of trained weights."""
    return sorted((root / ".regft").rglob("weights*.safetensors"))


def edit(path: Path, old: str, new: str) -> None:
    """Replace text that must be there."""
    text = path.read_text()
    assert old in text, (path, old)
    path.write_text(text.replace(old, new, 1))


def change(root: Path, **changes: Any) -> None:
    """Change values of ``params.yaml``: sections are merged, lists replaced."""
    params = yaml.safe_load((root / "params.yaml").read_text())
    for key, value in changes.items():
        before = params.get(key)
        params[key] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    (root / "params.yaml").write_text(yaml.dump(params, sort_keys=False))


def change_task(root: Path, name: str, **changes: Any) -> None:
    """Replace keys of a task's YAML."""
    path = root / "pipelines" / "tasks" / f"{name}.yaml"
    path.write_text(yaml.dump({**yaml.safe_load(path.read_text()), **changes}, sort_keys=False))


def write_method(root: Path, name: str, **content: Any) -> None:
    """Write a method's YAML and list it in ``params.yaml``."""
    own = {"override": True} if ships(METHODS, name) else {}
    text = yaml.dump({**own, "description": "a test", **content}, sort_keys=False)
    (root / "pipelines" / "methods" / f"{name}.yaml").write_text(text)
    methods = yaml.safe_load((root / "params.yaml").read_text())["methods"]
    change(root, methods=list(dict.fromkeys([*methods, name])))


def with_own_method(root: Path, *, data_file: bool = False) -> Path:
    """Add ``OWN_METHOD`` to a project; returns the file to which its trainings write.

    A process reads no data file that is younger than itself, so tests that train in this one do without.
    """
    (root / "methods").mkdir(exist_ok=True)
    scale = 'float(Path(__file__).with_name("stretched.txt").read_text())' if data_file else "1.0"
    (root / "methods" / "stretched.py").write_text(OWN_METHOD.replace("SCALE_OF_THE_FILE", scale))
    if data_file:
        (root / "methods" / "stretched.txt").write_text("1.0")
    write_method(root, "stretched", regularisers={"stretched": {"by": 1.5}}, training={})
    return root / "trained"


#: Three folds, twice, in which the rows of a shop stay together.
FOLDED: dict[str, Any] = {
    **TASK,
    "splits": {"train": "rows.csv", "dev": {"folds": 3, "repeats": 2}},
    "columns": {**TASK["columns"], "group": "shop"},
    "ood": {},
}


def folded(root: Path, methods: list[str], task: dict[str, Any] = FOLDED, **changes: Any) -> Path:
    """A project with a folded task of 48 rows of unlike lengths, four of each shop."""
    grid = {"sizes": ["full"], "seeds": list(range(6))}
    sections = {"tasks": {}, "grid": grid, "report": {"reference": methods[0]}, **changes}
    sections["tasks"] = {"reviews": task, **sections["tasks"]}
    build(root, methods=methods, **sections)
    rows = [(f"{review(n, 3 + n % 5)} {n}", ("bad", "good")[n % 2], f"shop {n // 4}") for n in range(48)]
    write_csv(root / "data" / "rows.csv", [("review", "verdict", "shop"), *rows])
    return root


def fit_folder(root: Path, preset: str) -> Path:
    """A folder with a tiny encoder, in which ``regft fit`` takes its methods from a preset of few and short ones."""
    (root / "pipelines").mkdir(parents=True)
    (root / "pipelines" / "own_data.yaml").write_text(preset)
    (root / "params.yaml").write_text("execution: {executor: serial, device: cpu}\n")
    shutil.copytree(tiny_model_dir(root / "scratch", "bert"), root / "tiny")
    return root


def messages(text: str) -> str:
    """Text in which every run of white space is one blank."""
    return re.sub(r"\s+", " ", text)
