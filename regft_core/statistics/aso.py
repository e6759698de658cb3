"""Almost stochastic order of two score distributions.

Del Barrio, Cuesta-Albertos and Matran, 2018; proposed for neural models by Dror, Shlomov and
Reichart, "Deep dominance", ACL 2019. Own implementation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from regft_core.rng import derive

#: ``upper`` below this is called almost dominant; 0.5 is the formal bound, 0.2 what practice advises.
THRESHOLD = 0.2


@dataclass(frozen=True)
class StochasticOrder:
    """How far ``a`` is from dominating ``b``: 0 full dominance, 0.5 no order, 1 dominated."""

    violation: float
    #: Upper confidence bound of ``violation``: report this one.
    upper: float

    @property
    def dominant(self) -> bool:
        """Whether ``a`` almost stochastically dominates ``b``."""
        return self.upper < THRESHOLD


def almost_stochastic_order(
    a: Sequence[float], b: Sequence[float], *, samples: int = 1_000, confidence: float = 0.95, rng_seed: int = 0
) -> StochasticOrder:
    """Compare the scores of two arms (larger is better), one score per seed; they need not be paired.

    The violation is the share of the squared Wasserstein distance that comes from quantiles where ``a``
    lies below ``b``; equal samples give 0.5. The bound is the normal one with the bootstrap's deviation.
    With fewer than about ten seeds the bound is optimistic, as every bootstrap of few values is.

    Raises:
        ValueError: an arm has fewer than two scores.
    """
    if min(len(a), len(b)) < 2:
        raise ValueError(f"almost stochastic order needs two scores per arm, not {len(a)} and {len(b)}")
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    rng = np.random.default_rng(derive(rng_seed, "statistics.aso"))
    violation = float(_violation(x[None], y[None])[0])
    drawn = _violation(x[rng.integers(x.size, size=(samples, x.size))], y[rng.integers(y.size, size=(samples, y.size))])
    upper = violation + NormalDist().inv_cdf(confidence) * float(np.std(drawn))
    return StochasticOrder(violation, min(1.0, upper))


def _violation(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return [B] for samples x [B, n] and y [B, m]; the quantile functions are steps, so the integral is a sum."""
    n, m = x.shape[1], y.shape[1]
    # Breakpoints i/n and j/m as integers over n*m: no rounding decides which step a piece belongs to.
    edges = np.union1d(np.arange(n + 1) * m, np.arange(m + 1) * n)
    widths = np.diff(edges) / (n * m)
    gap = np.sort(x, axis=1)[:, edges[:-1] // m] - np.sort(y, axis=1)[:, edges[:-1] // n]
    total = gap**2 @ widths
    below = np.minimum(gap, 0.0) ** 2 @ widths
    return np.divide(below, total, out=np.full_like(total, 0.5), where=total > 0)
