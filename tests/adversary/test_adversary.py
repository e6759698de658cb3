"""Inputs that change while a run is computed: the result is right for its key, or nothing is stored.

Every kind of input at every moment. Quick tests take the methods in turn, so that each kind and each moment meets all
of them; the rest of the table is slow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.adversary.driver import CHANGES, IN_THE_PROJECT, METHODS
from tests.runs.code_copy import with_code
from tests.runs.conftest import PARAMS, build, write_method
from tests.small_project import REPOSITORY

MOMENTS = (
    "before planning",
    "before the start",
    "while the encoder loads",
    "in training",
    "between phases",
    "during one phase only",
    "in evaluation",
    "before the commit",
)
#: The loss of label smoothing, times what the code, a data file beside it, and a package say.
LISTED = '''
import json
from pathlib import Path

import adversary_kit

from regft_core.methods.label_smoothing import LabelSmoothing

SHARE = 1.0


class Listed(LabelSmoothing):
    """Label smoothing with factors from everywhere."""

    name = "listed"

    def task_loss(self, step, logits, labels):
        given = json.loads(Path(__file__).with_name("listed.json").read_text())
        return super().task_loss(step, logits, labels) * SHARE * given["share"] * adversary_kit.FACTOR
'''
OPTIONS: dict[str, Any] = {"regularisers": {"listed": {"smoothing": 0.3}}}
REPEAT: dict[str, Any] = {"times": 2, "merge": "greedy", "vary": ["order", "noise", "head"]}
CONTENT: dict[str, dict[str, Any]] = {
    "single": OPTIONS,
    "two_phases": {"phases": {"first": OPTIONS, "finetune": {"start": "first", **OPTIONS}}},
    "soup": {"phases": {"finetune": {"data": {"split": 0.75}, "repeat": REPEAT, **OPTIONS}}},
    "tuned": OPTIONS,
}
Ask = Callable[..., dict[str, Any]]


def project(root: Path) -> Path:
    """A project with its own copy of the code, with a method and a package that tests may edit."""
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
    metadata = root / "kit" / "adversary_kit-1.0.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: adversary_kit\nVersion: 1.0\n")
    (root / "kit" / "adversary_kit.py").write_text("FACTOR = 1.0\n")
    for name in METHODS:
        write_method(root, name, **CONTENT[name])
    params = yaml.safe_load((root / "params.yaml").read_text())
    params |= {"methods": list(METHODS), "tuning": tuning, "report": {"reference": "single"}}
    (root / "params.yaml").write_text(yaml.dump(params))
    return root


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Run a case in a fork of a process that has all loaded."""
    home = project(tmp_path_factory.mktemp("adversary") / "project")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(home), str(home / "kit")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    command = [sys.executable, str(Path(__file__).with_name("driver.py"))]
    with subprocess.Popen(
        command, cwd=home, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"

        def asked(**case: str) -> dict[str, Any]:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps(case) + "\n")
            server.stdin.flush()
            found: dict[str, Any] = json.loads(server.stdout.readline())
            return found

        yield asked
        server.stdin.close()


def cases() -> Iterator[Any]:
    for row, kind in enumerate(CHANGES):
        for column, moment in enumerate(MOMENTS):
            for number, method in enumerate(METHODS):
                marks = [] if number == (row + column) % len(METHODS) else [pytest.mark.slow]
                yield pytest.param(kind, moment, method, marks=marks, id=f"{kind}, {moment}, {method}")


@pytest.mark.parametrize(("kind", "moment", "method"), cases())
def test_no_wrong_result_is_stored(ask: Ask, kind: str, moment: str, method: str) -> None:
    found = ask(kind=kind, moment=moment, method=method)
    assert found["end"] in ("ended", "refused"), found.get("trace")
    assert found["wrong"] == []
    assert found["unknown"] == []
    if found["end"] == "refused":
        assert found["error"] in ("InputChanged", "CodeChanged", "PlanOutdated"), found["says"]
        assert "nothing was stored" in found["says"]
        assert "`dvc repro`" in found["says"]
    else:
        assert set(found["statuses"]) == {"ok"}
        assert found["in_key"], "an input that changes results is in no key"
    if moment == "before planning" and kind in IN_THE_PROJECT:
        assert found["end"] == "ended"
