"""Tables of README.md and benchmarks/README.md, from stored results; no number in them is written by hand.

    python benchmarks/table.py keep PROJECT NAME --about "..."   # PROJECT/reports -> benchmarks/results/NAME.json
    python benchmarks/table.py write                             # fills in every table between its marks

A mark is ``<!-- FORM NAME [METHOD ...] -->``, up to ``<!-- end -->``. Forms: ``tasks`` (a row per task: scores of the
methods, and what each of the others differs from the first by), ``methods`` (a row per method of a single task),
``scores`` (a row per method, a column per task), ``gains`` (as ``scores``, of the differences to the reference and to
controls) and ``printed`` (what a benchmark printed, kept as NAME.txt). Scores are times 100, means over seeds with
their 95% interval. Differences are paired by seed and row; their intervals hold for all comparisons of a task with the
reference, or with controls, together.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = (ROOT / "README.md", ROOT / "benchmarks" / "README.md")
MARK = re.compile(r"(<!-- (tasks|methods|scores|gains|printed) (\S+)((?: \S+)*) -->\n).*?(<!-- end -->)", re.DOTALL)
NAMES = {"accuracy": "accuracy", "f1": "F1", "matthews": "Matthews", "pearson_spearman": "Pearson and Spearman"}
Task = dict[str, Any]


def keep(project: Path, name: str, about: str) -> Path:
    """Store the validation scores of a finished project: of every seed, their means, differences and costs."""
    results = json.loads((project / "reports" / "results.json").read_text(encoding="utf-8"))
    with (project / "reports" / "tables" / "scores.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    tasks: dict[str, Task] = {}
    for task, size in dict.fromkeys((row["task"], row["size"]) for row in rows):
        described = yaml.safe_load((project / "pipelines" / "tasks" / f"{task}.yaml").read_text(encoding="utf-8"))
        metric = described["primary"]
        methods = {}
        for method, found in results[f"{task}-{size}"].items():
            wanted = (task, size, method, "dev", metric)
            seeds = [
                row for row in rows if tuple(row[k] for k in ("task", "size", "method", "set", "metric")) == wanted
            ]
            methods[method] = {
                "seeds": {row["seed"]: float(row["value"]) for row in seeds},
                "score": found["dev"][metric],
                "versus": _versus(found, "versus_reference"),
                "control": _versus(found, "versus_control"),
                "replacement": _versus(found, "versus_replacement"),
                "cost": found["cost_ratio"]["declared"],
                "measured": found["cost_ratio"]["measured"],
                "failed": found["failed"],
                "collapsed": found["collapsed"],
            }
        tasks[task] = {"rows": size, "metric": metric, "methods": methods}
    path = RESULTS / f"{name}.json"
    stored = json.dumps({"about": about, "tasks": tasks})
    path.write_text(stored.replace('{"seeds"', '\n{"seeds"') + "\n", encoding="utf-8")  # a line per method
    return path


def _versus(found: dict[str, Any], kind: str) -> dict[str, Any]:
    """Other method -> mean and simultaneous interval of the paired difference on the validation rows."""
    return {
        other: {"mean": sets["dev"]["mean"], **sets["dev"]["simultaneous"], "verdict": sets["dev"]["verdict"]}
        for other, sets in found.get(kind, {}).items()
        if "dev" in sets
    }


def interval(found: dict[str, Any] | None, sign: str = "") -> str:
    """``mean [low, high]`` times 100."""
    if found is None:
        return "-"
    ends = [found[key] for key in ("mean", "low", "high")]
    mean, low, high = (None if end is None else f"{100 * end:{sign}.1f}" for end in ends)
    return f"{mean} [{low}, {high}]" if low is not None else str(mean)


def by_task(tasks: dict[str, Task], methods: list[str]) -> list[list[str]]:
    first, *others = methods
    table = [["task, metric", *methods, *(f"{other} minus {first}" for other in others)]]
    for name, task in tasks.items():
        of = task["methods"]
        differences = [interval(of[other]["versus"].get(first), "+") for other in others]
        scores = [interval(of[method]["score"]) for method in methods]
        table.append([f"{name}, {NAMES[task['metric']]}", *scores, *differences])
    return table


def by_method(tasks: dict[str, Task], methods: list[str]) -> list[list[str]]:
    (task,) = tasks.values()
    reference = next(other for found in task["methods"].values() for other in found["versus"])
    head = [
        "method",
        NAMES[task["metric"]],
        f"minus {reference}",
        "gain over its control",
        "minus a replacement",
        "passes",
        "failed",
        "collapsed",
    ]
    table = [head]
    for method in methods or sorted(task["methods"], key=lambda m: -task["methods"][m]["score"]["mean"]):
        found = task["methods"][method]
        versus = [interval(found["versus"].get(reference), "+")]
        for role in ("control", "replacement"):
            versus.append("<br>".join(f"{interval(d, '+')} ({other})" for other, d in found[role].items()) or "-")
        counts = [f"{found['cost']:.2f}", str(found["failed"]), str(found["collapsed"])]
        table.append([method, interval(found["score"]), *versus, *counts])
    return table


def by_score(tasks: dict[str, Task], methods: list[str]) -> list[list[str]]:
    table = [["method", *(f"{name}, {NAMES[task['metric']]}" for name, task in tasks.items())]]
    for method in methods or next(iter(tasks.values()))["methods"]:
        table.append([method, *(interval(task["methods"][method]["score"]) for task in tasks.values())])
    return table


def by_gain(tasks: dict[str, Task], methods: list[str]) -> list[list[str]]:
    table = [["difference", *(f"{name}, {NAMES[task['metric']]}" for name, task in tasks.items())]]
    for method in methods:
        compared = [task["methods"][method] for task in tasks.values()]
        for role, text in (("versus", "minus"), ("control", "minus its control")):
            for other in dict.fromkeys(other for found in compared for other in found[role]):
                gains = [interval(found[role].get(other), "+") for found in compared]
                table.append([f"{method} {text} {other}", *gains])
    return table


FORMS: dict[str, Callable[[dict[str, Task], list[str]], list[list[str]]]] = {
    "tasks": by_task,
    "methods": by_method,
    "scores": by_score,
    "gains": by_gain,
}


def filled(page: str) -> str:
    """``page`` with every marked table made anew from its stored results."""

    def table(match: re.Match[str]) -> str:
        if match[2] == "printed":
            printed = (RESULTS / f"{match[3]}.txt").read_text(encoding="utf-8")
            return f"{match[1]}```\n{printed}```\n{match[5]}"
        stored = json.loads((RESULTS / f"{match[3]}.json").read_text(encoding="utf-8"))
        head, *rows = FORMS[match[2]](stored["tasks"], match[4].split())
        lines = [head, ["---"] * len(head), *rows]
        return match[1] + "".join(f"| {' | '.join(line)} |\n" for line in lines) + match[5]

    return MARK.sub(table, page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    keeping = commands.add_parser("keep")
    keeping.add_argument("project", type=Path)
    keeping.add_argument("name")
    keeping.add_argument("--about", required=True, help="what ran where: commit, encoder, settings, machine, date")
    commands.add_parser("write")
    options = parser.parse_args()
    if options.command == "keep":
        print(f"written: {keep(options.project, options.name, options.about)}")
        return
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
