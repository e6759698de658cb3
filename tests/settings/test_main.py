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


def test_a_valid_project(build: Any, capsys: Any) -> None:
    assert main.main(["--root", str(build(REAL))]) == 0
    output = capsys.readouterr()
    assert "configuration is valid: 2 methods x 1 task x 1 size = 2 cells, 4 runs (2 seeds)" in output.out
    assert "warning: params.yaml:2: 2 seeds" in output.err


def test_a_wrong_project_exits_with_2_and_no_traceback(build: Any, capsys: Any) -> None:
    root = build({**REAL, "pipelines/methods/noise.yaml": "description: x\ntrainin: {}\n"})
    for command in ([], ["validate"], ["plan"], ["controls"], ["controls", "--write"]):
        assert main.main([*command, "--root", str(root)]) == 2
        output = capsys.readouterr()
        assert output.out == ""
        assert "regft: configuration: 1 problem" in output.err
        assert "pipelines/methods/noise.yaml:2: trainin: unknown key 'trainin'" in output.err
        assert "Traceback" not in output.err


def test_options_of_builtin_tasks_are_checked(build: Any, capsys: Any) -> None:
    task = """\
source: {kind: builtin, generator: cue_sentence, options: {agreemen: 0.5}}
splits: {train: train, dev: dev}
columns: {text: text}
labels: [negative, positive]
metrics: [accuracy]
primary: accuracy
"""
    assert main.main(["--root", str(build({**REAL, "pipelines/tasks/opinions.yaml": task}))]) == 2
    assert "source.options.agreemen: unknown key" in capsys.readouterr().err


def test_the_plan(build: Any, capsys: Any) -> None:
    assert main.main(["plan", "--root", str(build(REAL))]) == 0
    output = capsys.readouterr().out
    assert "vanilla-opinions-100" in output
    assert "4 of 4 runs to train, about 70 plain steps" in output


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


def test_validation_imports_no_package_that_computes(build: Any) -> None:
    methods = {f"pipelines/methods/m{i}.yaml": "training: {}\n" for i in range(25)}
    params = REAL["params.yaml"].replace("noise]", "noise, " + ", ".join(f"m{i}" for i in range(25)) + "]")
    root = build({**REAL, **methods, "params.yaml": params})
    done = python(f"-X\0importtime\0-m\0stages.config\0--root\0{root}")
    assert done.returncode == 0, done.stderr
    assert "27 methods" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "pydantic" in imported
    assert not imported & {"torch", "numpy", "scipy", "transformers", "datasets", "mlflow", "dvc"}


def test_the_plan_says_what_to_run_first_where_no_spread_was_seen(build: Any, capsys: Any) -> None:
    assert main.main(["plan", "--detect", "1.0", "--root", str(build(REAL))]) == 0
    assert "no spread seen yet for noise - vanilla on opinions-100" in capsys.readouterr().out
