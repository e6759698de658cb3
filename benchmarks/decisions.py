"""Bias, coverage and regret of the report's decision in simulated grids.

    nice python benchmarks/decisions.py    # writes results/decisions.json

Regret is the true score of the best method minus that of the chosen one, in points; bias is the expected score of the
chosen one minus its true score.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt
from verdicts import BASE, RESULTS, Seeds, answers, write

from regft_core.statistics.bootstrap import example_weights, two_level
from regft_core.statistics.decision import beliefs

POINT, RESAMPLES = 0.01, 300
#: Simulated grids of each cell; half of them with 20 and 34 methods.
WORLDS = 300
#: Methods, seeds and validation rows of the simulated grids.
GRIDS = ((2, 3, 100), (6, 3, 100), (6, 6, 300), (20, 6, 300), (34, 3, 300))
#: Of these also with every fifth method far off.
WITH_FAR = ((6, 3, 100), (20, 6, 300))
#: Deviation of true scores, in points; deviations over seeds (``mixed``: drawn for each method, by these shares).
DIFFERENCES, SPREADS = (0.0, 1.0, 3.0, 5.0), ("mixed", "4", "1.3")
MIXED, SHARES = (0.0, 2.5, 5.0, 10.0), (0.15, 0.4, 0.3, 0.15)
Array = npt.NDArray[np.float64]


def world(rng: np.random.Generator, grid: tuple[int, int, int], differ: float, spread: str, far: bool) -> list[Array]:
    """Return [[k, S, n] right answers, [k] true scores]; with ``far`` every fifth method is 25 points worse."""
    methods, seeds, rows = grid
    true = BASE + rng.normal(0, differ / 100, methods) - 0.25 * far * (np.arange(methods) % 5 == 1)
    true = np.round(200 * np.clip(true, 0.3, 0.93)) / 200  # few values: each spread of seeds is solved for
    spreads = rng.choice(MIXED, methods, p=SHARES) if spread == "mixed" else np.full(methods, float(spread))
    return [answers(rng, [Seeds(float(one)) for one in spreads], true.tolist(), seeds, rows), true]


def simulated(grid: tuple[int, int, int], differ: float, spread: str, far: bool, worlds: int) -> dict[str, float]:
    """Return the means of a cell, in points or as shares."""
    rng, found = np.random.default_rng([*grid, int(differ), len(spread), far]), []
    counts = example_weights(grid[2], RESAMPLES, 0) / grid[2]
    for _ in range(worlds):
        right, true = world(rng, grid, differ, spread, far)
        observed, resampled = right.mean(axis=2), np.einsum("bn,isn->bis", counts, right, optimize=True)
        alone = [two_level([*range(grid[1])], [], one, resampled[:, i], 0.95, 0) for i, one in enumerate(observed)]
        held, means = beliefs(observed, resampled, point=POINT), observed.mean(axis=1)
        # The mean error of all methods has the expectation 0: without it fewer worlds show a bias.
        pick, best, off = int(np.argmin([one.loss for one in held])), int(means.argmax()), float((means - true).mean())
        first = true > true.max() - 1e-9
        found.append(
            {
                "regret": 100 * (true.max() - true[pick]),
                "regret_best_mean": 100 * (true.max() - true[best]),
                "bias": 100 * (held[pick].expected - true[pick] - off),
                "bias_best_mean": 100 * (means[best] - true[best] - off),
                "coverage": held[pick].low <= true[pick] <= held[pick].high,
                "coverage_pointwise": alone[pick].low <= true[pick] <= alone[pick].high,
                "width": 100 * (held[pick].high - held[pick].low),
                "width_pointwise": 100 * (alone[pick].high - alone[pick].low),
                "said_best": held[pick].best,
                "is_best": first[pick] / first.sum(),
            }
        )
    return {key: round(float(np.mean([one[key] for one in found])), 4) for key in found[0]}


def main() -> None:
    rows = []
    for far, grid, spread, differ in product((False, True), GRIDS, SPREADS, DIFFERENCES):
        if far and (spread == "4" or grid not in WITH_FAR):
            continue
        place = dict(zip(("methods", "seeds", "rows"), grid, strict=True))
        place |= {"differ": differ, "spread": spread, "far": far}
        worlds = WORLDS if grid[0] <= 6 else WORLDS // 2
        rows.append(place | {"worlds": worlds} | simulated(grid, differ, spread, far, worlds))
        write(RESULTS / "decisions.json", rows)
        print(rows[-1], flush=True)


if __name__ == "__main__":
    main()
