"""False words and power of five rules that compare the methods of one table with a reference.

    nice python benchmarks/verdicts.py [--worlds 300] [--power 60]

A world has methods that are right on rows of unlike difficulty. Seeds spread a method's skill by 0 (15% of them, which
then answer alike under every seed), 2.5, 5 or 10 points (15%); a tenth collapses to 50% in 15% of their runs; a tenth
answers as another method does; in half of the worlds the reference spreads too. *False*: share of tables with a
"better" where the true expected score is not higher, or a "worse" where it is not lower. *Power*: share of methods with
a true gain of 7 points (a third of them) that get the word.

Rules: the report's (``statistics.verdict``); pointwise, the seed part stretched by Student's t; that with Bonferroni;
seed variances moderated (Smyth 2004), stretched, with Bonferroni. ``--paid`` gives methods that collapse better runs
otherwise, so that their expected score is that of the others.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from scipy.special import digamma, polygamma
from scipy.stats import norm, t

from regft_core.statistics.verdict import Sample, judge

Array = npt.NDArray[np.float64]
POINT, BASE, GAIN = 0.01, 0.8, 7.0
SPREADS, SHARES = (0.0, 0.025, 0.05, 0.10), (0.15, 0.4, 0.3, 0.15)
COLLAPSING, TIED, RATE = 0.1, 0.1, 0.15
RESAMPLES = 600
_GRID = norm.ppf((np.arange(200) + 0.5) / 200)


def skill(target: float, spread: float) -> float:
    """The typical skill of runs whose mean is ``target``; skills are cut at 2% and 98%."""
    low, high = target - 0.1, target + 0.1
    for _ in range(30):
        middle = (low + high) / 2
        below = np.clip(middle + spread * _GRID, 0.02, 0.98).mean() < target
        low, high = (middle, high) if below else (low, middle)
    return (low + high) / 2


def world(rng: np.random.Generator, k: int, n: int, seeds: int, gain: float, paid: bool) -> tuple[Array, Array]:
    """Return ([k - 1, S, n] differences to the reference, [k - 1] true ones), both in points."""
    spread = rng.choice(SPREADS, k, p=SHARES)
    spread[0] = 0.0 if rng.random() < 0.5 else rng.choice(SPREADS[1:3])
    collapses = rng.random(k) < COLLAPSING
    collapses[0] = False
    gains = np.where(rng.random(k) < 1 / 3, gain / 100, 0.0) if gain else np.zeros(k)
    gains[0] = 0.0
    of_runs = np.empty((k, seeds))
    for i in range(k):
        target = BASE + gains[i]
        if collapses[i] and paid:
            target = min((target - 0.5 * RATE) / (1 - RATE), 0.97)
        of_runs[i] = np.clip(skill(target, spread[i]) + spread[i] * rng.standard_normal(seeds), 0.02, 0.98)
        if collapses[i]:
            of_runs[i] = np.where(rng.random(seeds) < RATE, 0.5, of_runs[i])
            gains[i] -= 0.0 if paid else RATE * (target - 0.5)
    own = rng.standard_normal((k, seeds, n))
    still = (spread == 0) & ~collapses
    own[still] = own[still][:, :1]
    latent = np.sqrt(0.5) * rng.standard_normal(n) + 0.5 * rng.standard_normal((k, 1, n)) + 0.5 * own
    right = latent < norm.ppf(of_runs)[:, :, None]
    for i in range(2, k):
        if rng.random() < TIED:
            j = int(rng.integers(1, i))
            right[i], gains[i] = right[j], gains[j]
    return 100 * (right[1:].astype(float) - right[:1]), 100 * gains[1:]


class Table:
    """What the rules see of one world."""

    def __init__(self, differences: Array, rng: np.random.Generator) -> None:
        self.m, self.seeds, self.n = differences.shape
        self.values, means = differences.mean(axis=2), differences.mean(axis=1)
        counts = rng.multinomial(self.n, np.full(self.n, 1 / self.n), RESAMPLES) / self.n
        self.rows = (counts - 1 / self.n) @ means.T
        self.inner = (differences - means[:, None]).var(axis=2).sum(axis=1) / (self.seeds - 1) / self.n
        self.shared = np.maximum(0.0, means.var(axis=1) / self.n - self.inner / self.seeds)
        self.same = (differences == 0).all(axis=(1, 2))

    def half(self, variances: Array, freedom: float, confidence: float) -> Array:
        """Half widths: the seed part stretched by Student's t."""
        upper = (1 + confidence) / 2
        stretch = float(t.ppf(upper, freedom) / norm.ppf(upper)) ** 2
        return np.asarray(norm.ppf(upper) * np.sqrt(stretch * variances / self.seeds + self.shared))

    def words(self, half: Array) -> Array:
        mean = self.values.mean(axis=1)
        return np.where(np.abs(mean) > half, np.sign(mean), 0)


