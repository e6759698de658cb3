"""A preset made small: its arms and settings as they are, a tiny encoder of its family, few rows, few steps.

Tasks keep their columns, labels and metrics and read generated rows from files, so nothing needs the hub.

python -m tests.presets.miniature [NAME ...]   run them (default: those with changed settings), record what finished
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from regft_core.config.grid import cells
from regft_core.io import read_json, write_json
from regft_core.plan.compute import compute
from regft_core.plan.data import prepare
from regft_core.plan.keys import write_plan
from regft_core.plan.paper_table import MINIATURES, miniature_state, settings_hash
from regft_core.reporting import Report, write_report
from regft_core.run.one_run import STAGES
from regft_core.run.project import open_project
from tests.small_project import REPOSITORY, write_csv
from tests.tiny import MASKED_LM_ARCHITECTURES, tiny_model_dir

PRESETS = REPOSITORY / "pipelines" / "presets"
ROWS = 16
SMALL = {"max_steps": 2, "epochs": 1, "warmup_steps": 1, "batch_size": 8, "trials": 2}
#: How a checkpoint's name tells its family; the first that fits.
FAMILIES = (
    ("xlnet", "xlnet"),
    ("electra", "electra"),
    ("deberta", "deberta"),
    ("bart", "bart"),
    ("chinese", "bert"),
    ("roberta", "roberta"),
    ("bert", "bert"),
)


def names() -> list[str]:
    """Every preset."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def build(root: Path, name: str) -> Path:
    """Write a project that is the preset in small."""
    params = yaml.safe_load((PRESETS / f"{name}.yaml").read_text(encoding="utf-8"))
    shutil.copytree(REPOSITORY / "pipelines" / "tasks", root / "pipelines" / "tasks")
    shutil.copy(REPOSITORY / "dvc.yaml", root / "dvc.yaml")
    copy_methods(root, params)
    tasks = params["grid"]["tasks"][:1]
    probed = [task for options in params.get("evaluations", {}).values() for task in options.get("tasks", ())]
    for task in dict.fromkeys([*tasks, *probed]):
        shrink_task(root, task)
    family = next(family for word, family in FAMILIES if word in params["model"]["name"])
    model = tiny_model_dir(root / "scratch", family, masked_lm=family in MASKED_LM_ARCHITECTURES)
    shutil.copytree(model, root / "models" / "tiny")
    params["model"] = {"name": "models/tiny", "max_length": 24}
    params["grid"] = {"tasks": tasks, "sizes": [8], "seeds": [0]}
    params["execution"] = {"executor": "serial", "device": "cpu"}
    # The printed numbers name arms whose files are not here; tests/reporting/test_published.py shows them.
    params["report"] = {"reference": params["report"]["reference"], "bootstrap_samples": 100}
    shrink_grids(params.get("tuning", {}))
    params["task_settings"] = {t: own for t, own in params.get("task_settings", {}).items() if t in tasks}
    (root / "params.yaml").write_text(yaml.safe_dump(smaller(params), sort_keys=False), encoding="utf-8")
    return root


def copy_methods(root: Path, params: dict[str, Any]) -> None:
    """The files of the arms alone: validation reads all that there are, and a run validates often."""
    wanted = [*params["methods"], *(own["base"] for own in params.get("method_settings", {}).values() if "base" in own)]
    found: dict[str, Any] = {}
    while wanted:
        name = wanted.pop()
        source = REPOSITORY / "pipelines" / "methods" / f"{name}.yaml"
        if source.is_file() and name not in found:
            found[name] = yaml.safe_load(source.read_text(encoding="utf-8"))
            factor = (found[name].get("training") or {}).get("steps_factor")
            wanted += [factor["match"]] if isinstance(factor, dict) else []
            family = found[name].get("variant_of") or []  # whose controls are also this method's
            wanted += [family] if isinstance(family, str) else family
            for options in (found[name].get("regularisers") or {}).values():
                if isinstance(options.get("layers"), int):
                    options["layers"] = 1  # of the tiny encoder's two
    folder = root / "pipelines" / "methods"
    folder.mkdir(parents=True)
    for name, method in found.items():
        for key in ("control_for", "variant_of", "combines"):
            given = method.pop(key, [])
            named = [other for other in ([given] if isinstance(given, str) else given) if other in found]
            method |= {key: named} if named else {}
        if "control_for" not in method:
            method.pop("differs_in", None)
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(method, sort_keys=False), encoding="utf-8")


