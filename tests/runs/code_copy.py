"""A project with its own copy of the code, which tests may edit; everything runs in processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.runs.conftest import REPOSITORY

#: Computes every run's keys and the plan, once as the code is and once after each edit. Each time in a new
#: process, forked from one that has loaded the third parties.
DRIVER = """
import json, os, sys
from pathlib import Path
import numpy, pydantic, yaml  # noqa
def say():
    from regft_core.runs.context import Context
    from regft_core.runs.job import Job
    from regft_core.runs.project import open_project
    from regft_core.runs import code
    from regft_core.runs.code import code_of
    from regft_core.runs.hashed_code import scope_of
    assert Path(code.__file__).is_relative_to(Path.cwd()), code.__file__
    project = open_project(Path.cwd())
    runs, packages = {}, {}
    for name, method in project.methods.items():
        context = Context(Job(".", name, "cue_sentence", "24", 0), project=project)
        runs[name] = [context.keys.of(phase.name) for phase in method.phases]
        packages[name] = context.keys.identity("finetune").get("packages", {})
    metrics, source = project.tasks["cue_sentence"].metrics, context.source
    kinds = ["classification"]
    stages = {name: code_of(scope_of(name, kinds=kinds)).sha256 for name in ("dataset", "subsample")}
    stages["evaluate"] = code_of(scope_of("evaluate", kinds=kinds, metrics=metrics, source=source)).sha256
    stages["report"] = code_of(scope_of("report", metrics=metrics)).sha256
    assert "torch" not in sys.modules
    return {"runs": runs, "stages": stages, "packages": packages}

def fresh():
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            answer = say()
        except BaseException as error:
            answer = {"error": repr(error)}
        with os.fdopen(write, "w") as file:
            json.dump(answer, file)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        answer = json.load(file)
    os.wait()
    return answer

answers = [fresh()]
for edits in json.load(sys.stdin):
    missing, before = [], {}
    for name, old, new in edits:
        path = Path(name)
        text = path.read_text() if path.exists() else ""
        before.setdefault(path, text if path.exists() else None)
        missing += [f"{name} has no {old!r}"] * (old not in text)
        path.write_text(text.replace(old, new, 1) if old else text + new)
    answers.append({"error": missing} if missing else fresh())
    for path, text in before.items():
        path.unlink() if text is None else path.write_text(text)
print(json.dumps(answers))
"""


def with_code(project: Path) -> Path:
    """Give a project its own copy of the code."""
    for name in ("regft_core", "stages"):
        # The links to what is shipped lead to the project's own files then.
        shutil.copytree(REPOSITORY / name, project / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return project


def python(root: Path, program: str, *arguments: str, given: Any = None, **environment: str) -> str:
    """Run a program with the project's own code; returns what it printed."""
    done = run(root, program, *arguments, given=given, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run(
    root: Path, program: str, *arguments: str, given: Any = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    how = ["-m", program.removeprefix("-m ")] if program.startswith("-m ") else ["-c", program]
    return subprocess.run(
        [sys.executable, *how, *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", **environment},
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=900,
    )


def answers(root: Path, *edits: Sequence[tuple[str, str, str]], **environment: str) -> list[dict[str, Any]]:
    """Keys and facts as the code is, and after each group of ``edits`` (file, old text, new text) alone.

    An empty old text appends, and makes a file that is not there.
    """
    found: list[dict[str, Any]] = json.loads(python(root, DRIVER, given=edits, **environment))
    return found
