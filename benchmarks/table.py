"""Print a project's ``reports/results.json`` as Markdown tables.

    python benchmarks/table.py PROJECT_DIR [--metric accuracy]

Scores are means over seeds with their 95% interval, differences are paired by seed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def interval(found: dict[str, Any], sign: bool = False) -> str:
    """``mean [low, high]`` times 100; the interval is left out below two seeds."""
    plus = "+" if sign else ""
    mean = f"{100 * found['mean']:{plus}.1f}"
    if found["low"] is None:
        return mean
    return f"{mean} [{100 * found['low']:{plus}.1f}, {100 * found['high']:{plus}.1f}]"


def differences(method: dict[str, Any], kind: str, sets: list[str]) -> str:
    """Paired differences on the development set to each method of one kind."""
    parts = []
    for other, found in method.get(kind, {}).items():
        if sets[0] in found:
            parts.append(f"{interval(found[sets[0]], sign=True)} ({other})")
    return "<br>".join(parts) or "-"


def _scored(value: dict[str, Any]) -> bool:
    """Whether an entry of a method holds scores ({metric: {mean, low, high, n}}) of one set."""
    return bool(value) and all(isinstance(score, dict) and "mean" in score for score in value.values())


def table(name: str, block: dict[str, Any], metric: str | None) -> str:
    """One task's table: every method, every set."""
    first = next(iter(block.values()))
    sets = [key for key, value in first.items() if isinstance(value, dict) and _scored(value)]
    sets.sort(key=lambda key: key != "dev")
    lines = [f"### {name}", ""]
    shown = {s: [metric] if metric in first[s] else list(first[s]) for s in sets}
    heads = [f"{s} {m}" for s in sets for m in shown[s]]
    columns = [
        "method",
        *heads,
        "gain (dev)",
        "minus replacement (dev)",
        "minus reference (dev)",
        "failed",
        "cost declared, measured",
    ]
    lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for method, found in block.items():
        cost = found["cost_ratio"]
        cells = [interval(found[s][m]) for s in sets for m in shown[s]]
        ratio = ", ".join("-" if cost[key] is None else f"{cost[key]:.2f}" for key in ("declared", "measured"))
        failed = f"{found['failed']} (+{found['collapsed']} collapsed)" if found["collapsed"] else str(found["failed"])
        roles = ("control", "replacement", "reference")
        row = [method, *cells, *(differences(found, f"versus_{role}", sets) for role in roles), failed, ratio]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project", type=Path)
    parser.add_argument("--metric", help="show this metric only, where a set has it")
    options = parser.parse_args()
    report = json.loads((options.project / "reports" / "results.json").read_text(encoding="utf-8"))
    print("\n\n".join(table(name, block, options.metric) for name, block in report.items()))


if __name__ == "__main__":
    main()
