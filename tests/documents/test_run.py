"""Every command and Python block of the documents runs, in miniature, beginning in an empty folder; so do notebooks.

``miniature.yaml`` has all that differs from the pages: a tiny encoder, few rows, what cannot run and why.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.documents.test_typed import HELPS, PAGES, ROOT, Line, blocks, typed
from tests.promises.kit import fit_folder
from tests.promises.test_21_fit import PRESET
from tests.small_project import REPOSITORY, python, review, write_csv
from tests.tiny import tiny_model_dir

TABLE: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("miniature.yaml").read_text(encoding="utf-8"))
#: ``benchmarks/README.md`` needs real data and hours.
RUN = [page for page in (*PAGES, *HELPS) if page != "benchmarks/README.md"]


def lines(page: str) -> list[Line]:
    """The lines of a page that run, and its blocks of Python; what the README has runs there."""
    before = set() if page == "README.md" else {line.text for line in typed("README.md")}
    found = [line for line in typed(page) if excepted(line) is None and line.text not in before]
    actions = TABLE["python"].get(page, [])
    found += [Line(page, number, action) for (number, _), action in zip(blocks(page, "python"), actions, strict=True)]
    return sorted(found, key=lambda line: line.number)


def excepted(line: Line) -> str | None:
    """The exception that a line falls under."""
    return next((start for start in TABLE["exceptions"] if re.match(start, in_miniature(line.text))), None)


def in_miniature(text: str) -> str:
    for said, runs in TABLE["replace"].items():
        text = text.replace(said, runs)
    return text


def late(line: Line) -> bool:
    return line.page == "README.md" and line.text.startswith(tuple(TABLE["late"]))


def walk(folder: Path, wanted: Iterable[Line], before: str = "") -> None:
    """Run lines in one shell, as a reader does; fails with the line that failed and what it printed."""
    python_blocks = {(page, number): text for page in TABLE["python"] for number, text in blocks(page, "python")}
    script = ["set -euo pipefail", before]
    for line in wanted:
        block = python_blocks.get((line.page, line.number))
        if block is not None:
            file = folder / f"block-{line.number}.py"
            file.write_text(f"{in_miniature(block)}\n")
            script.append(f"FILE='{file}'")
        # `set -e` lets a list of `&&` go on that failed before its end.
        script += [f"echo '== {line.page}:{line.number} '$SECONDS", in_miniature(line.text), "[ $? = 0 ] || exit 1"]
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "regft").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m regft_core "$@"\n')
    (programs / "regft").chmod(0o755)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    names = {"GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@t", "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@t"}
    environment = os.environ | names | {"PYTHONPATH": str(ROOT), "PORT": port, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    environment["PATH"] = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    log = folder / "log"
    with log.open("w") as output:
        shell = subprocess.Popen(
            ["bash", "-c", "\n".join(script)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = shell.wait(timeout=1200)
        finally:  # end what a page has started and not ended: a server
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    assert code == 0, log.read_text()[-4000:]


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a few files of rows; the README's walk makes a project in it."""
    folder = tmp_path_factory.mktemp("documents")
    shutil.copytree(tiny_model_dir(folder / "scratch", "bert"), folder / "tiny")
    shutil.rmtree(folder / "scratch")
    names = ["bad", "good"]
    rows = [(f"{review(n)} {n}", names[n % 2]) for n in range(40)]
    write_csv(folder / "reviews.csv", [("review", "verdict"), *rows])
    write_csv(folder / "new.csv", [("review",), *((text,) for text, _ in rows[:5])])
    write_csv(folder / "unlabelled.csv", [("review",), *((f"{text} or",) for text, _ in rows)])
    pairs = [(f"{review(n)} {n}", f"{review(n + n % 3)} {n}", f"product {n % 9}", names[n % 2]) for n in range(40)]
    write_csv(folder / "pairs.csv", [("one", "other", "product", "verdict"), *pairs])
    (folder / "reviews.jsonl").write_text(
        "".join(f'{{"id": {n}, "review": "{text}"}}\n' for n, (text, _) in enumerate(rows))
    )
    (folder / "own_data.yaml").write_text(PRESET)
    walk(folder, [line for line in lines("README.md") if not late(line)])
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in RUN if lines(page)])
def test_a_page_runs(page: str, start: Path, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    # MLflow's database knows where its files are; a copy makes its own.
    shutil.copytree(start / "reviews", folder, symlinks=True, ignore=shutil.ignore_patterns("mlflow.db*"))
    wanted = [line for line in lines(page) if page != "README.md" or late(line)]
    walk(folder, wanted, TABLE["before"].get(page, ""))


def test_every_difference_from_the_pages_is_used() -> None:
    everything = [line for page in RUN for line in typed(page)]
    assert set(map(excepted, everything)) == {None, *TABLE["exceptions"]}
    python = [Line(page, 0, text) for page in TABLE["python"] for _, text in blocks(page, "python")]
    text = "\n".join(line.text for line in (*everything, *python))
    for said, runs in TABLE["replace"].items():
        assert said in text, said
        text = text.replace(said, runs)
    assert {page for page in RUN if blocks(page, "python")} == {*TABLE["python"]}
    assert {*TABLE["before"]} <= {*RUN}


# ---------------------------------------------------------------------------------------------------------- notebooks


EXAMPLES = REPOSITORY / "examples"
#: Notebook -> a line that it prints.
NOTEBOOKS = {"from_rows_to_a_model": r"^(0\.\d+|1\.0)$", "compare_methods": r"\bgradient_noise\b.*\bvanilla\b"}


def script(cell: str) -> str:
    """The code of a cell; its last value is printed, which a notebook shows."""
    tree = ast.parse(cell)
    if isinstance(last := tree.body[-1], ast.Expr):
        last.value = ast.Call(ast.Name("print", ast.Load()), [last.value], [])
    return ast.unparse(ast.fix_missing_locations(tree))


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(tmp_path: Path, name: str) -> None:
    cells = json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    code = "\n".join(script("".join(cell["source"])) for cell in cells if cell["cell_type"] == "code")
    for variable, value in {"MODEL": repr(str(tmp_path / "tiny")), "MINUTES": "1.3"}.items():
        code = re.sub(rf"(?m)^{variable} = .*", f"{variable} = {value}", code)
    fit_folder(tmp_path, PRESET)
    shutil.copy(EXAMPLES / "reviews.csv", tmp_path)
    done = python(tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr
    assert re.search(NOTEBOOKS[name], done.stdout, re.MULTILINE), done.stdout
