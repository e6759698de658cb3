"""Expected best of k trials, for comparing arms at equal tuning budgets.

Tang et al., "Showing Your Work Doesn't Always Work", ACL 2020: the plug-in estimator of Dodge
et al. 2019 is biased downwards; drawing the k trials without replacement is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import comb


def expected_max(values: Sequence[float], k: int) -> float:
    """Return the mean, over all subsets of ``k`` of the trials' ``values``, of the subset's maximum.

    Raises:
        ValueError: ``k`` is not between 1 and the number of trials: a larger budget cannot be judged without trials.
    """
    n = len(values)
    if not 1 <= k <= n:
        raise ValueError(f"best of {k} cannot be estimated without bias from {n} trials; run more trials")
    total = comb(n, k)
    # The i-th smallest (0-based) is the maximum of comb(i, k - 1) subsets.
    return float(sum(float(Fraction(comb(i, k - 1), total)) * v for i, v in enumerate(sorted(values))))


def expected_max_curve(values: Sequence[float]) -> list[float]:
    """Return ``expected_max`` for every budget from 1 (the mean) to all trials (the maximum)."""
    return [expected_max(values, k) for k in range(1, len(values) + 1)]
