"""Tables of README.md and of the pages beside this file, from stored results; no number in them is written by hand.

    python benchmarks/table.py keep PROJECT NAME --about "..."   # PROJECT/reports -> benchmarks/results/NAME.json
    python benchmarks/table.py write                             # fills in every table between its marks

A mark is ``<!-- FORM NAME [METHOD ...] -->``, up to ``<!-- end -->``. Forms: ``tasks`` (a row per task: scores of the
methods, and what each of the others differs from the first by), ``methods`` (a row per method of a single task),
``scores`` (a row per method, a column per task), ``gains`` (as ``scores``, of the differences to the reference and to
controls); ``contestants`` and ``cells``, of NAME.jsonl by ``rivals.py``, with a size; ``verdicts``, ``decisions``
and ``folds``, of what the script of that name (``fold_coverage.py``) has simulated. Scores are
times 100, means over seeds with their 95% interval. Differences are paired by seed and row; their intervals hold for
all comparisons of a task with the reference, or with controls, together.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = (ROOT / "README.md", ROOT / "benchmarks" / "README.md", ROOT / "benchmarks" / "statistics.md")
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


OF_PROJECTS: dict[str, Callable[[dict[str, Task], list[str]], list[list[str]]]] = {
    "tasks": by_task,
    "methods": by_method,
    "scores": by_score,
    "gains": by_gain,
}
#: Names in the tables of what ``rivals.py`` stored, beside those of contestants.
BY_FOLDS, IN_HINDSIGHT = "the rival with the best folds", "the best rival of each task, in hindsight"
#: Task -> draw -> contestant -> line of ``rivals.py``.
Cells = dict[str, dict[int, dict[str, dict[str, Any]]]]


def by_cell(lines: Iterable[dict[str, Any]], size: int) -> Cells:
    """The lines of a size where ``fit`` and its rivals are done, with the rival that one would take by its folds."""
    cells: Cells = {}
    for line in lines:
        if line["size"] == size:
            cells.setdefault(line["task"], {}).setdefault(line["draw"], {})[line["contestant"]] = line
    for draws in cells.values():
        for draw, cell in list(draws.items()):
            rivals = [line for name, line in cell.items() if name.endswith(("_lr", "_svm"))]
            if len(rivals) < 8 or "fit" not in cell:
                del draws[draw]
                continue
            cost = {key: sum(line.get(key, 0.0) for line in rivals) for key in ("cpu", "seconds")}
            cell[BY_FOLDS] = max(rivals, key=lambda line: line.get("folds", -1.0)) | cost
    return {task: draws for task, draws in cells.items() if draws}


def by_contestant(cells: Cells) -> list[list[str]]:
    """Means over tasks of means over draws, each beside ``fit`` on the same cells; standard errors are over tasks."""
    table = [["contestant", "tasks", "cells", "mean", "fit there", "minus fit", "fit 2 points below", "CPU-s", "s"]]
    for name in dict.fromkeys(name for draws in cells.values() for cell in draws.values() for name in cell):
        tasks = [found for draws in cells.values() if (found := [cell for cell in draws.values() if name in cell])]
        pairs = [[mean([cell[who] for cell in draws], "score") for who in (name, "fit")] for draws in tasks]
        lines = [cell[name] for draws in tasks for cell in draws]
        cost = [f"{mean(lines, key):.0f}" for key in ("cpu", "seconds")]
        table.append([name, str(len(tasks)), str(len(lines)), *beside(pairs), *cost])
    hindsight = [[best_rival(draws)[1], mean([c["fit"] for c in draws.values()], "score")] for draws in cells.values()]
    return [*table, [IN_HINDSIGHT, str(len(cells)), "", *beside(hindsight), "", ""]]


def mean(lines: list[dict[str, Any]], key: str) -> float:
    return fmean(line.get(key, 0.0) for line in lines)


def beside(pairs: list[list[float]]) -> list[str]:
    """Means, their difference with its standard error, and where the second is two points below."""
    gaps = [100 * (score - fit) for score, fit in pairs]
    error = f" ({stdev(gaps) / len(gaps) ** 0.5:.1f})" if len(gaps) > 1 else ""
    means = [f"{100 * fmean(side):.1f}" for side in zip(*pairs, strict=True)]
    return [*means, f"{fmean(gaps):+.1f}{error}", str(sum(gap > 2 for gap in gaps))]


def best_rival(draws: dict[int, dict[str, dict[str, Any]]]) -> tuple[str, float]:
    """The rival of every draw with the best mean."""
    names = set.intersection(*map(set, draws.values())) - {"fit", BY_FOLDS}
    scores = {name: mean([cell[name] for cell in draws.values()], "score") for name in sorted(names)}
    best = max(scores, key=lambda name: scores[name])
    return best, scores[best]


def by_rival_task(cells: Cells) -> list[list[str]]:
    table = [["task, metric", "draws", "fit", "expected", "in its interval", "best rival", "its score", "fit minus it"]]
    inside = 0, 0
    for task, draws in cells.items():
        fits, (best, score) = [cell["fit"] for cell in draws.values()], best_rival(draws)
        told, own = [line for line in fits if line.get("low") is not None], mean(fits, "score")
        right = sum(line["low"] <= line["score"] <= line["high"] for line in told)
        inside = inside[0] + right, inside[1] + len(told)
        expected = f"{100 * mean(told, 'expected'):.1f}" if told else "-"
        row = [f"{task}, {fits[0]['metric']}", str(len(fits)), f"{100 * own:.1f}", expected, f"{right} of {len(told)}"]
        table.append([*row, best, f"{100 * score:.1f}", f"{100 * (own - score):+.1f}"])
    return [*table, ["all", "", "", "", f"{inside[0]} of {inside[1]}", "", "", ""]]


OF_RIVALS: dict[str, Callable[[Cells], list[list[str]]]] = {"contestants": by_contestant, "cells": by_rival_task}


def verdicts(cells: list[dict[str, Any]]) -> list[list[str]]:
    """False positives and power by the spread of seeds."""
    sizes = list(dict.fromkeys((c["methods"], c["seeds"], c["rows"]) for c in cells))
    by = {(c["spread"], c["methods"], c["seeds"], c["rows"]): f"{c['false']:.3f}; {c['power']:.2f}" for c in cells}
    spreads = dict.fromkeys(c["spread"] for c in cells)
    rows = ([name, *(by.get((name, *size), "") for size in sizes)] for name in spreads)
    return [["spread of seeds", *(", ".join(map(str, size)) for size in sizes)], *rows]


def decisions(cells: list[dict[str, Any]]) -> list[list[str]]:
    head = "methods, seeds, rows|bias|of the best mean|coverage|of the pointwise interval|width|regret|of the best mean"
    table = [[*head.split("|"), "best: stated; true"]]
    for place in dict.fromkeys((c["methods"], c["seeds"], c["rows"], c["far"]) for c in cells):
        own = [c for c in cells if (c["methods"], c["seeds"], c["rows"], c["far"]) == place]
        means = {key: fmean(c[key] for c in own) for key in own[0] if key not in ("spread", "far")}
        bias = f"{means['bias']:+.2f} ({min(c['bias'] for c in own):+.1f} to {max(c['bias'] for c in own):+.1f})"
        grid = ", ".join(map(str, place[:3])) + (", a fifth far off" if place[3] else "")
        shown = [("bias_best_mean", "+.2f"), ("coverage", ".3f"), ("coverage_pointwise", ".3f"), ("width", ".1f")]
        numbers = [format(means[key], how) for key, how in (*shown, ("regret", ".2f"), ("regret_best_mean", ".2f"))]
        table.append([grid, bias, *numbers, f"{means['said_best']:.2f}; {means['is_best']:.2f}"])
    return table


def folds(cells: list[dict[str, Any]]) -> list[list[str]]:
    table = [["learner", "learners", "rows", "folds x repeats", "false", "coverage", "width, points"]]
    for c in (c for c in cells if c["models"] != "drawn"):
        place = [c["models"], str(c["learners"]), str(c["rows"]), f"{c['folds']} x {c['repeats']}"]
        table.append([*place, f"{c['false']:.3f}", f"{c['coverage']:.3f}", f"{c['width']:.1f}"])
    return table


#: Forms of what is simulated, from the file of the same name.
SIMULATED = {made.__name__: made for made in (verdicts, decisions, folds)}
MARK = re.compile(
    rf"(<!-- ({'|'.join([*OF_PROJECTS, *OF_RIVALS, *SIMULATED])})((?: \S+)*) -->\n).*?(<!-- end -->)", re.DOTALL
)


def filled(page: str) -> str:
    """``page`` with every marked table made anew from its stored results."""

    def table(match: re.Match[str]) -> str:
        form, (name, *words) = match[2], match[3].split() or [match[2]]
        text = (RESULTS / f"{name}.{'jsonl' if form in OF_RIVALS else 'json'}").read_text(encoding="utf-8")
        if form in SIMULATED:
            head, *rows = SIMULATED[form](json.loads(text)["cells"])
        elif form in OF_RIVALS:
            head, *rows = OF_RIVALS[form](by_cell(map(json.loads, text.splitlines()), int(words[0])))
        else:
            head, *rows = OF_PROJECTS[form](json.loads(text)["tasks"], words)
        lines = [head, ["---"] * len(head), *rows]
        return match[1] + "".join(f"| {' | '.join(line)} |\n" for line in lines) + match[4]

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
