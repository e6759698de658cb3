"""False positives, coverage and power of the report's verdicts, in simulated tables whose truth is known.

    nice python benchmarks/verdicts.py    # writes benchmarks/results/verdicts.json

A table compares methods with one reference. Rows differ in difficulty, methods in the rows that they get right; the
chance of a run to be right is a probit of a normal (or t3) draw whose deviation is the spread of seeds, in points. All
methods have the same expected accuracy of 75%, exactly; for the power a third of them has 82%. *False*: share of
tables with a "better" or a "worse". *Coverage*: share of tables whose intervals all contain the true difference, 0.
*Power*: share of methods with a gain that are found better.
"""

from __future__ import annotations

import json
import math
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import norm, t

from regft_core.statistics.bootstrap import example_weights
from regft_core.statistics.verdict import Sample, judge

Array = npt.NDArray[np.float64]
POINT, BASE, GAIN, RESAMPLES = 0.01, 0.75, 0.07, 600
#: Tables of each cell; a third of them with 34 methods, a fifth for the power.
WORLDS = 1000
RESULTS = Path(__file__).parent / "results"
_EVEN = (np.arange(1000) + 0.5) / 1000


class Seeds(NamedTuple):
    """How the accuracy of a method's runs varies over seeds."""

    #: Standard deviation, in points; share of runs that collapse to 50%; whether draws are of Student's t3.
    spread: float
    collapse: float = 0.0
    heavy: bool = False


#: Name -> (the reference, the other methods).
KINDS: dict[str, tuple[Seeds, Seeds]] = {
    "1.3 points": (Seeds(1.3), Seeds(1.3)),
    "4 points": (Seeds(4), Seeds(4)),
    "9 points": (Seeds(9), Seeds(9)),
    "19 points": (Seeds(19), Seeds(19)),
    "9 points, t3": (Seeds(9, heavy=True), Seeds(9, heavy=True)),
    "15% collapse": (Seeds(4, 0.15), Seeds(4, 0.15)),
    "30% collapse": (Seeds(4, 0.3), Seeds(4, 0.3)),
    "9 points, frozen reference": (Seeds(0), Seeds(9)),
    "1.3 points, reference 9": (Seeds(9), Seeds(1.3)),
}
#: Methods (with the reference), seeds, rows.
SIZES = ((2, 3, 300), (6, 2, 60), (6, 3, 60), (6, 3, 300), (6, 6, 300), (6, 10, 60), (34, 3, 300), (34, 6, 300))


@cache
def probit(seeds: Seeds, mean: float) -> tuple[float, float]:
    """Return (a, b): runs whose chance is Phi(a + b z) have this ``mean`` (with collapses) and spread (without)."""
    target = (mean - 0.5 * seeds.collapse) / (1 - seeds.collapse)
    z = t.ppf(_EVEN, 3) / math.sqrt(3) if seeds.heavy else norm.ppf(_EVEN)

    def centre(b: float) -> float:
        return float(brentq(lambda a: float(ndtr(a + b * z).mean()) - target, -100, 100))

    def excess(b: float) -> float:
        return float(ndtr(centre(b) + b * z).std()) - seeds.spread / 100

    slope = float(brentq(excess, 1e-6, 5)) if seeds.spread else 0.0
    return centre(slope), slope


def answers(rng: np.random.Generator, kinds: list[Seeds], means: list[float], seeds: int, rows: int) -> Array:
    """Return [k, S, n], 1 where a run is right. Methods without any spread answer alike under every seed."""
    k = len(kinds)
    draws, heavy = rng.standard_normal((k, seeds)), rng.standard_t(3, (k, seeds)) / math.sqrt(3)
    level, slope = np.array([probit(kind, mean) for kind, mean in zip(kinds, means, strict=True)]).T
    skill = level[:, None] + slope[:, None] * np.where([[kind.heavy] for kind in kinds], heavy, draws)
    skill = np.where(rng.random((k, seeds)) < np.array([[kind.collapse] for kind in kinds]), 0.0, skill)
    own = rng.standard_normal((k, seeds, rows))
    still = [i for i, kind in enumerate(kinds) if kind.spread == kind.collapse == 0]
    own[still] = own[still, :1]
    latent = math.sqrt(0.5) * rng.standard_normal(rows) + 0.5 * rng.standard_normal((k, 1, rows)) + 0.5 * own
    return (latent < skill[:, :, None]).astype(np.float64)


def samples_of(right: Array) -> list[Sample]:
    """Every method minus the first one, as ``Arms.sample`` describes it."""
    differences = right[1:] - right[:1]
    _, seeds, rows = differences.shape
    values, means = differences.mean(axis=2), differences.mean(axis=1)
    moved = (example_weights(rows, RESAMPLES, 0) - 1.0) @ means.T / rows
    inner = (differences - means[:, None]).var(axis=2).sum(axis=1) / (seeds - 1) / rows
    shared = np.maximum(0.0, means.var(axis=1) / rows - inner / seeds)
    stretched = (t.ppf(0.975, seeds - 1) / norm.ppf(0.975)) ** 2 * values.var(axis=1, ddof=1) / seeds
    half, mean = norm.ppf(0.975) * np.sqrt(stretched + shared), values.mean(axis=1)
    same = (differences == 0).all(axis=(1, 2))
    return [
        Sample(values[i], moved[:, i], inner[i], rows, 1.0, (mean[i] - half[i], mean[i] + half[i]), bool(same[i]))
        for i in range(len(differences))
    ]


def cell(name: str, size: tuple[int, int, int], worlds: int, gain: float) -> tuple[float, float]:
    """Return (share of tables with a false verdict, coverage), or with a ``gain`` (power, NaN)."""
    methods, seeds, rows = size
    rng, found = np.random.default_rng([*name.encode(), *size, round(100 * gain)]), []
    gaining = np.arange(methods) % 3 == 1
    reference, other = KINDS[name]
    for _ in range(worlds):
        means = [BASE + gain * bool(own) for own in gaining]
        right = answers(rng, [reference] + [other] * (methods - 1), means, seeds, rows)
        verdicts = judge(samples_of(right), "reference", confidence=0.95, point=POINT)
        words = np.array([verdict.word for verdict in verdicts])
        if gain:
            found.append((float((words[gaining[1:]] == "better").mean()), math.nan))
        else:
            found.append((bool(np.isin(words, ("better", "worse")).any()), all(v.low <= 0 <= v.high for v in verdicts)))
    false, covered = np.mean(found, axis=0)
    return float(false), float(covered)


def write(out: Path, rows: list[dict[str, Any]]) -> None:
    """Write the rows of a table as JSON, one a line."""
    out.parent.mkdir(exist_ok=True)
    out.write_text('{"cells": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]}\n", encoding="utf-8")


def main() -> None:
    rows = list[dict[str, Any]]()
    for name, size in product(KINDS, SIZES):
        worlds = WORLDS // 3 if size[0] > 6 else WORLDS
        row = {"spread": name} | dict(zip(("methods", "seeds", "rows"), size, strict=True)) | {"worlds": worlds}
        false, covered = cell(name, size, worlds, 0.0)
        row |= {"false": round(false, 4), "coverage": round(covered, 4)}
        rows.append(row | {"power": round(cell(name, size, WORLDS // 5, GAIN)[0], 4)})
        print(rows[-1], flush=True)
        write(RESULTS / "verdicts.json", rows)


if __name__ == "__main__":
    main()
