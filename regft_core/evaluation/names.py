"""The names of the metrics, importable without torch, scipy and scikit-learn.

All metrics are fractions or correlations, never percentages.
"""

from __future__ import annotations

CLASSIFICATION_METRICS: tuple[str, ...] = ("accuracy", "f1", "f1_macro", "matthews", "accuracy_f1")
REGRESSION_METRICS: tuple[str, ...] = ("pearson", "spearman", "pearson_spearman", "mse")

#: Every other metric is better when larger.
LOWER_IS_BETTER: frozenset[str] = frozenset({"mse"})


def allowed_metrics(kind: str) -> tuple[str, ...]:
    """Return the metric names of a task ``kind`` (``classification`` or ``regression``)."""
    if kind == "classification":
        return CLASSIFICATION_METRICS
    if kind == "regression":
        return REGRESSION_METRICS
    raise ValueError(f"kind {kind!r} is neither 'classification' nor 'regression'")


def higher_is_better(name: str) -> bool:
    """Return whether a larger value of metric ``name`` is the better one."""
    if name not in CLASSIFICATION_METRICS + REGRESSION_METRICS:
        raise ValueError(f"unknown metric {name!r}; known: {', '.join(CLASSIFICATION_METRICS + REGRESSION_METRICS)}")
    return name not in LOWER_IS_BETTER
