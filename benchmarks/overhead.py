"""What regft costs beside training: CPU seconds of each stage of a grid, without training and prediction.

    python benchmarks/overhead.py --grid 25 2 2 --seeds 10     # methods, tasks, sizes: 100 cells

Every fifth method has a phase before fine-tuning. A task has 2,000 training rows and three evaluation sets of 300. A
run stores two numbers as its weights, and logits drawn from its seed; all else is real, in one process.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STAGES = ("subsample", "search", "finetune", "evaluate")
ROWS = {"train": 2000, "dev": 300, "shop": 300, "press": 300}
WORDS = ("film", "story", "actor", "the", "was", "it")


def build(root: Path, grid: tuple[int, int, int], seeds: int) -> None:
    """Write a project of so many methods, tasks and sizes, with a tiny encoder."""
    import yaml

    from tests.small_project import TASK
    from tests.tiny import tiny_model_dir

    count, tasks, sizes = grid
    (root / "pipelines" / "methods").mkdir(parents=True)
    (root / "pipelines" / "tasks").mkdir()
    tiny_model_dir(root / "scratch", "bert").rename(root / "encoder")
    for name in (names := [f"task{number}" for number in range(tasks)]):
        (root / "data" / name).mkdir(parents=True)
        for place, (split, rows) in enumerate(ROWS.items()):
            texts = (" ".join(WORDS[i * k % 6] for k in range(2, 9)) + f" {name} {place} {i}" for i in range(rows))
            lines = [(text, ("bad", "good")[i % 2]) for i, text in enumerate(texts)]
            with (root / "data" / name / f"{split}.csv").open("w", newline="") as file:
                csv.writer(file).writerows([("review", "verdict"), *lines])
        files = {split: f"{name}/{split}.csv" for split in ROWS}
        ood = {split: {"source": {"kind": "files"}, "split": files[split]} for split in ("shop", "press")}
        task = TASK | {"splits": {split: files[split] for split in ("train", "dev")}, "ood": ood}
        (root / "pipelines" / "tasks" / f"{name}.yaml").write_text(yaml.safe_dump(task))
    for number, name in enumerate(methods := [f"method{number}" for number in range(count)]):
        part: dict[str, Any] = {"regularisers": {"hype": {"scale": 1e-5 * (number + 1)}}}
        if number % 5 == 0:
            part = {"phases": {"early": {"training": {"max_steps": 1 + number}}, "finetune": part}}
        path = root / "pipelines" / "methods" / f"{name}.yaml"
        path.write_text(yaml.safe_dump({"description": "stub", **part}))
    params = {
        "model": {"name": "encoder", "max_length": 32},
        "grid": {"tasks": names, "sizes": [50 * (i + 1) for i in range(sizes)], "seeds": list(range(seeds))},
        "methods": methods, "subsample": {}, "training": {"epochs": 3}, "trackers": [],
        "execution": {"executor": "serial", "device": "cpu"}, "report": {"reference": methods[-1]},
    }  # fmt: skip
    (root / "params.yaml").write_text(yaml.safe_dump(params))


def leave_out_training() -> None:
    import numpy as np
    import torch

    from regft_core.runs import training_run
    from regft_core.runs.finished_model import FinishedModel
    from regft_core.training.loop import Progression
    from regft_core.training.stack import Stack

    def train(inputs: Any, **_: Any) -> Any:
        done, no_model = Progression(), SimpleNamespace(model=None)
        done.curve.extend((step, step / 16, 0.7, 1e-4, 1.0) for step in range(32))
        return training_run.TrainedPhase(no_model, Stack((), inputs.setting), progression=done)  # type: ignore[arg-type]

    def answer(self: Any, examples: Any, on_batch: Any = None) -> Any:
        return np.random.default_rng(self._run.job.seed).normal(size=(len(examples), 2)).astype(np.float32)

    training_run.train = train
    training_run.outcome_tensors = lambda *_, **__: {"weights": {"w": torch.zeros(2)}}
    FinishedModel.answer = answer  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grid", type=int, nargs=3, default=(25, 2, 2), metavar=("METHODS", "TASKS", "SIZES"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if options.stage:
        from regft_core.stages.cli import main as run

        leave_out_training()
        sys.exit(run([options.stage]))
    spent, environment = {}, os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder, "project"), tuple(options.grid), options.seeds)
        for stage in STAGES:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, __file__, "--stage", stage]
            subprocess.run(command, cwd=Path(folder, "project"), env=environment, stdout=subprocess.PIPE, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent[stage] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(", ".join(f"{stage} {seconds:.1f}" for stage, seconds in {**spent, "all": sum(spent.values())}.items()))


if __name__ == "__main__":
    main()
