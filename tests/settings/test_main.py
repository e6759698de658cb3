from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stages import config as main

ROOT = Path(__file__).resolve().parents[2]

REAL = {
    # Of this project's own: programs of their own see the shipped method of that name.
    "pipelines/methods/vanilla.yaml": "override: true\nregularisers: {}\ntraining: {}\n",
    "pipelines/methods/noise.yaml": "controlled_by: short\ntraining: {epochs: 3}\n",
    "pipelines/methods/short.yaml": "training: {epochs: 1}\ncontrol_for: noise\ndiffers_in: [training]\n",
    "params.yaml": """\
model: {name: minilm}
grid: {tasks: [opinions], sizes: [100], seeds: [0, 1]}
methods: [vanilla, noise]  # two
training: {epochs: 2}
subsample: {}
report: {}
""",
}


@pytest.fixture(autouse=True)
def _nothing_is_shipped() -> None:
    """Here everything is, as for users."""


def python(code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *code.split("\0")], capture_output=True, text=True, env=environment)


def test_controls_are_listed_and_written(build: Any, capsys: Any) -> None:
    control = "training: {epochs: 1}\ncontrol_for: noise\ndiffers_in: [regularisers, training]\n"
    root = build({**REAL, "pipelines/methods/short.yaml": control})
    before = (root / "params.yaml").read_text()
    assert main.main(["controls", "--root", str(root)]) == 0
    assert (
        "'noise' is listed without its control 'short' (differs by: training.epochs is 1 instead of 3)"
        in capsys.readouterr().out
    )
    assert (root / "params.yaml").read_text() == before
    assert main.main(["controls", "--write", "--root", str(root)]) == 0
    assert "short (control for noise)" in capsys.readouterr().out
    assert (root / "params.yaml").read_text() == before.replace("noise]", "noise, short]")
    assert main.main(["controls", "--root", str(root)]) == 0
    assert "every control that is declared for a listed method is listed" in capsys.readouterr().out


def test_a_control_that_is_wrong_itself_is_not_written(build: Any, capsys: Any) -> None:
    control = "description: x\ntraining: {epochs: -1}\ncontrol_for: noise\ndiffers_in: [regularisers]\n"
    root = build({**REAL, "pipelines/methods/short.yaml": control})
    before = (root / "params.yaml").read_bytes()
    assert main.main(["controls", "--write", "--root", str(root)]) == 2
    assert "short.yaml:2: training.epochs" in capsys.readouterr().err
    assert (root / "params.yaml").read_bytes() == before


@pytest.mark.parametrize("command", ["", "plan", "controls"])
def test_nothing_imports_torch(build: Any, command: str) -> None:
    arguments = [*([command] if command else []), "--root", str(build(REAL))]
    code = (
        "import sys; from stages.config import main; "
        f"assert main({arguments!r}) == 0; "
        "heavy = {'torch', 'transformers', 'datasets', 'mlflow', 'scipy', 'pandas', 'numpy'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    done = python(f"-c\0{code}")
    assert done.returncode == 0, done.stderr
