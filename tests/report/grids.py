"""Simulated grids of 1, 6 and 62 methods, and of several tasks.

``python -m tests.report.grids`` writes the golden text anew; with a folder also all pages and terminals there.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from rich.console import Console

from regft_core.report import write_report
from regft_core.report.leaderboard import show
from regft_core.report.values import Report
from tests.report.synthetic import Arm, Task, inputs_of

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "terminal.txt"
COMMAND = "python -m tests.report.grids"
ROOTS = ("hype", "tdt", "pats", "weight_mixup", "mask_tuning", "r_drop", "mixout", "child_tuning")
CUES = Task(metrics=("accuracy",), n=128, ood=("no_cue", "reversed"))


def _six() -> dict[str, Arm]:
    plain = {"dropout": {"hidden": 0.0}}
    return {
        "vanilla": Arm(0.88, shift=-0.6, description="plain fine-tuning"),
        "hype_n": Arm(0.90, shift=-0.6, overrides=plain, seconds=10.4),
        "vanilla_no_dropout": Arm(0.90, shift=-0.6, overrides=plain, control_for="hype_n"),
        "weight_mixup": Arm(0.93, shift=-0.5, search=True, declared=4.0, seconds=41.0, failed={3: "loss became NaN"}),
        "r_drop": Arm(0.80, shift=-0.4, declared=2.0, seconds=20.0, collapsed=(1,)),
        "linear_probe": Arm(0.82, shift=-0.05, declared=0.03, seconds=0.4, trains_encoder=False, curves=False),
    }


def _many(count: int) -> dict[str, Arm]:
    """Families of a method, its control and its variants; one frozen encoder."""
    arms = {
        "vanilla": Arm(0.78, shift=-0.5, curves=False),
        "linear_probe": Arm(0.74, shift=0.0, declared=0.03, seconds=0.4, trains_encoder=False, curves=False),
    }
    for i in range(count):
        root = ROOTS[i % len(ROOTS)]
        at, name = 0.70 + 0.02 * (i % 11) + 0.0003 * i, root if i < len(ROOTS) else f"{root}_variant_{i // len(ROOTS)}"
        arms[name] = Arm(at, shift=-0.5, declared=1.0 + i % 3, seconds=10.0 * (1 + i % 3), curves=False)
        if i < len(ROOTS):
            arms[f"{root}_off"] = Arm(0.76, shift=-0.5, control_for=root, curves=False)
    return dict(list(arms.items())[:count])


def _tasks() -> dict[str, Task]:
    tags = Task("multi_label", ("f1_micro", "f1_macro"), n=80, ood=(), labels=("fast", "cheap", "good"))
    return {"reviews": CUES, "stars": Task("regression", ("pearson", "mse"), n=80, ood=("shop",)), "tags": tags}


GRIDS: dict[str, Callable[[], tuple[dict[str, Arm], dict[str, Task], int]]] = {
    "1-method": lambda: ({"vanilla": Arm(0.88)}, {"reviews": CUES}, 3),
    "6-methods": lambda: (_six(), {"reviews": CUES}, 6),
    "62-methods": lambda: (_many(62), {"reviews": CUES}, 4),
    "3-tasks": lambda: (_six(), _tasks(), 6),
}


@cache
def report(name: str) -> Report:
    """The report of one grid, with its page."""
    arms, tasks, seeds = GRIDS[name]()
    root = Path(mkdtemp(prefix=f"regft-{name}-"))
    return write_report(inputs_of(root, arms, tasks, range(seeds), bootstrap_samples=200))


def terminal(found: Report, width: int) -> str:
    """What the terminal shows at a width."""
    console = Console(width=width, file=io.StringIO())
    show(found, console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


if __name__ == "__main__":
    GOLDEN.write_text(terminal(report("3-tasks"), 80), encoding="utf-8")
    for folder in map(Path, sys.argv[1:]):
        for grid in GRIDS:
            (folder / f"{grid}.html").write_text(report(grid).html, encoding="utf-8")
            (folder / f"{grid}.txt").write_text(terminal(report(grid), 80), encoding="utf-8")
