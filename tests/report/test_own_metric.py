"""A metric is one file: it is validated, computed, resampled and reported without another line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regft_core.catalogue import METRICS

MISSES = '''\
"""How many examples of the positive label are missed, per hundred of them."""

from regft_core.lazy import np

KINDS = ("classification",)
LOWER_IS_BETTER = True
NEEDS_POSITIVE_LABEL = True
RANGE = (0.0, 100.0)
FACTOR = 1.0
DIGITS = 2
UNIT = "misses"


def score(gold, predicted, positive):
    of_class = gold == positive
    return float(100 * np.mean(predicted[of_class] != positive)) if of_class.any() else 0.0
'''


@pytest.fixture
def misses(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "misses.py").write_text(MISSES)
    with METRICS.also(tmp_path / "metrics"):
        yield


def test_it_is_reported_in_its_own_unit_and_direction(make: Any, synthetic: Any, misses: None) -> None:
    arms = {"vanilla": synthetic.Arm(0.6), "good": synthetic.Arm(0.95)}
    built = make(arms, {"sst2": synthetic.Task(metrics=("misses", "accuracy"), n=60, ood=())}, range(4))
    (against,) = built.report.blocks[0].row("good").against("reference")
    assert against.verdict.word == "better"
    assert against.estimate.mean < -10
    assert against.examples is None
    result = json.loads((built.root / "work/evaluate/good/sst2/300/result.json").read_text())
    first = result["runs"][0]["sets"]["dev"]["metrics"]["misses"]
    assert f"0: {first:.2f}<" in built.report.html
    assert "misses, 95%" in " ".join(built.report.findings[0].sentences)
    assert "evaluated by misses after" in built.report.html  # not times 100