def pointwise(table: Table, confidence: float = 0.95) -> Array:
    return table.words(table.half(table.values.var(axis=1, ddof=1), table.seeds - 1, confidence))


def bonferroni(table: Table) -> Array:
    return pointwise(table, 1 - 0.05 / table.m)


def moderated(table: Table) -> Array:
    """Smyth's moderated variances; the prior's freedom by his equation 10."""
    own, freedom = table.values.var(axis=1, ddof=1), table.seeds - 1
    logs = np.log(own[own > 0])
    if len(logs) < 2:
        return bonferroni(table)
    shifted = logs - digamma(freedom / 2) + np.log(freedom / 2)
    excess = shifted.var(ddof=1) - polygamma(1, freedom / 2)
    if excess <= 0:
        return table.words(table.half(np.full(table.m, np.exp(shifted.mean())), 1e6, 1 - 0.05 / table.m))
    y = 0.5 + 1 / excess
    for _ in range(50):  # Newton, for trigamma(y) = excess
        y += polygamma(1, y) * (1 - polygamma(1, y) / excess) / polygamma(2, y)
    prior = np.exp(shifted.mean() + digamma(y) - np.log(y))
    variances = (2 * y * prior + freedom * own) / (2 * y + freedom)
    return table.words(table.half(variances, 2 * y + freedom, 1 - 0.05 / table.m))


def report(table: Table) -> Array:
    """The rule of ``statistics.verdict``."""
    half, mean = table.half(table.values.var(axis=1, ddof=1), table.seeds - 1, 0.95), table.values.mean(axis=1)
    samples = [
        Sample(
            table.values[i] * POINT, table.rows[:, i] * POINT, table.inner[i] * POINT**2, table.n, 1.0,
            ((mean[i] - half[i]) * POINT, (mean[i] + half[i]) * POINT), bool(table.same[i]),
        )
        for i in range(table.m)
    ]  # fmt: skip
    signs = {"better": 1, "worse": -1}
    return np.array([signs.get(found.word, 0) for found in judge(samples, "reference", confidence=0.95, point=POINT)])


RULES: dict[str, Callable[[Table], Array]] = {
    "pointwise": pointwise, "Bonferroni": bonferroni, "moderated": moderated, "report": report,
}  # fmt: skip


def measured(k: int, n: int, seeds: int, worlds: int, gain: float, paid: bool) -> Iterator[float]:
    """Rule by rule: the share of tables with a false word, or with a ``gain`` the power."""
    rng, found = np.random.default_rng([k, n, seeds, int(gain)]), []
    for _ in range(worlds):
        differences, true = world(rng, k, n, seeds, gain, paid)
        table = Table(differences, rng)
        words = [rule(table) for rule in RULES.values()]
        gaining = true > GAIN - 1
        if gain and not gaining.any():
            continue
        if gain:
            found.append([float((word[gaining] > 0).mean()) for word in words])
        else:
            found.append([bool(((word > 0) & (true <= 1e-9) | (word < 0) & (true >= -1e-9)).any()) for word in words])
    yield from np.mean(found, axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--worlds", type=int, default=300)
    parser.add_argument("--power", type=int, default=60, help="worlds for the power; 0: none")
    parser.add_argument("--paid", action="store_true")
    parser.add_argument("--methods", type=int, nargs="+", default=[6, 34, 62])
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 6, 10])
    parser.add_argument("--rows", type=int, nargs="+", default=[60, 300, 1000])
    options = parser.parse_args()
    print("| methods, rows, seeds | " + " | ".join(RULES) + " |\n|---|" + "---|" * len(RULES))
    begun = time.time()
    for k in options.methods:
        for n in options.rows:
            for seeds in options.seeds:
                false = measured(k, n, seeds, options.worlds, 0.0, options.paid)
                cells = [f"{value:.3f}" for value in false]
                if options.power:
                    power = measured(k, n, seeds, options.power, GAIN, options.paid)
                    cells = [f"{one}; {value:.2f}" for one, value in zip(cells, power, strict=True)]
                print(f"| {k}, {n}, {seeds} | " + " | ".join(cells) + " |", flush=True)
    print(f"\n{time.time() - begun:.0f} s")


if __name__ == "__main__":
    main()
