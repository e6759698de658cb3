"""Runs made of logits that are written down, without a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from regft_core.data.examples import Example
from regft_core.evaluate import analyses
from regft_core.evaluate.analysis_result import Findings
from regft_core.evaluate.evaluated import EvaluatedRun, EvaluatedSet

LABELS = ("no", "yes")


def judged(
    probabilities: Sequence[Sequence[float]],
    gold: Sequence[int],
    *,
    name: str = "dev",
    labels: Sequence[str] = LABELS,
    to_set: Sequence[int] | None = None,
    texts: Sequence[str] | None = None,
) -> EvaluatedSet:
    """A set whose logits are the logarithms of ``probabilities``, up to a constant per row."""
    logits = (np.log(np.asarray(probabilities)) + 3.0).astype(np.float64)
    words = texts or [f"text {i}" for i in range(len(gold))]
    examples = [Example(f"r{i}", words[i], None, label) for i, label in enumerate(gold)]
    mapped = np.arange(logits.shape[1]) if to_set is None else np.asarray(to_set)
    return EvaluatedSet(name, "classification", logits, np.asarray(gold), examples, tuple(labels), mapped)


def regression(predicted: Sequence[float], gold: Sequence[float]) -> EvaluatedSet:
    examples = [Example(f"r{i}", f"text {i}", f"pair {i}", value) for i, value in enumerate(gold)]
    logits = np.asarray(predicted, dtype=np.float64)[:, None]
    return EvaluatedSet("dev", "regression", logits, np.asarray(gold, dtype=float), examples, (), np.array([], int))


@pytest.fixture
def find() -> Callable[..., Findings]:
    """Run an evaluation on sets, without a model."""

    def _find(name: str, *sets: EvaluatedSet, **options: Any) -> Findings:
        evaluation = analyses.find(name)
        chosen = evaluation.Config(**options)
        by_name: Mapping[str, EvaluatedSet] = {one.name: one for one in sets}
        task = {"kind": sets[0].kind, "labels": list(LABELS) if sets[0].labels else None, "sets": {}}
        run = EvaluatedRun(task, 0, chosen, by_name, None)
        found = evaluation.run(run)
        found.as_json(by_name)  # is what an evaluation may find
        return found

    return _find
