"""Write the tables of benchmarks/statistics.md from the files in benchmarks/results.

python benchmarks/statistics_page.py                 # tables between their marks in statistics.md
python benchmarks/statistics_page.py deviations      # writes results/deviations.json (a minute)
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import f
from verdicts import RESULTS, read, write

from regft_core.statistics.reproduction import log_ratio

PAGE = Path(__file__).parent / "statistics.md"


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def verdicts() -> str:
    """False positives and power by the spread of seeds, of the rule now."""
    cells = read(RESULTS / "verdicts.json")
    sizes = list(dict.fromkeys((c["methods"], c["seeds"], c["rows"]) for c in cells))
    by = {(c["spread"], c["methods"], c["seeds"], c["rows"]): f"{c['false']:.3f}; {c['power']:.2f}" for c in cells}
    rows = (
        [name, *(by.get((name, *size), "") for size in sizes)] for name in dict.fromkeys(c["spread"] for c in cells)
    )
    return table(["spread of seeds", *(", ".join(map(str, size)) for size in sizes)], rows)


def decisions() -> str:
    cells = read(RESULTS / "decisions.json")
    rows = []
    for place in dict.fromkeys((c["methods"], c["seeds"], c["rows"], c["far"]) for c in cells):
        own = [c for c in cells if (c["methods"], c["seeds"], c["rows"], c["far"]) == place]
        mean = {key: float(np.mean([c[key] for c in own])) for key in own[0] if key not in ("spread", "far")}
        bias = f"{mean['bias']:+.2f} ({min(c['bias'] for c in own):+.1f} to {max(c['bias'] for c in own):+.1f})"
        grid = ", ".join(map(str, place[:3])) + (", a fifth far off" if place[3] else "")
        shown = [("bias_best_mean", "+.2f"), ("coverage", ".3f"), ("coverage_pointwise", ".3f"), ("width", ".1f")]
        numbers = [format(mean[key], how) for key, how in (*shown, ("regret", ".2f"), ("regret_best_mean", ".2f"))]
        rows.append([grid, bias, *numbers, f"{mean['said_best']:.2f}; {mean['is_best']:.2f}"])
    heads = [
        "methods, seeds, rows",
        "bias",
        "of the best mean",
        "coverage",
        "of the pointwise interval",
        "width",
        "regret",
    ]
    return table([*heads, "of the best mean", "best: stated; true"], rows)


def folds() -> str:
    cells = [c for c in read(RESULTS / "folds.json") if c["models"] != "drawn"]
    shown = ([*(c[k] for k in ("models", "learners", "rows")), f"{c['folds']} x {c['repeats']}"] for c in cells)
    numbers = ([f"{c['false']:.3f}", f"{c['coverage']:.3f}", f"{c['width']:.1f}"] for c in cells)
    rows = [[*a, *b] for a, b in zip(shown, numbers, strict=True)]
    return table(["learner", "learners", "rows", "folds x repeats", "false", "coverage", "width, points"], rows)


def deviations() -> str:
    cells = read(RESULTS / "deviations.json")
    shown = ((f"{c['f']:.3f}; {c['f_finds']:.2f}", f"{c['now']:.3f}; {c['finds']:.2f}") for c in cells)
    rows = ([c["scores"], c["seeds"], *numbers] for c, numbers in zip(cells, shown, strict=True))
    return table(["scores", "seeds", "F interval", "interval now"], rows)


def simulate_deviations(worlds: int = 2000) -> None:
    """How often equal deviations are told apart, and a threefold one is found, by Fisher's F and by ``log_ratio``."""
    rng, rows = np.random.default_rng(0), []
    for scores in ("normal", "t3", "10% collapse", "20% collapse"):
        for seeds in (5, 6, 10, 20):
            draws = rng.standard_t(3, (2, worlds, seeds)) if scores == "t3" else rng.standard_normal((2, worlds, seeds))
            if "collapse" in scores:
                draws = np.where(rng.random(draws.shape) < int(scores[:2]) / 100, -8.0, draws)
            row: dict[str, Any] = {"scores": scores, "seeds": seeds, "worlds": worlds}
            for name, factor in (("", 1.0), ("_finds", 3.0)):
                ratio = np.log(factor * draws[0].std(axis=1, ddof=1) / draws[1].std(axis=1, ddof=1))
                half = 0.5 * math.log(f.ppf(0.975, seeds - 1, seeds - 1))
                robust = np.array([log_ratio(factor * a, b)[1:] for a, b in zip(*draws, strict=True)])
                told = [np.abs(ratio) > half, (robust[:, 0] > 0) | (robust[:, 1] < 0)]
                row[f"f{name}"], row["now" if not name else "finds"] = (round(float(one.mean()), 4) for one in told)
            rows.append(row)
    write(RESULTS / "deviations.json", rows)


def page(text: str) -> str:
    """Return ``text`` with the tables between its marks."""
    for made in (verdicts, decisions, folds, deviations):
        before, mark, after = text.partition(f"<!-- {made.__name__} -->\n")
        text = before + mark + made() + "\n" + after[after.index("<!-- end -->") :]
    return text


if __name__ == "__main__":
    if sys.argv[1:] == ["deviations"]:
        simulate_deviations()
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
