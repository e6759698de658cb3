"""Coverage of the intervals of tasks with folds, in simulated worlds whose true score is known.

    nice python benchmarks/fold_coverage.py     # writes results/folds.json

*drawn*: n rows of accuracy 0.7 (difficulties of rows, or of groups, are Beta(7, 3)); each fold's model is better or
worse by a normal draw. *trained*: learners (nearest class mean or ridge regression) that are really trained on the
other folds, so that models share training rows. Each reads 8 features of its own, so all have the same true accuracy:
their differences are 0, and a "better" or "worse" is false.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from verdicts import RESULTS, write

from regft_core.statistics.arms import Arms
from regft_core.statistics.verdict import judge

Array = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
#: Resamples of an interval; simulated worlds of each cell.
SAMPLES, WORLDS = 400, 400
#: Rows, folds, repeats, deviation of models, groups (0: none).
SIZES = [
    (270, 5, 1, 0.0, 0),
    (270, 5, 1, 0.02, 0),
    (270, 5, 1, 0.05, 0),
    (270, 5, 2, 0.0, 0),
    (270, 5, 2, 0.05, 0),
    (270, 10, 1, 0.02, 0),
    (100, 5, 1, 0.02, 0),
    (270, 5, 1, 0.02, 54),
    (270, 5, 2, 0.02, 54),
    (270, 5, 1, 0.02, 15),
    (270, 5, 2, 0.05, 15),
]
#: Learners, rows, folds, repeats, how they learn.
LEARNERS = [
    (2, 60, 5, 2, "nearest mean"),
    (2, 120, 5, 2, "nearest mean"),
    (6, 60, 5, 2, "nearest mean"),
    (6, 120, 5, 2, "nearest mean"),
    (6, 120, 5, 2, "ridge"),
    (6, 120, 5, 1, "nearest mean"),
    (6, 270, 5, 1, "nearest mean"),
]


def fold_rows(rng: np.random.Generator, folds: int, repeats: int, unit: Rows) -> dict[int, Rows]:
    """Seed -> its rows; units [n] are kept together."""
    parts = {}
    for repeat in range(repeats):
        part_of = rng.permutation(np.arange(unit.max() + 1) % folds)[unit]
        parts |= {repeat * folds + fold: np.flatnonzero(part_of == fold) for fold in range(folds)}
    return parts


def drawn_world(n: int, folds: int, repeats: int, models: float, groups: int) -> tuple[float, float]:
    """(coverage, mean width) where models differ by a normal draw."""
    rng, covered, width = np.random.default_rng(1), 0, 0.0
    unit = np.arange(n) % groups if groups else np.arange(n)
    for _ in range(WORLDS):
        easy = rng.beta(7, 3, unit.max() + 1)[unit]
        parts = fold_rows(rng, folds, repeats, unit)
        arm = {s: (rng.random(len(at)) < easy[at] + rng.normal(0, models)).astype(int) for s, at in parts.items()}
        arms = Arms(
            {"a": arm}, np.ones(n, int), "accuracy", samples=SAMPLES, judged=parts, groups=unit if groups else None
        )
        found = arms.one("a")
        covered += found.low <= 0.7 <= found.high
        width += found.high - found.low
    return covered / WORLDS, width / WORLDS


def nearest_mean(x: Array, y: Rows) -> tuple[Array, float]:
    first, second = x[y == 0].mean(axis=0), x[y == 1].mean(axis=0)
    return second - first, float((first @ first - second @ second) / 2)


def ridge(x: Array, y: Rows) -> tuple[Array, float]:
    centre = x.mean(axis=0)
    weight = np.linalg.solve((x - centre).T @ (x - centre) + np.eye(x.shape[1]), (x - centre).T @ (y - y.mean()))
    return weight, float(y.mean() - 0.5 - centre @ weight)


def trained_world(k: int, n: int, folds: int, repeats: int, how: str) -> tuple[float, float, float]:
    """(share of tables with a false verdict, coverage of differences, their mean width) of k equal learners."""
    rng, size = np.random.default_rng([k, n, folds, repeats, len(how)]), 8
    fit, found = {"nearest mean": nearest_mean, "ridge": ridge}[how], []
    for _ in range(WORLDS):
        y = np.arange(n) % 2
        x = rng.normal(size=(k, n, size))
        x[:, :, :3] += 0.7 * (y[:, None] - 0.5)
        parts = fold_rows(rng, folds, repeats, np.arange(n))
        arms: dict[str, dict[int, Rows]] = {str(j): {} for j in range(k)}
        for seed, at in parts.items():
            others = np.setdiff1d(np.arange(n), at)
            for j in range(k):
                weight, bias = fit(x[j, others], y[others])
                arms[str(j)][seed] = (x[j, at] @ weight + bias > 0).astype(int)
        judged = Arms(arms, y, "accuracy", samples=SAMPLES, judged=parts)
        samples = [judged.sample(str(j), "0") for j in range(1, k)]
        words = {verdict.word for verdict in judge(samples, "reference", confidence=0.95, point=0.01)}
        ends = np.array([sample.pointwise for sample in samples])
        covered = (ends[:, 0] <= 0) & (ends[:, 1] >= 0)
        found.append((bool(words & {"better", "worse"}), covered.mean(), (ends[:, 1] - ends[:, 0]).mean()))
    false, covered, width = np.mean(found, axis=0)
    return float(false), float(covered), float(width)


def main() -> None:
    rows: list[dict[str, Any]] = []
    for n, folds, repeats, models, groups in SIZES:
        covered, width = drawn_world(n, folds, repeats, models, groups)
        of = {"models": "drawn", "rows": n, "folds": folds, "repeats": repeats, "differ": models, "groups": groups}
        rows.append(of | {"worlds": WORLDS, "coverage": round(covered, 4), "width": round(100 * width, 2)})
    for k, n, folds, repeats, how in LEARNERS:
        false, covered, width = trained_world(k, n, folds, repeats, how)
        of = {"models": how, "learners": k, "rows": n, "folds": folds, "repeats": repeats, "worlds": WORLDS}
        rows.append(of | {"false": round(false, 4), "coverage": round(covered, 4), "width": round(100 * width, 2)})
        print(rows[-1], flush=True)
    write(RESULTS / "folds.json", rows)


if __name__ == "__main__":
    main()
