"""Predictions that look wrong as a whole: swapped labels, a reversed scale."""

from __future__ import annotations

from collections.abc import Sequence

from regft_core.lazy import Array, np, optimize, special  # stats takes a second, in every process that evaluates

#: One-sided probability under which a result is called below chance.
BELOW_CHANCE_P = 1e-3
#: What a renaming of the predictions must reach to be suggested although accuracy is not below chance.
PERMUTATION_KAPPA = 0.3
PERMUTATION_P = 1e-6


def warn_if_permuted(gold: Array, predicted: Array, names: Sequence[str]) -> str | None:
    """Return a warning when predictions [n] look like the right labels under wrong names, else None.

    Chance is the accuracy expected if predictions and gold labels [n] (both indices into ``names``)
    were independent with the frequencies they have, so a constant prediction is exactly at chance.
    Warns when accuracy is below chance (one-sided binomial, p < 1e-3), or when it is not above
    chance while one renaming of the labels agrees well (kappa >= 0.3, p < 1e-6); names the best renaming.
    A warning and not an error, since a set built against a shortcut can really push a model below chance.
    """
    k, n = len(names), gold.size
    counts = np.zeros((k, k))  # [prediction, gold]
    np.add.at(counts, (predicted, gold), 1)
    gold_rate, rate = counts.sum(axis=0) / n, counts.sum(axis=1) / n
    right, chance = float(np.trace(counts)), float(rate @ gold_rate)
    below = float(special.bdtr(right, n, chance)) < BELOW_CHANCE_P
    rows, renamed = optimize.linear_sum_assignment(counts, maximize=True)
    best, best_chance = float(counts[rows, renamed].sum()), float(rate @ gold_rate[renamed])
    kappa = (best / n - best_chance) / (1 - best_chance) if best_chance < 1 else 0.0
    by_chance = float(special.bdtrc(best - 1, n, best_chance))
    fits = best > right and kappa >= PERMUTATION_KAPPA and by_chance < PERMUTATION_P
    not_above = float(special.bdtrc(right - 1, n, chance)) > 0.05
    if not (below or (fits and not_above)):
        return None
    changes = [f"'{names[i]}' -> '{names[j]}'" for i, j in zip(rows, renamed) if i != j and rate[i] > 0]
    hint = f" Reading the predictions as {', '.join(changes)} would give {best / n:.3f}." if best > right else ""
    return (
        f"accuracy {right / n:.3f} is {'below' if below else 'not above'} chance ({chance:.3f}, n={n}).{hint} Check "
        "the order of 'labels' and the 'label_map'; if they are right, the set reverses what the model relies on."
    )


def warn_if_reversed(gold: Array, predicted: Array) -> str | None:
    """Return a warning when values [n] fall while the labels [n] rise (Fisher z, p < 1e-3)."""
    if gold.size < 5 or np.ptp(gold) == 0 or np.ptp(predicted) == 0:
        return None
    correlation = float(np.clip(np.corrcoef(gold, predicted)[0, 1], -0.999999, 0.999999))
    if np.arctanh(correlation) * np.sqrt(gold.size - 3) > -3.09:  # the normal quantile of 1e-3
        return None
    return f"Pearson {correlation:.3f} is negative (n={gold.size}): check the direction of the set's scale"
