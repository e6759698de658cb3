"""What regft and DVC cost beside the training: a whole build with training and prediction left out, in CPU seconds.

    python benchmarks/overhead.py --grid 25x4x2 --seeds 10     # 25 methods, 4 tasks, 2 sizes: 200 cells

A grid of n cells is methods x tasks x sizes on a tiny encoder and the built-in task under several names; every
fifth method has a phase before fine-tuning. Optimiser steps and forward passes are left out (a run stores two
numbers as its weights, and logits drawn from its seed); everything else is real: configuration, data, keys, the run
store with its files, evaluation, the lines of each stage, DVC, the report, MLflow. Measured in a temporary directory:
`dvc repro` up to the report with its stages and DVC's own part, the report, a first sync of MLflow into an empty
database (measured by itself, and taken from the report, which has one too), a second `dvc repro` that finds nothing to
do, the plan, the dry run, and the second sync. One line says what a cell and a run cost.

Disk, below TMPDIR: 0.5 MB and 30 files a run, 5 GB for 1,000 cells with ten seeds, which take about half an hour of one
core (`--grid 25x8x5`); they go at the end, also when a command fails.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent))
from commands import run, stage_seconds, stage_with, stages_by

ROOT = Path(__file__).resolve().parents[1]


def build(root: Path, grid: tuple[int, int, int], seeds: int, executor: str) -> None:
    """Write a project of so many methods, tasks and sizes under git and DVC."""
    sys.path.insert(0, str(ROOT))
    from tests.tiny import tiny_model_dir

    methods, tasks, sizes = grid
    for name in ("pipelines", "data"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("dvc.lock"))
    for name in ("dvc.yaml", ".dvcignore", ".gitignore"):
        shutil.copy(ROOT / name, root / name)
    shutil.copytree(tiny_model_dir(root / "scratch", "bert"), root / "models" / "tiny")
    shutil.rmtree(root / "scratch")
    declared = yaml.safe_load((root / "pipelines/tasks/cue_sentence.yaml").read_text())
    names = [f"cue_{i}" for i in range(tasks)]
    for name in names:
        (root / f"pipelines/tasks/{name}.yaml").write_text(yaml.safe_dump(declared))
    listed = [f"m{i:02}" for i in range(methods)]
    for i, name in enumerate(listed):
        method: dict[str, Any] = {"description": "stub", "regularisers": {"hype": {"scale": 1e-5 * (i + 1)}}}
        if i % 5 == 0:
            fine = {"regularisers": method.pop("regularisers")}
            method["phases"] = {"early": {"training": {"max_steps": 1 + i}}, "finetune": fine}
        (root / f"pipelines/methods/{name}.yaml").write_text(yaml.safe_dump(method))
    params = {
        "model": {"name": "models/tiny", "max_length": 32},
        "grid": {"tasks": names, "sizes": [50 * (i + 1) for i in range(sizes)], "seeds": list(range(seeds))},
        "methods": listed,
        "subsample": {},
        "training": {"epochs": 3},
        "execution": {"executor": executor, "device": "cpu", "workers": 1 if executor == "serial" else 2},
        "report": {"reference": listed[-1], "bootstrap_samples": 200},
        "store": {"path": ".regft", "budget_gb": 20},
    }
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    run(root, "git", "init", "-q")
    run(root, sys.executable, "-m", "dvc", "init", "-q")
    run(root, sys.executable, "-m", "dvc", "config", "core.analytics", "false")


def install_stubs() -> None:
    """Runs take no optimiser step and models answer by chance; what is measured is the rest."""
    import numpy as np
    import torch

    from regft_core.runs import run_phase, training_run
    from regft_core.runs.finished_model import FinishedModel as Answering
    from regft_core.training.loop import Progression
    from regft_core.training.stack import Stack

    def train(inputs: training_run.PhaseInputs, **_: Any) -> training_run.TrainedPhase:
        done = Progression()
        done.curve.extend((step, step / 16, 0.7, 1e-4, 1.0) for step in range(32))
        stack = Stack((), inputs.setting())
        no_model = SimpleNamespace(model=None)
        return training_run.TrainedPhase(no_model, stack, done, 0.0, None, None)  # type: ignore[arg-type]

    def tensors(*_: Any, **__: Any) -> dict[str, dict[str, torch.Tensor]]:
        return {"weights": {"w": torch.zeros(2)}}

    def answer(self: Answering, examples: Any, on_batch: Any = None) -> Any:
        return np.random.default_rng(self._context.job.seed).normal(size=(len(examples), 2)).astype(np.float32)

    training_run.train, training_run.outcome_tensors = train, tensors
    run_phase.numerics = lambda _: {"attention": "sdpa", "parameters": "float32"}  # type: ignore[assignment]
    Answering.answer = answer  # type: ignore[method-assign]


def stub_job(job: Any, *, device: str) -> str:
    """``run_job`` with stubs, in whatever process an executor calls it."""
    from regft_core.grid.compute import run_job

    install_stubs()
    return run_job(job, device=device)


def measure(grid: tuple[int, int, int], seeds: int, executor: str, keep: bool, report: bool) -> dict[str, float]:
    """CPU seconds of every part of a build, and its wall clock."""
    # Of every command below, and of the workers that import the stubs from this file.
    os.environ |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'benchmarks'}", "OMP_NUM_THREADS": "1"}
    root = Path(tempfile.mkdtemp(prefix="regft-overhead-"))
    python, dvc = sys.executable, (sys.executable, "-m", "dvc")
    try:
        build(root, grid, seeds, executor)
        stages_by(Path(__file__).resolve(), root)
        found: dict[str, float] = {}
        began = time.monotonic()
        build_seconds, _ = run(root, *dvc, "repro", "evaluate")
        found["wall clock"] = time.monotonic() - began
        found |= stage_seconds(root)
        found["plan"], _ = run(root, python, "-m", "stages.plan")
        found["DVC"] = build_seconds - sum(found[name] for name in ("search", "finetune", "evaluate", "plan"))
        found["disk (MB)"] = sum(path.lstat().st_size for path in root.rglob("*")) / 1e6
        if report:
            found["report"], _ = run(root, *dvc, "repro")
            for path in root.glob("mlflow.db*"):
                path.unlink()
            shutil.rmtree(root / "mlartifacts")
            found["first sync"], said = run(root, python, "-m", "regft_core.tracking", "sync")
            found["report"] -= found["first sync"]
            made = re.search(r"(\d+) runs created", said)
            found["runs in MLflow"] = float(made[1]) if made else 0.0
            found["second sync"], _ = run(root, python, "-m", "regft_core.tracking", "sync")
        found["no-op"], said = run(root, *dvc, "repro", *(() if report else ("evaluate",)))
        if len(re.findall(r"Running stage", said)) > 1:
            raise SystemExit(f"an unchanged repro ran stages:\n{said[-2000:]}")
        found["dry run"], _ = run(root, python, "-m", "stages.config", "plan")
        return found | {"build": build_seconds}
    finally:
        if keep:
            print(f"kept in {root}")
        else:
            shutil.rmtree(root, ignore_errors=True)


def _grid(text: str) -> tuple[int, int, int]:
    methods, tasks, sizes = map(int, text.split("x"))
    return methods, tasks, sizes


def main() -> None:
    """Measure and print one line for each size of grid."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grid", type=_grid, nargs="+", default=[(6, 2, 2)], metavar="METHODSxTASKSxSIZES")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--executor", default="serial", help="of the stages (CPU seconds leave out Ray's workers)")
    parser.add_argument("--without-report", action="store_true", help="nor MLflow, which takes long for many runs")
    parser.add_argument("--keep", action="store_true", help="leave the project for a look at it")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.stage:
        import overhead  # by its name: workers import the job from there

        stage_with(given.stage, overhead.stub_job)
        return
    for grid in given.grid:
        cells = math.prod(grid)
        found = measure(grid, given.seeds, given.executor, given.keep, not given.without_report)
        total = found.pop("build")
        print(
            f"{'x'.join(map(str, grid))} = {cells} cells x {given.seeds} seeds: {total:.0f} CPU-s to build "
            f"({total / cells:.2f} a cell, "
            f"{1000 * total / cells / given.seeds:.0f} ms a run)"
        )
        print("  " + ", ".join(f"{name} {value:.1f}" for name, value in found.items()), flush=True)
        if given.without_report:
            continue
        runs = max(1.0, found["runs in MLflow"])
        print(
            f"  MLflow: first sync {1000 * found['first sync'] / runs:.1f} ms a run, second "
            f"{found['second sync']:.1f} s, {1000 * found['second sync'] / runs:.1f} s for 1,000 runs"
        )


if __name__ == "__main__":
    main()
