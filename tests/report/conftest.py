"""One grid with every situation a report must show, built once for all tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from regft_core.report import write_report
from regft_core.report.read_grid import Inputs
from regft_core.report.values import Report
from tests.report.synthetic import Arm, Task, inputs_of

HOSTILE = "loss became NaN <script>alert('x')</script> & \"more\""


@dataclass(frozen=True)
class Built:
    """A project with its report written."""

    inputs: Inputs
    report: Report

    @property
    def root(self) -> Path:
        return self.inputs.root

    def again(self, out: Path | None = Path("reports"), **changes: Any) -> Report:
        """Write the report once more, for instance of another grid."""
        return write_report(replace(self.inputs, **changes), out)


@pytest.fixture(scope="session")
def make(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Build a tree and its report, whose files and page are written below ``out``, if anywhere."""

    def _make(arms: Any, tasks: Any, seeds: Any = range(6), sizes: Any = (300,), out: Any = None, **more: Any) -> Built:
        root, config = tmp_path_factory.mktemp("project"), {"bootstrap_samples": 500, **more}
        inputs = inputs_of(root, arms, tasks, seeds, sizes, **config)
        return Built(inputs, write_report(inputs, out))

    return _make


@pytest.fixture(scope="session")
def built(make: Any) -> Built:
    """Two tasks, controls, a failed and a collapsed run, overrides, a search phase, hostile text."""
    no_dropout = {"dropout": {"hidden": 0.0}}
    arms = {
        "hype_n": Arm(0.84, overrides=no_dropout, seconds=12.0),
        "vanilla": Arm(0.72, description="plain <b>fine</b>-tuning"),
        "vanilla_no_dropout": Arm(0.84, control_for="hype_n", overrides=no_dropout),
        "weight_mixup": Arm(0.9, search=True, declared=4.0, seconds=20.0, variant="paper", failed={3: HOSTILE}),
        "weight_mixup_soup": Arm(0.7, control_for="weight_mixup", declared=3.8, collapsed=(1,)),
        "r_drop": Arm(0.6, declared=2.0, degraded=("bf16 <keeps> nothing",), curves=False),
    }
    tasks = {"sst2": Task(n=300), "sick": Task("regression", ("pearson", "mse"), n=80, ood=())}
    return make(arms, tasks, out="reports")
