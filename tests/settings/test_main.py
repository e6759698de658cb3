from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.small_project import stage

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


def test_controls_are_listed_and_written(build: Any) -> None:
    control = "training: {epochs: 1}\ncontrol_for: noise\ndiffers_in: [regularisers, training]\n"
    root = build({**REAL, "pipelines/methods/short.yaml": control})
    before = (root / "params.yaml").read_text()
    missing = "'noise' has the control 'short' (differs by: training.epochs is 1 instead of 3)"
    assert missing in stage(root, "controls").stdout
    assert (root / "params.yaml").read_text() == before
    assert "short (control for noise)" in stage(root, "controls", "--write").stdout
    assert (root / "params.yaml").read_text() == before.replace("noise]", "noise, short]")
    assert "every control that is declared for a listed method is listed" in stage(root, "controls").stdout


def test_a_control_that_is_wrong_itself_is_not_written(build: Any) -> None:
    control = "description: x\ntraining: {epochs: -1}\ncontrol_for: noise\ndiffers_in: [regularisers]\n"
    root = build({**REAL, "pipelines/methods/short.yaml": control})
    before = (root / "params.yaml").read_bytes()
    assert "short.yaml:2: training.epochs" in stage(root, "controls", "--write").stderr
    assert (root / "params.yaml").read_bytes() == before


def test_nothing_imports_torch(build: Any) -> None:
    code = (
        "import sys; from stages import cli; sys.argv = ['regft']; "
        "[cli.dispatch(command, []) for command in ('check', 'plan', 'controls')]; "
        "heavy = {'torch', 'transformers', 'datasets', 'mlflow', 'scipy', 'pandas'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=build(REAL), capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
