"""Inputs that change while a run is computed: the result is right for its key, or nothing is stored.

Every kind of input at every moment. What is left then, rows, runs and tokens, is run on: with the input as it was, and
as it is after the change. Both give the bits of runs in a fresh folder. Quick tests take every second kind once,
moments and methods in turn; the rest of the table is slow.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.adversary.driver import CHANGES, IN_THE_PROJECT, METHODS, PREPARED
from tests.runs.code_copy import with_code
from tests.runs.conftest import PARAMS, build, write_method
from tests.small_project import REPOSITORY

MOMENTS = (
    "while rows are made",
    "before planning",
    "before the start",
    "while the encoder loads",
    "in training",
    "between phases",
    "during one phase only",
    "in evaluation",
    "before the commit",
)
#: The loss of label smoothing, times what the code and a data file beside it say.
LISTED = '''
import json
from pathlib import Path

from regft_core.methods.label_smoothing import LabelSmoothing

SHARE = 1.0


class Listed(LabelSmoothing):
    """Label smoothing with factors from everywhere."""

    name = "listed"

    def task_loss(self, step, logits, labels):
        given = json.loads(Path(__file__).with_name("listed.json").read_text())
        return super().task_loss(step, logits, labels) * SHARE * given["share"]
'''
OPTIONS: dict[str, Any] = {"regularisers": {"listed": {"smoothing": 0.3}}}
REPEAT: dict[str, Any] = {"times": 2, "merge": "greedy", "vary": ["order", "noise", "head"]}
CONTENT: dict[str, dict[str, Any]] = {
    "single": OPTIONS,
    "two_phases": {"phases": {"first": OPTIONS, "finetune": {"start": "first", **OPTIONS}}},
    "soup": {"phases": {"finetune": {"data": {"split": 0.75}, "repeat": REPEAT, **OPTIONS}}},
    "tuned": OPTIONS,
}


def project(root: Path) -> Path:
    """A project with its own copy of the code, with a method that tests may edit."""
    grid = {"tasks": ["cue_sentence"], "sizes": [16], "seeds": [0]}
    training = {"epochs": 1, "batch_size": 8, "learning_rate": 1e-3}
    tuning = {"methods": {"tuned": {"training.learning_rate": [1e-3, 3e-3]}}, "split": 0.75}
    build(root, PARAMS | {"grid": grid, "training": training, "methods": ["vanilla"]})
    with_code(root)
    shipped = root / "regft_core" / "shipped" / "pipelines"
    shipped.unlink()  # it leads to the project's own, and a case edits copies of these
    shipped.symlink_to(REPOSITORY / "pipelines")
    for path in (root / "pipelines" / "methods").iterdir():
        path.unlink()  # a case reads every one
    (root / "regft_core" / "methods" / "listed.py").write_text(LISTED)
    (root / "regft_core" / "methods" / "listed.json").write_text('{"share": 1.0}')
    for name in METHODS:
        write_method(root, name, **CONTENT[name])
    params = yaml.safe_load((root / "params.yaml").read_text())
    params |= {"methods": list(METHODS), "tuning": tuning, "report": {"reference": "single"}}
    (root / "params.yaml").write_text(yaml.dump(params))
    return root


class Servers:
    """Processes with everything loaded: of the installation as it is, and of copies changed from the start."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._clean: dict[tuple[str, str, str], dict[str, Any]] = {}
        #: Before anything is changed.
        self._pristine = Path(shutil.copytree(home, home.with_name("pristine"), symlinks=True))

    def ask(self, installation: str = "", **request: str) -> dict[str, Any]:
        """Ask the process of an installation: ``""``, or the kind of input that was changed in it."""
        server = self._running.get(installation) or self._start(installation)
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        found: dict[str, Any] = json.loads(server.stdout.readline())
        return found

    def _start(self, installation: str) -> subprocess.Popen[str]:
        home = self.home
        if installation:
            home = home.with_name(installation.replace(" ", "_"))
            shutil.copytree(self._pristine, home, symlinks=True)
        environment = {
            **os.environ,
            "PYTHONPATH": str(home),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        driver = str(Path(__file__).with_name("driver.py"))
        command = [sys.executable, driver, *([installation] if installation else [])]
        server = subprocess.Popen(
            command, cwd=home, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        self._running[installation] = server
        return server

    def stop(self) -> None:
        for server in self._running.values():
            server.communicate()

    def again(self, do: str, kind: str, world: str, **request: str) -> dict[str, Any]:
        """Ask the process whose installation is that of a world."""
        installation = kind if world == "after" and kind not in IN_THE_PROJECT else ""
        return self.ask(installation, do=do, kind=kind, world=world, **request)

    def clean(self, kind: str, world: str, method: str, first: str = "", runs: Path | None = None) -> dict[str, Any]:
        """The runs of a world in a folder without caches, behind a ``first`` phase of ``runs`` where one is given."""
        named = ("" if world == "before" else kind, method, first)
        if named not in self._clean:
            root = self.folder("clean", kind)
            do = {"do": "again"}
            if runs is not None:
                [stored] = (runs / ".regft").rglob(first)
                target = root / stored.relative_to(runs)
                shutil.copytree(stored, target)
                do = {"do": "behind", "first": first}
            found = self.again(kind=kind, world=world, method=method, root=str(root), **do)
            assert "stored" in found, found
            self._clean[named] = found["stored"]
        return self._clean[named]

    def folder(self, name: str, kind: str) -> Path:
        """A project without runs; without rows, too, where these are made again."""
        root = self.home / "cases" / name
        self.ask(do="original", root=str(root))
        if name == "clean" and kind not in PREPARED:
            shutil.rmtree(root / "work")
        return root


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Run cases in forks of processes that have all loaded."""
    found = Servers(project(tmp_path_factory.mktemp("adversary") / "project"))
    yield found
    found.stop()


def cases() -> Iterator[Any]:
    for row, kind in enumerate(CHANGES):
        for column, moment in enumerate(MOMENTS):
            for number, method in enumerate(METHODS):
                quick = row % 2 == 0 and (row + column) % len(MOMENTS) == 0 and number == row // 2 % len(METHODS)
                marks = [] if quick else [pytest.mark.slow]
                yield pytest.param(kind, moment, method, marks=marks, id=f"{kind}, {moment}, {method}")


@pytest.mark.parametrize(("kind", "moment", "method"), cases())
def test_no_wrong_result_is_stored(servers: Servers, kind: str, moment: str, method: str) -> None:
    case = servers.folder("case", kind)
    found = servers.ask(do="attack", kind=kind, moment=moment, method=method, root=str(case))
    assert found["end"] in ("ended", "refused"), found.get("trace")
    if found["end"] == "refused":
        assert found["error"] in ("InputChanged", "CodeChanged", "PlanOutdated"), found["says"]
        assert "nothing was stored" in found["says"] or "nothing was written" in found["says"]
        assert "`dvc repro`" in found["says"]
    else:
        assert set(found["statuses"]) == {"ok"}
        assert found["in_key"], "an input that changes results is in no key"
    if moment == "before planning" and kind in IN_THE_PROJECT:
        assert found["end"] == "ended"

    left = servers.ask(do="contents", method=method, root=str(case))
    known: dict[str, Any] = {}
    for world in ("before", "after"):
        clean = servers.clean(kind, world, method)
        firsts = [key for key, run in left.items() if run["phase"] == "first" and key not in clean]
        # Whatever a first phase was made of, the phase after it is right if it started from that one.
        known |= {k: run for first in firsts for k, run in servers.clean(kind, world, method, first, case).items()}
        known |= clean
        folder = Path(shutil.copytree(case, case.with_name("on"), symlinks=True))
        on = servers.again("again", kind, world, method=method, root=str(folder))
        shutil.rmtree(folder)
        assert on.keys() == {"asked", "stored"}, on
        assert [on["stored"].get(key) for key in on["asked"]] == [clean.get(key) for key in on["asked"]]
    assert left.items() <= known.items()
