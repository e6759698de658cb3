"""Coverage of the intervals of tasks with folds, in simulated worlds whose true score is known, and on real sets.

    python benchmarks/fold_coverage.py [--worlds 1000] [--learners 300]
    python benchmarks/fold_coverage.py --data DIR --draws 12

First table: n rows of accuracy 0.7 (difficulties of rows, or of groups, are Beta(7, 3)); each fold's model is better or
worse by a normal draw. Second: models that are really trained (nearest class mean and ridge regression, 20 features) on
the other folds, so that models share training rows; truth is the mean accuracy of many models of that many rows on many
new rows. Prints Markdown: the share of 95% intervals that cover the truth, its standard error, and their mean width.
With ``--data`` the probe is judged by 5 folds, 2 repeats; truth is the score of the probe of all rows on 277 to 1,200
test rows. DIR is that of ``real_tasks.py``.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from regft_core import metrics
from regft_core.statistics.arms import Arms
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
#: Rows, folds, repeats, shift between the classes in standard deviations.
LEARNERS = [(100, 5, 1, 1.0), (270, 5, 1, 1.0), (270, 5, 2, 1.0), (270, 10, 1, 0.6)]


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


def trained_world(n: int, folds: int, repeats: int, shift: float, worlds: int) -> dict[str, tuple[float, float]]:
    """What is estimated -> (coverage, mean width), of trained models and of their difference."""
    rng, size = np.random.default_rng(2), 20
    learners: dict[str, Callable[[Array, Rows], tuple[Array, float]]] = {"nearest mean": nearest_mean, "ridge": ridge}

    def draw(count: int) -> tuple[Array, Rows]:
        y = np.arange(count) % 2
        x = rng.normal(size=(count, size)) * np.linspace(0.5, 2, size)
        x[:, :3] += shift * (y[:, None] - 0.5)
        return x, y

    test_x, test_y = draw(20_000)
    scores: dict[str, list[float]] = {name: [] for name in learners}
    for _ in range(600):
        x, y = draw(n - n // folds)
        for name, fit in learners.items():
            weight, bias = fit(x, y)
            scores[name].append(float((((test_x @ weight + bias) > 0) == test_y).mean()))
    truth = {name: float(np.mean(found)) for name, found in scores.items()}
    covered, width = dict.fromkeys([*truth, "difference"], 0), dict.fromkeys([*truth, "difference"], 0.0)
    for _ in range(worlds):
        x, y = draw(n)
        parts = fold_rows(rng, folds, repeats, np.arange(n))
        arms: dict[str, dict[int, Rows]] = {name: {} for name in learners}
        for seed, at in parts.items():
            others = np.setdiff1d(np.arange(n), at)
            for name, fit in learners.items():
                weight, bias = fit(x[others], y[others])
                arms[name][seed] = (x[at] @ weight + bias > 0).astype(int)
        judged = Arms(arms, y, "accuracy", samples=SAMPLES, judged=parts)
        estimates = {name: (judged.one(name), truth[name]) for name in learners}
        difference = truth["nearest mean"] - truth["ridge"]
        estimates["difference"] = judged.difference("nearest mean", "ridge"), difference
        for name, (found, true) in estimates.items():
            covered[name] += found.low <= true <= found.high
            width[name] += found.high - found.low
    return {name: (covered[name] / worlds, width[name] / worlds) for name in covered}


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


def line(cells: list[object], share: float, width: float, worlds: int) -> str:
    error = math.sqrt(share * (1 - share) / worlds)
    return f"| {' | '.join(map(str, cells))} | {share:.3f} ± {error:.3f} | {100 * width:.1f} |"


def heading(*names: str) -> None:
    columns = ["rows", "folds", "repeats", *names, "covered", "width, points"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--worlds", type=int, default=1_000)
    parser.add_argument("--learners", type=int, default=300)
    parser.add_argument("--data", type=Path, help="folder of the local sets; absent: simulated worlds")
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--rows", nargs="+", type=int, default=[50, 200])
    options = parser.parse_args()
    if options.data:
        real_sets(options.data, options.rows, options.draws)
        return
    heading("models differ by", "groups")
    for world in WORLDS:
        n, folds, repeats, models, groups = world
        found = drawn_world(*world, options.worlds)
        print(line([n, folds, repeats, models, groups or "none"], *found, options.worlds), flush=True)
    print()
    heading("class shift", "estimated")
    for n, folds, repeats, shift in LEARNERS:
        for name, found in trained_world(n, folds, repeats, shift, options.learners).items():
            print(line([n, folds, repeats, shift, name], *found, options.learners), flush=True)


if __name__ == "__main__":
    main()
