"""A metric is one file: it is validated, computed, resampled and reported without another line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regft_core.catalogue import METRICS
from regft_core.errors import ConfigError
from regft_core.settings.read_project import load_project
from tests.errors import raises_code
from tests.statistics.single import one_arm

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
PROJECT = {
    "params.yaml": """\
model: {name: minilm}
grid: {tasks: [opinions], sizes: [100], seeds: [0, 1]}
methods: [vanilla]
training: {}
subsample: {}
report: {}
""",
    "pipelines/tasks/opinions.yaml": """\
source: {kind: files}
splits: {train: train.csv, dev: dev.csv}
columns: {text: sentence}
labels: [negative, positive]
metrics: [misses]
primary: misses
positive_label: positive
""",
    "pipelines/methods/vanilla.yaml": "override: true\ndescription: plain\n",
    "data/train.csv": "sentence,label\nGood,1\n",
    "data/dev.csv": "sentence,label\nFine,1\n",
}


@pytest.fixture
def misses(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "misses.py").write_text(MISSES)
    with METRICS.also(tmp_path / "metrics"):
        yield


def project(root: Path) -> Path:
    for name, text in PROJECT.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_it_is_validated(tmp_path: Path, misses: None) -> None:
    assert load_project(project(tmp_path / "p"), {}).tasks["opinions"].metrics == ("misses",)
    task = tmp_path / "p" / "pipelines/tasks/opinions.yaml"
    task.write_text(task.read_text().replace("misses", "mises"))
    with raises_code(ConfigError, "unknown-metric", "mises", "'misses'"):
        load_project(tmp_path / "p", {})


def test_without_its_file_it_is_unknown(tmp_path: Path) -> None:
    with raises_code(ConfigError, "unknown-metric", "opinions.yaml", "metrics[0]", "misses"):
        load_project(project(tmp_path / "p"), {})


def test_it_is_resampled_without_a_vectorised_form(misses: None) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=80)
    arm = {s: np.where(rng.random(80) < 0.8, labels, 1 - labels) for s in range(4)}
    found = one_arm(arm, labels, "misses", samples=300, positive_label_index=1)
    by_hand = [100 * float(np.mean(p[labels == 1] == 0)) for p in arm.values()]
    assert found.values == pytest.approx(by_hand)
    assert found.low < found.mean < found.high
    with pytest.raises(ValueError, match="positive label"):
        one_arm(arm, labels, "misses", samples=300)


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
    assert "judged by misses after" in built.report.html  # not times 100
