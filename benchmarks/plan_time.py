"""The time that ``plan`` announces, and the time left that a stage announces, beside the time that the grid takes.

    python benchmarks/plan_time.py                      the packaged encoder, made-up tasks, four methods, two seeds
    python benchmarks/plan_time.py --data DIR --tasks sst2 --methods linear_probe vanilla r3f weight_mixup mask_tuning

It lays out a project in a temporary folder: nothing is stored there yet, and nothing of this project is read. Time
left is judged twice: on the wall, and with the same events on the clock of the worker's CPU seconds, which other work
on the machine disturbs less. ``--record FILE`` keeps the events, ``--replay FILE`` judges them again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import yaml
from real_tasks import materialise, shrink

from regft_core import progress
from regft_core.grid.compute import compute
from regft_core.grid.data import prepare
from regft_core.grid.keys import write_plan
from regft_core.grid.time import estimate
from regft_core.pace import Pace
from regft_core.runs.one_run import STAGES
from regft_core.runs.project import open_project

ROOT = Path(__file__).resolve().parents[1]
_TICKS = os.sysconf("SC_CLK_TCK")


def children() -> float:
    """CPU seconds of the processes that this one started, those that ended included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    parents: dict[int, tuple[int, float]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        parents[int(entry.parent.name)] = int(fields[1]), sum(map(int, fields[11:15])) / _TICKS
    found, total = {os.getpid()}, used.ru_utime + used.ru_stime
    while more := {one for one, (parent, _) in parents.items() if parent in found} - found:
        found |= more
        total += sum(parents[one][1] for one in more)
    return total


class Recorded(Pace):
    """A pace that keeps what it is told, with the time on both clocks."""

    #: [work of the jobs, [[wall, CPU, event, ...]]] of every stage.
    kept: ClassVar[list[tuple[dict[str, float], list[list[Any]]]]] = []

    def __init__(self, work: Mapping[str, float]) -> None:
        super().__init__(work)
        self._events: list[list[Any]] = []
        self.kept.append((dict(work), self._events))

    def at_work(self, inside: Mapping[str, float], now: float) -> None:
        self._events.append([now, children(), "at work", dict(inside)])
        super().at_work(inside, now)

    def ended(self, job: str, computed: bool, now: float) -> None:
        self._events.append([now, children(), "ended", job, computed])
        super().ended(job, computed, now)


def judged(work: Mapping[str, float], events: list[list[Any]], clock: int) -> str:
    """How often the time left was right; ``clock`` is 0 on the wall, 1 in CPU seconds. Below 20 s nothing counts."""
    pace, begun, end = Pace(work), events[0][clock], [event for event in events if event[2] == "ended"][-1][clock]
    said = []
    for event in events:
        if event[2] == "ended":
            pace.ended(event[3], event[4], event[clock])
        else:
            pace.at_work(event[3], event[clock])
            left, truth = pace.left(event[clock]), end - event[clock]
            if left is not None and truth > 20:
                said.append((event[clock] - begun, left / truth))
    if not said:
        return f"{end - begun:.0f} s, nothing announced"
    right = sum(2 / 3 <= ratio <= 4 / 3 for _, ratio in said) / len(said)
    course = [said[int(share * (len(said) - 1))] for share in (0, 0.1, 0.25, 0.5, 0.75, 1)]
    return (
        f"{end - begun:.0f} s, first announced after {said[0][0]:.0f} s; {right:.0%} within a third; announced / came "
        + ", ".join(f"{ratio:.2f} ({at:.0f} s)" for at, ratio in course)
    )


def lay_out(root: Path, given: argparse.Namespace) -> None:
    """Write the project."""
    for name in ("pipelines", "dvc.yaml"):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, root / name)
    for task in given.tasks if given.data else []:
        materialise(task, root, given.data)
        shrink(root, task, given.evaluation_rows, [])
        file = root / "pipelines" / "tasks" / f"{task}.yaml"
        file.write_text("override: true\n" + file.read_text(encoding="utf-8"), encoding="utf-8")
    params = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    params["model"]["name"] = given.encoder
    params["grid"] = {"tasks": given.tasks, "sizes": [given.size], "seeds": list(range(given.seeds))}
    params |= {"methods": given.methods, "execution": {"executor": "processes", "workers": 1}}
    params["training"]["epochs"] = given.epochs
    params["report"] = {"reference": given.methods[0]}
    (root / "params.yaml").write_text(yaml.dump(params), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--methods", nargs="+", default=["tfidf_logistic", "linear_probe", "vanilla", "r3f"])
    parser.add_argument("--data", type=Path, help="folder of public sets, see real_tasks.py")
    parser.add_argument("--tasks", nargs="+", default=["cue_regression", "cue_pair"])
    parser.add_argument("--evaluation-rows", type=int, default=300, help="rows to keep of a larger set of --data")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--replay", type=Path)
    given = parser.parse_args()
    stages = json.loads(given.replay.read_text()) if given.replay else recorded(given)
    if given.record:
        given.record.write_text(json.dumps(stages))
    for stage, (work, events) in enumerate(stages):
        for clock, name in enumerate(("wall", "CPU")):
            print(f"stage {stage + 1}, {len(work)} jobs, {name}: {judged(work, events, clock)}")


def recorded(given: argparse.Namespace) -> list[tuple[dict[str, float], list[list[Any]]]]:
    """Run the grid; returns the work and the events of its stages."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        lay_out(root, given)
        project = open_project(root)
        prepare(project)
        write_plan(project)
        before, begun = children(), time.monotonic()
        found = estimate(project)
        print(f"measuring: {children() - before:.1f} CPU s, {time.monotonic() - begun:.1f} s on the wall")
        print(found.line())
        print({method: round(seconds, 1) for method, seconds in found.methods.items()})
        before, begun = children(), time.monotonic()
        progress.Pace = Recorded  # type: ignore[misc]
        for stage in STAGES:
            compute(root, stage)
        took = children() - before
        print(f"took {took:.1f} CPU s ({time.monotonic() - begun:.1f} s on the wall), announced {found.seconds:.1f} s")
        print(f"announced / took: {found.seconds / took:.2f}")
    return Recorded.kept


if __name__ == "__main__":
    main()
