"""Whether probabilities are honest: bins of a reliability diagram, and the temperature that makes them so.

The temperature: Guo et al., ICML 2017, section 4.2.
"""

from __future__ import annotations

from collections.abc import Callable

from regft_core.lazy import Array, np, optimize

#: Smallest and largest temperature that is tried, as logarithms: far beyond what is ever found.
_LOG_TEMPERATURES = (-4.0, 4.0)


def fit_temperature(log_probabilities: Callable[[float], Array], gold: Array) -> float:
    """Return the temperature with the largest likelihood of labels ``gold`` [n], to 1e-6 of its logarithm.

    ``log_probabilities`` gives [n, K] at a temperature. Where every largest one is right, the smallest wins.
    """
    rows = np.arange(len(gold))

    def loss(logarithm: float) -> float:
        return float(-log_probabilities(float(np.exp(logarithm)))[rows, gold].mean())

    minimum = optimize.minimize_scalar(loss, bounds=_LOG_TEMPERATURES, method="bounded", options={"xatol": 1e-6})
    return float(np.exp(minimum.x))


def equal_mass(confidences: Array, bins: int) -> Array:
    """[n] bin of each confidence; bins start at the quantiles, ties share the later one."""
    ordered = np.sort(confidences)
    starts = ordered[[part[0] for part in np.array_split(np.arange(len(ordered)), bins) if len(part)]]
    return np.searchsorted(np.unique(starts), confidences, side="right") - 1
