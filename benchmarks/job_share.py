"""How much of the main job is training: CPU seconds of what ``make repro`` does on an installed tree.

    python benchmarks/job_share.py > benchmarks/results/job_share.txt
    python benchmarks/job_share.py --set execution.workers=1 execution.threads=2   # one worker with two threads

The job is that of params.yaml as committed, in a clone of this repository under TMPDIR, with its executor and workers.
Every worker counts the CPU seconds that it spends in training (the loop and what a phase fits), and in forward passes
that answer for the evaluation sets; the rest of the commands is what the pipeline costs: imports, data, keys,
loading, files, scores, DVC, report, MLflow.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from functools import cache, wraps
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent))
from commands import run, stage_with, stages_by

ROOT = Path(__file__).resolve().parents[1]
#: Where the workers write what they counted: one file a process.
COUNTS = "REGFT_JOB_SHARE_COUNTS"


class Counter:
    """CPU seconds of this process by what it did; what is counted inside something counted is not counted twice."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inside = False

    def counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*args: Any, **keywords: Any) -> Any:
            if self._inside:
                return function(*args, **keywords)
            self._inside, began = True, time.process_time()
            try:
                return function(*args, **keywords)
            finally:
                self._inside = False
                self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - began

        return timed

    def write(self) -> None:
        (Path(os.environ[COUNTS]) / f"{os.getpid()}.json").write_text(json.dumps(self.seconds))


@cache
def counter() -> Counter:
    """The counter of this process, with what it counts in place."""
    from regft_core.runs.finished_model import FinishedModel
    from regft_core.training.loop import Loop
    from regft_core.training.stack import Stack

    found = Counter()
    Loop.train = found.counted("training", Loop.train)
    Stack.fit = found.counted("training", Stack.fit)
    FinishedModel.answer = found.counted("answers", FinishedModel.answer)
    return found


def counted_job(job: Any, *, device: str) -> str:
    """``run_job``, counted, in whatever process an executor calls it."""
    from regft_core.grid.run_job import run_job

    found = counter()
    line = run_job(job, device=device)
    found.write()
    return line


def measure(changes: list[str], project: Path) -> tuple[dict[str, float], float, float]:
    """CPU seconds of each command, of all, of what is training and what answers; seconds of all; GB of the store."""
    with tempfile.TemporaryDirectory(prefix="regft-job-share-") as folder:
        counts = Path(folder) / "counts"
        counts.mkdir()
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(project)], check=True)
        # The code of the clone, which is that of the commit, in all of the commands.
        here = f"{project}{os.pathsep}{project / 'benchmarks'}"
        os.environ |= {"PYTHONPATH": here, "OMP_NUM_THREADS": "1", COUNTS: str(counts)}
        for change in changes:
            key, value = change.split("=", 1)
            set_param(project / "params.yaml", key, value)
        stages_by(project / "benchmarks" / "job_share.py", project)
        found: dict[str, float] = {}
        began = time.monotonic()
        found["the configuration's check"], _ = run(project, sys.executable, "-m", "regft_core", "check")
        found["`dvc repro`"], _ = run(project, sys.executable, "-m", "dvc", "repro")
        seconds = time.monotonic() - began
        found["together"] = sum(found.values())
        for name in ("training", "answers"):
            found[name] = sum(json.loads(path.read_text()).get(name, 0.0) for path in counts.iterdir())
        stored = sum(path.stat().st_size for path in (project / ".regft").rglob("*") if path.is_file())
        return found, seconds, stored / 1e9


def set_param(path: Path, key: str, value: str) -> None:
    """Set one value of a YAML file by its dotted key."""
    given = place = yaml.safe_load(path.read_text())
    *parents, last = key.split(".")
    for parent in parents:
        place = place[parent]
    place[last] = yaml.safe_load(value)
    path.write_text(yaml.safe_dump(given, sort_keys=False))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="change the job, as grid.seeds=[0]")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave the finished job there")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.stage:
        import job_share  # by its name: workers import the job from there

        stage_with(given.stage, job_share.counted_job)
        return
    with tempfile.TemporaryDirectory(prefix="regft-job-share-") as folder:
        found, seconds, stored = measure(given.set, given.keep or Path(folder) / "project")
    whole = found["together"]
    for name, value in found.items():
        print(f"{name}: {value:.1f} CPU-s, {100 * value / whole:.0f}%")
    rest = whole - found["training"] - found["answers"]
    print(f"all else: {rest:.1f} CPU-s, {100 * rest / whole:.0f}%")
    print(f"training, of all but the answers: {100 * found['training'] / (whole - found['answers']):.0f}%")
    print(f"on the clock: {seconds:.0f} s; the store takes {stored:.2f} GB")
    model = (
        re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()) if Path("/proc/cpuinfo").exists() else None
    )
    print(f"on {model[1] if model else platform.machine()}, {os.cpu_count()} cores, {date.today()}")


if __name__ == "__main__":
    main()
