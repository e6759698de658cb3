"""What more rows, and more workers, cost and gain.

    python benchmarks/scaling.py rows --rows 1000 10000 100000
    python benchmarks/scaling.py workers                     # Ray is left out where it is not installed

rows: a task of one CSV with so many rows; a run takes 128 of them. CPU seconds of the first plan (rows read, checked,
drawn, tokenised for their lengths; keys), of the next one, which finds nothing new, and of the first plan after one
row changed.

workers: a grid of trainings (``linear_probe``, ``vanilla`` and ``hype_n`` on 128 rows of the built-in regression task,
five epochs), computed anew in every way; seconds on the clock from an installed tree to the report, and CPU seconds
where its processes are ours. Ray's two nodes are of this machine, with one core each. Scores are compared.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent))
from commands import run
from job_share import set_param

ROOT = Path(__file__).resolve().parents[1]
WORDS = ("good", "bad", "plain", "slow", "warm", "cold", "early", "late", "red", "blue", "large", "small", "north")
#: Way -> changes of ``execution``.
WAYS: dict[str, dict[str, Any]] = {
    "1 worker": {"workers": 1, "threads": 1},
    "1 worker, 2 threads": {"workers": 1, "threads": 2},
    "2 workers": {"workers": 2, "threads": 1},
    "Ray, 2 nodes": {"executor": "ray", "workers": 2, "threads": 1},
}


@contextmanager
def cloned(**changes: Any) -> Iterator[Path]:
    """A clone of the committed tree with some values of params.yaml changed; it goes at the end."""
    folder = Path(tempfile.mkdtemp(prefix="regft-scaling-"))
    try:
        project = folder / "project"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(project)], check=True)
        os.environ["PYTHONPATH"] = str(project)
        for key, value in changes.items():
            set_param(project / "params.yaml", key.replace("__", "."), json.dumps(value))
        yield project
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sentence(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(5, 30)))


def rows(counts: list[int]) -> None:
    """Print a row for each number of rows."""
    task = {
        "source": {"kind": "files"},
        "splits": {"train": "own/rows.csv", "dev": 0.25},
        "columns": {"text": "text", "label": "label"},
        "labels": ["no", "yes"],
        "metrics": ["accuracy"],
        "primary": "accuracy",
    }
    print("| rows | first plan | next plan | plan after a changed row |", "|---|---|---|---|", sep="\n")
    for count in counts:
        draw, given = random.Random(0), []
        for number in range(count):
            given.append([f"{number} {sentence(draw)}", draw.choice(["no", "yes"])])
        with cloned(grid__tasks=["own"], methods=["linear_probe", "vanilla"]) as project:
            (project / "pipelines/tasks/own.yaml").write_text(yaml.safe_dump(task))
            file = project / "data" / "own" / "rows.csv"
            file.parent.mkdir()

            def plan(file: Path = file, given: list[list[str]] = given, project: Path = project) -> float:
                with file.open("w", newline="") as lines:
                    csv.writer(lines).writerows([["text", "label"], *given])
                return run(project, sys.executable, "-m", "regft_core.stages.subsample")[0]

            taken = [plan(), plan()]
            given[0][0] += " again"
            taken.append(plan())
        print(f"| {count:,} | " + " | ".join(f"{seconds:.1f}" for seconds in taken) + " |", flush=True)


@contextmanager
def two_nodes() -> Iterator[str]:
    """Address of a Ray cluster of two nodes with one core each, on this machine."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        yield cluster.address
    finally:
        cluster.shutdown()


def workers(seeds: int, epochs: int) -> None:
    """Print a row for each way to compute one grid."""
    print("| way | seconds | times 1 worker | CPU seconds | scores |", "|---|---|---|---|---|", sep="\n")
    alone, scores = 0.0, ""
    for way, changes in WAYS.items():
        on_ray = changes.get("executor") == "ray"
        if on_ray and find_spec("ray") is None:
            print(f"| {way} | not run: pip install -c constraints.txt -e '.[ray]' |")
            continue
        given = {f"execution__{name}": value for name, value in changes.items()}
        given |= {"methods": ["linear_probe", "vanilla", "hype_n"], "training__epochs": epochs}
        with cloned(**given, grid__seeds=list(range(seeds))) as project:
            if on_ray:
                with two_nodes() as address:
                    set_param(project / "params.yaml", "execution.ray", json.dumps({"address": address}))
                    began = time.monotonic()
                    run(project, sys.executable, "-m", "dvc", "repro")
                    taken, cpu = time.monotonic() - began, "-"
            else:
                began = time.monotonic()
                cpu = f"{run(project, sys.executable, '-m', 'dvc', 'repro')[0]:.0f}"
                taken = time.monotonic() - began
            found = "".join(path.read_text() for path in sorted((project / "reports/metrics").rglob("*.json")))
        alone, scores = alone or taken, scores or found
        same = "the same" if found == scores else "differ in last bits"
        print(f"| {way} | {taken:.0f} | {alone / taken:.2f} | {cpu} | {same} |", flush=True)


def main() -> None:
    """Measure one part and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("rows", "workers"))
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=5)
    given = parser.parse_args()
    if given.part == "rows":
        rows(given.rows)
    else:
        workers(given.seeds, given.epochs)


if __name__ == "__main__":
    main()
