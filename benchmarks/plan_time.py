"""The time that ``plan`` announces beside the time that the grid takes, in CPU seconds of one worker.

    python benchmarks/plan_time.py                      the packaged encoder, three methods, two seeds
    python benchmarks/plan_time.py --encoder models/x   another one

It lays out a project in a temporary folder: nothing is stored there yet, and nothing of this project is read.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from regft_core.plan.data import prepare
from regft_core.plan.keys import write_plan
from regft_core.plan.time import estimate
from regft_core.run.project import open_project

ROOT = Path(__file__).resolve().parents[1]


def children() -> float:
    """CPU seconds of the processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--methods", nargs="+", default=["tfidf_logistic", "linear_probe", "vanilla", "r3f"])
    parser.add_argument("--tasks", nargs="+", default=["cue_regression", "cue_pair"])
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in ("pipelines", "dvc.yaml"):
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, root / name)
        params = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
        params["model"]["name"] = given.encoder
        params["grid"] = {"tasks": given.tasks, "sizes": [given.size], "seeds": list(range(given.seeds))}
        params |= {"methods": given.methods, "execution": {"executor": "processes", "workers": 1}}
        params["training"]["epochs"] = given.epochs
        params["report"] = {"reference": given.methods[0]}
        (root / "params.yaml").write_text(yaml.dump(params), encoding="utf-8")
        project = open_project(root)
        prepare(project)
        write_plan(project)
        before, begun = children(), time.monotonic()
        found = estimate(project)
        print(f"measuring: {children() - before:.1f} CPU s, {time.monotonic() - begun:.1f} s on the wall")
        print(found.line())
        print({method: round(seconds, 1) for method, seconds in found.methods.items()})
        before, begun = children(), time.monotonic()
        for stage in ("search", "finetune", "evaluate"):
            subprocess.run([sys.executable, "-m", f"stages.{stage}"], cwd=root, check=True, stdout=subprocess.DEVNULL)
        took = children() - before
        print(f"took {took:.1f} CPU s ({time.monotonic() - begun:.1f} s on the wall), announced {found.seconds:.1f} s")
        print(f"announced / took: {found.seconds / took:.2f}")


if __name__ == "__main__":
    main()
