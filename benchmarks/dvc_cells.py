"""What DVC itself costs for a grid: the real pipeline files with stub commands, CPU seconds of DVC alone.

    python benchmarks/dvc_cells.py --cells 60 200 600
    python benchmarks/dvc_cells.py --cells 60 --revision 60524fc     # the layout of an earlier commit

A grid of n cells is methods x tasks x sizes: 60 = 15 x 2 x 2, 200 = 25 x 4 x 2, 600 = 25 x 8 x 3; every fifth
method has a phase before fine-tuning. Every stage's command is replaced by one that writes its outputs
(bare Python, no imports), so what is left is DVC. Measured in a temporary directory, nothing is trained:
the full build, a second ``dvc repro`` (nothing to do), ``dvc status``, and one forced finetune stage.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
GRIDS = {60: (15, 2, 2), 200: (25, 4, 2), 600: (25, 8, 3)}
STUB = """\
import os, sys
for out in sys.argv[1:]:
    path = out if "." in os.path.basename(out) else os.path.join(out, "content.json")
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    open(path, "w").write("{}")
"""


def read(name: str, revision: str | None) -> str | None:
    """A file of this repository, as it is or as it was."""
    if revision is None:
        path = ROOT / name
        return path.read_text() if path.is_file() else None
    shown = subprocess.run(["git", "show", f"{revision}:{name}"], cwd=ROOT, capture_output=True, text=True)
    return shown.stdout if shown.returncode == 0 else None


def build(root: Path, cells: int, revision: str | None) -> None:
    """Write a project of ``cells`` cells with the pipeline files of ``revision``."""
    methods, tasks, sizes = GRIDS[cells]
    names = [f"m{i:02}" for i in range(methods)]
    searching = names[::5]
    grid = {"tasks": [f"t{i}" for i in range(tasks)], "sizes": [100 * (i + 1) for i in range(sizes)], "seeds": [0, 1]}
    plain = [name for name in names if name not in searching]
    params = {
        "model": {"name": "minilm"}, "grid": grid, "methods": names, "subsample": {}, "training": {"epochs": 3},
        "protocols": {"finetune": plain, "search_finetune": searching}, "report": {"reference": "m01"},
    }  # fmt: skip
    write(root / "params.yaml", yaml.safe_dump(params))
    write(root / "stub.py", STUB)
    for name in names:
        search = {"epochs": 1} if name in searching else None
        method = {"regularisers": {"noise": {"scale": 1e-5}}, "training": {"epochs": 3}, "search": search}
        write(root / "pipelines" / "methods" / f"{name}.yaml", yaml.safe_dump(method))
    for name in grid["tasks"]:
        write(root / "pipelines" / "tasks" / f"{name}.yaml", "metrics: [accuracy]\n")
    write(root / "data" / "rows.csv", "a\n")
    for folder in ("regft_core", "stages"):
        write(root / folder / "code.py", "pass\n")
    extra = {
        "facts": [f"work/facts/{kind}-{name}.json" for name in names for kind in ("search", "finetune")]
        + [f"work/facts/settings-{name}-{task}.json" for name in names for task in grid["tasks"]]
        + [f"work/facts/task-{task}.json" for task in grid["tasks"]]
        + [f"work/facts/{name}.json" for name in ("subsample", "lengths", "evaluate", "report", "methods")],
        "code": [f"work/code/method-{name}.json" for name in names]
        + [f"work/code/{name}.json" for name in ("dataset", "subsample", "evaluate", "report")],
    }
    for file in (
        "dvc.yaml",
        *(f"pipelines/{n}/dvc.yaml" for n in ("search", "search_finetune", "finetune", "evaluate")),
    ):
        text = read(file, revision)
        if text is None:
            continue
        pipeline = yaml.safe_load(text)
        for stage, entry in pipeline["stages"].items():
            body: dict[str, Any] = entry.get("do", entry)
            body["cmd"] = "python -S -E stub.py " + " ".join(extra.get(stage, outputs(body)))
            for given in body.get("params", []):  # files of tasks that this grid does not have
                if isinstance(given, dict):
                    for key in [k for k in given if k.startswith("pipelines/tasks/") and "$" not in k]:
                        del given[key]
            body["params"] = [given for given in body.get("params", []) if given]
        write(root / file, yaml.safe_dump(pipeline, sort_keys=False, width=1000))
    run(root, "git", "init", "-q")
    run(root, sys.executable, "-m", "dvc", "init", "-q")
    run(root, sys.executable, "-m", "dvc", "config", "core.analytics", "false")


def outputs(stage: dict[str, Any]) -> list[str]:
    """Every output of a stage, plots and metrics too."""
    listed = [*stage.get("outs", []), *stage.get("metrics", []), *stage.get("plots", [])]
    return [next(iter(out)) if isinstance(out, dict) else out for out in listed]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def run(root: Path, *command: str) -> tuple[float, str]:
    """CPU seconds (user and system, children included) and output of a command; it must succeed."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout + done.stderr


def measure(cells: int, revision: str | None) -> dict[str, float]:
    """CPU seconds of the four commands on a grid of ``cells``."""
    root = Path(tempfile.mkdtemp(prefix="regft-dvc-cells-"))
    try:
        build(root, cells, revision)
        dvc = (sys.executable, "-m", "dvc")
        started = time.monotonic()
        full, said = run(root, *dvc, "repro")
        stages = len(re.findall(r"Running stage", said))
        wall = time.monotonic() - started
        again, said = run(root, *dvc, "repro")
        if len(re.findall(r"Running stage", said)) > 1:
            raise SystemExit(f"an unchanged repro ran stages:\n{said[-2000:]}")
        status, _ = run(root, *dvc, "status")
        one = "pipelines/finetune/dvc.yaml:finetune@m01-t0" + ("-100" if "-100" in said else "")
        forced, _ = run(root, *dvc, "repro", "-f", "-s", one)
        return {"stages": stages, "build": full, "wall": wall, "no-op": again, "status": status, "one stage": forced}
    finally:
        shutil.rmtree(root, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, nargs="+", default=[60], choices=sorted(GRIDS))
    parser.add_argument("--revision", help="commit whose pipeline files are measured (default: the working tree)")
    given = parser.parse_args()
    print(f"{'cells':>6}  {'stages':>6}  {'build':>8}  {'wall':>8}  {'no-op':>7}  {'status':>7}  {'one stage':>9}")
    for cells in given.cells:
        found = measure(cells, given.revision)
        print(
            f"{cells:>6}  {found['stages']:>6.0f}  {found['build']:>7.1f}s  {found['wall']:>7.1f}s  "
            f"{found['no-op']:>6.1f}s  {found['status']:>6.1f}s  {found['one stage']:>8.2f}s",
            flush=True,
        )


if __name__ == "__main__":
    main()
