"""The files of a new project (``regft init``), few, each of which says what it is for; and of a new method.

``dvc.yaml``, ``.dvcignore``, ``.gitignore`` and ``params.yaml`` are those of the package's own repository
(``shipped.PROJECT``), so there is one text of each; of ``params.yaml`` the values that depend on the rows are set.
"""

from __future__ import annotations

import keyword
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from regft_core import __version__, shipped
from regft_core.catalogue import METHODS as REGULARISERS
from regft_core.catalogue import use_project
from regft_core.disk.files import TEMPORARY, explained, temporary_name, write_text
from regft_core.errors import ConfigError, Problem
from regft_core.fit.own_rows import Asked, read_own
from regft_core.names import listing
from regft_core.schema import NAME_LENGTH
from regft_core.schema.method import is_name
from regft_core.settings.document import edited, yaml_text
from regft_core.settings.yaml_paths import METHODS, TASKS, find, method_file, names, task_file

#: The validation set of a task of one's own rows, and the head of its YAML.
DEV = {"folds": 5, "repeats": 2}
HEAD = """\
# {why}.
# Rows of data/{task}. `folds`: all rows train and judge in turn, so a seed is one fold of one repeat.
# `columns: {{group: ...}}` keeps rows of one author or product together.
"""
#: What may lie in the folder already.
ALLOWED = (".git", ".venv", ".DS_Store")
WITHOUT_GIT = (
    "git is not on the PATH, so DVC works without it (no_scm in .dvc/config). Runs, reports and the run store are the "
    "same. There is no history: no `dvc params diff`, `dvc metrics diff` or `dvc exp`."
)


def make_project(folder: Path, rows: Asked | None, model: str = "") -> list[str]:
    """Make a project in a folder that is not there, or is empty; returns what the user should know.

    ``rows``: the first task; that of the main job without it. ``model``: the encoder; minilm when empty.

    Raises ConfigError before anything is written: the folder is in use, or the file or its columns are not there;
    StoreError for a folder that cannot be written.
    """
    task, size = ("film_polarity", "200") if rows is None else (rows.task_name, "full")
    read, wrong = (None, []) if rows is None else read_own(rows)
    problems = [*_in_use(folder), *wrong]
    if rows is not None and task in names(folder, TASKS):
        hint = "rename the file: the task gets its name"
        problems.append(rows.problem("name-taken", "", f"there is a task '{task}' already", hint))
    if problems:
        raise ConfigError(problems)
    files = {name: path.read_text(encoding="utf-8") for name, path in shipped.PROJECT.items()}
    files["params.yaml"] = _params_text(task, own=rows is not None, model=model)
    readme = (shipped.FOLDER / "project" / "readme.txt").read_text(encoding="utf-8")
    files["README.md"] = readme.format(name=folder.resolve().name, version=__version__, task=task, size=size)
    files[".dvc/.gitignore"] = "/config.local\n/tmp\n/cache\n"
    said = _git(folder)
    files[".dvc/config"] = "[core]\n    analytics = false\n" + ("    no_scm = true\n" if said else "")
    if rows is not None and read is not None:
        declared = read.task(rows, f"{task}/{rows.file.name}", DEV)
        files[task_file(task)] = HEAD.format(why=read.why, task=task) + yaml_text(declared)
    with explained(folder):
        new = temporary_name(folder / "project")
        (new / "data").mkdir(parents=True)
        for name, text in files.items():
            write_text(new / name, text)
        if rows is not None:
            (new / "data" / task).mkdir()
            shutil.copyfile(rows.file, new / "data" / task / rows.file.name)
        for entry in os.listdir(new):
            os.rename(new / entry, folder / entry)
        new.rmdir()
    return [*said, *(read.notes if read is not None else [])]


def _in_use(folder: Path) -> list[Problem]:
    if folder.exists() and not folder.is_dir():
        return [Problem("in-the-way", str(folder), 0, "", "is not a folder", "give the name of a new one")]
    names = set(os.listdir(folder)) - set(ALLOWED) if folder.exists() else set[str]()
    there = sorted(name for name in names if not name.startswith(TEMPORARY))
    hint = "give the name of a folder that is not there, or is empty; a project is run with `regft run`"
    return [Problem("folder-in-use", str(folder), 0, "", f"holds {listing(there)}", hint)] if there else []


def _git(folder: Path) -> list[str]:
    """Make the folder a repository if it is in none; return what to tell where DVC has to work without git."""
    if shutil.which("git") is None:
        return [WITHOUT_GIT]
    near = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    inside = subprocess.run(["git", "rev-parse", "--is-inside-work-tree"], cwd=near, capture_output=True, text=True)
    if inside.stdout.strip() == "true":
        return []
    folder.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(["git", "init", "-q"], cwd=folder, capture_output=True, text=True)
    return [f"git init failed: {made.stderr.strip()}", WITHOUT_GIT] if made.returncode else []


def _params_text(task: str, *, own: bool, model: str) -> str:
    """``params.yaml`` of a new project; with rows of one's own every row trains and judges in turn."""

    def change(params: Any) -> None:
        params["grid"]["tasks"][:] = [task]
        if own:
            params["grid"]["sizes"][:], params["grid"]["seeds"][:] = ["full"], range(10)
        if model:
            params["model"]["name"] = model

    return edited(shipped.PROJECT["params.yaml"], change)


def new_method(root: Path, name: str) -> list[Path]:
    """Write the files of a method ``name`` and return their paths, relative to ``root``. Raises ConfigError."""
    use_project(root)
    files = {
        Path("methods") / f"{name}.py": "method.txt",
        Path(method_file(name)): "method.yaml.txt",
        Path("tests") / f"test_{name}.py": "method_test.txt",
    }
    is_possible = is_name(name) and name.isidentifier() and not keyword.iskeyword(name)
    if not is_possible or yaml.safe_load(name) != name:  # a word of YAML: null, true
        hint = f"use at most {NAME_LENGTH} letters of a to z in lower case, digits and _, as in label_smoothing"
        problem = "name-not-possible", f"'{name}' names no method", hint
    elif name in REGULARISERS.names() or find(root, METHODS, name) is not None:
        problem = "name-taken", f"there is a method '{name}' already", "choose another name"
    elif there := [str(path) for path in files if (root / path).exists()]:
        problem = "name-taken", f"{there[0]} is there already", "choose another name, or remove it"
    else:
        for path, template in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            text = (shipped.FOLDER / "project" / template).read_text(encoding="utf-8")
            write_text(root / path, text.replace("NAME", name).replace("CLASS", name.title().replace("_", "")))
        return list(files)
    code, message, hint = problem
    raise ConfigError([Problem(code, f"methods/{name}.py", 0, "", message, hint)])
