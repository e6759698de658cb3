"""Coverage of the intervals of tasks with folds, in simulated worlds whose true score is known, and on real sets.

    nice python benchmarks/fold_coverage.py [--worlds 400]     # writes results/folds.json
    python benchmarks/fold_coverage.py --data DIR --draws 12

*drawn*: n rows of accuracy 0.7 (difficulties of rows, or of groups, are Beta(7, 3)); each fold's model is better or
worse by a normal draw. *trained*: learners (nearest class mean or ridge regression) that are really trained on the
other folds, so that models share training rows. Each reads 8 features of its own, so all have the same true accuracy:
their differences are 0, and a "better" or "worse" is false. With ``--data`` the probe is evaluated by 5 folds, 2
repeats; truth is the score of the probe of all rows on 277 to 1,200 test rows. DIR is that of ``real_tasks.py``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from verdicts import RESULTS, write

from regft_core import metrics
from regft_core.statistics.arms import Arms
from regft_core.statistics.verdict import judge
from regft_core.training import logistic
from regft_core.training.linear_solution import classify_linearly

Array = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
SAMPLES = 400
#: Rows, folds, repeats, deviation of models, groups (0: none).
WORLDS = [
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


def drawn_world(n: int, folds: int, repeats: int, models: float, groups: int, worlds: int) -> tuple[float, float]:
    """(coverage, mean width) where models differ by a normal draw."""
    rng, covered, width = np.random.default_rng(1), 0, 0.0
    unit = np.arange(n) % groups if groups else np.arange(n)
    for _ in range(worlds):
        easy = rng.beta(7, 3, unit.max() + 1)[unit]
        parts = fold_rows(rng, folds, repeats, unit)
        arm = {s: (rng.random(len(at)) < easy[at] + rng.normal(0, models)).astype(int) for s, at in parts.items()}
        arms = Arms(
            {"a": arm}, np.ones(n, int), "accuracy", samples=SAMPLES, judged=parts, groups=unit if groups else None
        )
        found = arms.one("a")
        covered += found.low <= 0.7 <= found.high
        width += found.high - found.low
    return covered / worlds, width / worlds


def nearest_mean(x: Array, y: Rows) -> tuple[Array, float]:
    first, second = x[y == 0].mean(axis=0), x[y == 1].mean(axis=0)
    return second - first, float((first @ first - second @ second) / 2)


def ridge(x: Array, y: Rows) -> tuple[Array, float]:
    centre = x.mean(axis=0)
    weight = np.linalg.solve((x - centre).T @ (x - centre) + np.eye(x.shape[1]), (x - centre).T @ (y - y.mean()))
    return weight, float(y.mean() - 0.5 - centre @ weight)


def trained_world(k: int, n: int, folds: int, repeats: int, how: str, worlds: int) -> tuple[float, float, float]:
    """(share of tables with a false verdict, coverage of differences, their mean width) of k equal learners."""
    rng, size = np.random.default_rng([k, n, folds, repeats, len(how)]), 8
    fit, found = {"nearest mean": nearest_mean, "ridge": ridge}[how], []
    for _ in range(worlds):
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


def real_sets(data: Path, rows: list[int], draws: int) -> None:
    """Print how often the interval of the probe's folds covers the test score of the probe of all rows."""
    from strength import SETS, drawn, features, vectors

    found: dict[tuple[int, str], dict[str, list[tuple[bool, float, float]]]] = {}
    for name in SETS:
        train, test, y, answers = vectors(data, name)
        x, tests = features(train), features(test)
        parts = x.shape[1] // train[0].shape[1]
        for count in rows:
            for draw in range(draws):
                own = drawn(y, count, draw)
                judged, arm = {}, {}
                for repeat in range(2):
                    splits = logistic.folds_of(len(own), y[own].tolist(), None, 5, 100 * draw + repeat)
                    assert splits is not None
                    for fold, (others, at) in enumerate(splits):
                        seed = 5 * repeat + fold
                        judged[seed] = np.asarray(at)
                        arm[seed] = probe(x[own][others], y[own][others], x[own][at], parts)
                given = probe(x[own], y[own], tests, parts)
                for metric in ("accuracy", "f1_macro"):
                    said = Arms({"a": arm}, y[own], metric, samples=SAMPLES, judged=judged).one("a")
                    true = metrics.find(metric).score(answers, given, None)
                    covered = bool(said.low <= true <= said.high)
                    one = (covered, true - said.mean, said.high - said.low)
                    found.setdefault((count, metric), {}).setdefault(name, []).append(one)
    heads = ["rows", "metric", *SETS, "covered", "test minus expected, points", "width, points"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for (count, metric), of_sets in found.items():
        shown = [f"{sum(one[0] for one in of_set)} of {len(of_set)}" for of_set in of_sets.values()]
        every = np.array([one for of_set in of_sets.values() for one in of_set])
        covered, less, width = every.mean(axis=0)
        print(f"| {count} | {metric} | {' | '.join(shown)} | {covered:.3f} | {100 * less:+.1f} | {100 * width:.1f} |")


def probe(x: Array, y: Rows, asked: Array, parts: int) -> Rows:
    """Answers [m] of the probe of rows ``x`` [n, d] to ``asked`` [m, d]."""
    solution = classify_linearly(logistic.Rows(x, y, int(y.max()) + 1), parts)
    answers: Rows = (asked @ solution.weight.T + solution.bias).argmax(axis=1)
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--worlds", type=int, default=400)
    parser.add_argument("--out", type=Path, default=RESULTS / "folds.json")
    parser.add_argument("--data", type=Path, help="folder of the local sets; absent: simulated worlds")
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--rows", nargs="+", type=int, default=[50, 200])
    options = parser.parse_args()
    if options.data:
        real_sets(options.data, options.rows, options.draws)
        return
    rows: list[dict[str, Any]] = []
    for n, folds, repeats, models, groups in WORLDS:
        covered, width = drawn_world(n, folds, repeats, models, groups, options.worlds)
        of = {"models": "drawn", "rows": n, "folds": folds, "repeats": repeats, "differ": models, "groups": groups}
        rows.append(of | {"worlds": options.worlds, "coverage": round(covered, 4), "width": round(100 * width, 2)})
        write(options.out, rows)
    for k, n, folds, repeats, how in LEARNERS:
        false, covered, width = trained_world(k, n, folds, repeats, how, options.worlds)
        of = {"models": how, "learners": k, "rows": n, "folds": folds, "repeats": repeats, "worlds": options.worlds}
        rows.append(of | {"false": round(false, 4), "coverage": round(covered, 4), "width": round(100 * width, 2)})
        write(options.out, rows)
        print(rows[-1], flush=True)


if __name__ == "__main__":
    main()
