"""Judge a model on a set with other labels than its own, and notice swapped labels.

A set's label map goes by name, from the model's own label to the set's label, and may merge:
MNLI's ``neutral`` and ``contradiction`` are both HANS's ``non-entailment``. The model's argmax
is taken in its own label space and then mapped, so merging never lets two weak labels
outvote a strong one. The reported scores are probabilities summed over merged labels; their
argmax can therefore differ from the prediction.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core.errors import DataError
from regft_core.evaluation.metrics import check_pair

#: One-sided probability under which a result is called below chance.
BELOW_CHANCE_P = 1e-3
#: What a renaming of the predictions must reach to be suggested although accuracy is not below chance.
PERMUTATION_KAPPA = 0.3
PERMUTATION_P = 1e-6


def label_indices(
    own_labels: Sequence[str], set_labels: Sequence[str], label_map: Mapping[str, str] | None, set_name: str = "set"
) -> npt.NDArray[np.int64]:
    """Return [K]: for each of the model's own labels, the index of the set's label that it counts as.

    Without ``label_map`` the names must be the same (their order may differ).

    Raises:
        DataError: a label is missing from the map, or the map names a label that a side does not have.
    """
    mapping = {name: name for name in own_labels} if label_map is None else dict(label_map)
    problems = [
        f"own label '{name}' is not in label_map{_near(name, mapping)}" for name in own_labels if name not in mapping
    ]
    problems += [
        f"label_map names '{name}', which is not a label of the task{_near(name, own_labels)}"
        for name in mapping
        if name not in own_labels
    ]
    problems += [
        f"'{own}' maps to '{target}', which is not a label of the set{_near(target, set_labels)}"
        for own, target in mapping.items()
        if target not in set_labels
    ]
    if problems:
        raise DataError(
            "labels-differ",
            f"labels of '{set_name}': {'; '.join(problems)}. Own labels: {list(own_labels)}; labels of the set: "
            f"{list(set_labels)}. Write 'label_map: {{own label: label of the set}}' under 'ood.{set_name}'.",
        )
    return np.array([list(set_labels).index(mapping[name]) for name in own_labels], dtype=np.int64)


def map_logits(
    logits: npt.NDArray[Any], to_set: npt.NDArray[np.int64], n_set_labels: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Map own logits [n, K] through ``to_set`` [K] to (predictions [n], scores [n, ``n_set_labels``]).

    Scores are softmax probabilities, 0 for labels that no own label maps to.
    """
    values = logits.astype(np.float64)
    exponentials = np.exp(values - values.max(axis=1, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    merge = np.zeros((len(to_set), n_set_labels))
    merge[np.arange(len(to_set)), to_set] = 1.0
    return to_set[values.argmax(axis=1)], probabilities @ merge


def warn_if_permuted(labels: npt.ArrayLike, predictions: npt.ArrayLike, names: Sequence[str]) -> str | None:
    """Return a warning when predictions [n] look like the right labels under wrong names, else None.

    Chance is the accuracy expected if predictions and gold labels [n] (both indices into ``names``)
    were independent with the frequencies they have, so a constant prediction is exactly at chance.
    Warns when accuracy is below chance (one-sided binomial, p < 1e-3), or when it is not above
    chance while one renaming of the labels agrees well (kappa >= 0.3, p < 1e-6); names the best renaming.
    A warning and not an error, since a set built against a shortcut can really push a model below chance.
    """
    from scipy.optimize import linear_sum_assignment
    from scipy.stats import binom

    gold, predicted = check_pair("classification", labels, predictions)
    k, n = len(names), gold.size
    if max(gold.max(), predicted.max()) >= k:
        raise DataError(
            "not-class-indices",
            f"class index {int(max(gold.max(), predicted.max()))} is not one of the {k} labels {list(names)}",
        )
    counts = np.zeros((k, k))  # [prediction, gold]
    np.add.at(counts, (predicted, gold), 1)
    gold_rate, rate = counts.sum(axis=0) / n, counts.sum(axis=1) / n
    right, chance = float(np.trace(counts)), float(rate @ gold_rate)
    below = float(binom.cdf(right, n, chance)) < BELOW_CHANCE_P
    rows, renamed = linear_sum_assignment(counts, maximize=True)
    best, best_chance = float(counts[rows, renamed].sum()), float(rate @ gold_rate[renamed])
    kappa = (best / n - best_chance) / (1 - best_chance) if best_chance < 1 else 0.0
    fits = best > right and kappa >= PERMUTATION_KAPPA and float(binom.sf(best - 1, n, best_chance)) < PERMUTATION_P
    not_above = float(binom.sf(right - 1, n, chance)) > 0.05
    if not (below or (fits and not_above)):
        return None
    changes = [f"'{names[i]}' -> '{names[j]}'" for i, j in zip(rows, renamed) if i != j and rate[i] > 0]
    hint = f" Reading the predictions as {', '.join(changes)} would give {best / n:.3f}." if best > right else ""
    return (
        f"accuracy {right / n:.3f} is {'below' if below else 'not above'} chance ({chance:.3f}, n={n}).{hint} Check "
        "the order of 'labels' and the 'label_map'; if they are right, the set reverses what the model relies on."
    )


def warn_if_reversed(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> str | None:
    """Return a warning when a regression's predictions [n] fall while the labels [n] rise (Fisher z, p < 1e-3)."""
    gold, predicted = check_pair("regression", labels, predictions)
    if gold.size < 5 or np.ptp(gold) == 0 or np.ptp(predicted) == 0:
        return None
    correlation = float(np.clip(np.corrcoef(gold, predicted)[0, 1], -0.999999, 0.999999))
    if np.arctanh(correlation) * np.sqrt(gold.size - 3) > -3.09:  # the normal quantile of 1e-3
        return None
    return f"Pearson {correlation:.3f} is negative (n={gold.size}): check the direction of the set's scale"


def _near(name: str, options: Sequence[str] | Mapping[str, str]) -> str:
    near = difflib.get_close_matches(name, list(options), n=1)
    return f" (nearest: '{near[0]}')" if near else ""