def smaller(value: Any, key: str = "") -> Any:
    """``value`` with lengths and layers cut, wherever they stand."""
    if isinstance(value, dict):
        return {name: smaller(inner, name) for name, inner in value.items()}
    if key in SMALL and isinstance(value, int):
        return SMALL[key]
    if key == "max_length":
        return 24
    if key == "layers":  # of 24; the tiny encoder has two
        return sorted({layer * 2 // 24 for layer in value})
    return value


def shrink_grids(tuning: dict[str, Any]) -> None:
    """Two trials for every grid: two values of its first key, one of each other."""
    for grid in (tuning.get("values", {}), *tuning.get("methods", {}).values()):
        for i, key in enumerate(grid):
            grid[key] = grid[key][: 1 if i else 2]


def shrink_task(root: Path, name: str) -> None:
    """Let a task read a few generated rows from files, and judge nothing else."""
    path = root / "pipelines" / "tasks" / f"{name}.yaml"
    task = yaml.safe_load(path.read_text(encoding="utf-8"))
    columns = [task["columns"][key] for key in ("text", "text_pair") if key in task["columns"]]
    label = task["columns"].get("label", "label")
    for split, length in (("train", 5), ("dev", 7)):
        rows = []
        for n in range(ROWS):
            text = ["good story" if n % 2 else "bad film", *["the actor was it"] * (n % length)]
            own = task["labels"][n % len(task["labels"])] if task.get("labels") else n % 6
            rows.append([*(" ".join(text[i:] or text) for i in range(len(columns))), own])
        write_csv(root / "data" / f"{name}-{split}.csv", [[*columns, label], *rows])
    task |= {"source": {"kind": "files"}, "splits": {"train": f"{name}-train.csv", "dev": f"{name}-dev.csv"}}
    for key in ("ood", "label_values", "drop_labels", "training", "model"):
        task.pop(key, None)
    path.write_text(yaml.safe_dump(task, sort_keys=False), encoding="utf-8")


def run(root: Path) -> Report:
    """Every stage in this process, in DVC's order; returns the report."""
    project = open_project(root)
    prepare(project)
    write_plan(project)
    for stage in STAGES:
        assert compute(root, stage, say=lambda _: None) == {}
    params = project.params
    return write_report(
        root, cells(project), params.grid.seeds, params.report, project.methods, training=params.training
    )


def failures(report: Report) -> list[str]:
    """The cells of a report in which a run failed."""
    return [f"{block.name}: {row.method}" for block in report.blocks for row in block.rows if row.failed]


def record(chosen: Sequence[str]) -> int:
    """Run miniatures and write which of them finished, with which settings; returns how many failed."""
    failed = 0
    for name in chosen or [name for name in names() if miniature_state(REPOSITORY, name) != "finished"]:
        with tempfile.TemporaryDirectory() as folder:
            wrong = failures(run(build(Path(folder) / name, name)))
        path = REPOSITORY / MINIATURES
        recorded = read_json(path) if path.is_file() else {}
        recorded.pop(name, None)
        recorded |= {} if wrong else {name: settings_hash(REPOSITORY, name)}
        present = {one: recorded[one] for one in names() if one in recorded}
        write_json(path, present)
        failed += bool(wrong)
        print(f"{name}: {', '.join(wrong) or 'finished'}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(min(record(sys.argv[1:]), 1))
