"""One grid with every situation a report must show, built once for all tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from regft_core.report import Inputs, Report, write_report
from regft_core.schema.params import ReportConfig
from regft_core.settings.grid import Cell
from tests.report import synthetic as simulated

HOSTILE = "loss became NaN <script>alert('x')</script> & \"more\""


@dataclass(frozen=True)
class Built:
    """A project with its report written."""

    root: Path
    cells: list[Cell]
    seeds: tuple[int, ...]
    methods: dict[str, Any]
    config: ReportConfig
    report: Report

    def again(self, **changes: Any) -> Report:
        """Write the report once more, for instance of another grid."""
        out = changes.pop("out", Path("reports"))
        arguments = {"cells": self.cells, "seeds": self.seeds, "config": self.config} | changes
        return write_report(Inputs(self.root, methods=self.methods, **arguments), out)


@pytest.fixture(scope="session")
def synthetic() -> ModuleType:
    """The builder of ``work/`` trees."""
    return simulated


@pytest.fixture(scope="session")
def make(tmp_path_factory: pytest.TempPathFactory, synthetic: ModuleType) -> Any:
    """Build a tree and its report, whose files and page are written below ``out``, if anywhere."""

    def _make(
        arms: dict[str, Any], tasks: dict[str, Any], seeds: Any = range(6), sizes: Any = (300,), out: Any = None
    ) -> Built:
        root = tmp_path_factory.mktemp("project")
        cells = synthetic.build(root, arms, tasks, sizes, seeds)
        methods = synthetic.methods_of(arms)
        config = ReportConfig(bootstrap_samples=500)
        report = write_report(Inputs(root, cells, tuple(seeds), config, methods, training=synthetic.TRAINING), out)
        return Built(root, cells, tuple(seeds), methods, config, report)

    return _make


@pytest.fixture(scope="session")
def built(make: Any, synthetic: ModuleType) -> Built:
    """Two tasks, controls, a failed and a collapsed run, overrides, a search phase, hostile text."""
    arm = synthetic.Arm
    no_dropout = {"dropout": {"hidden": 0.0}}
    arms = {
        "hype_n": arm(0.84, overrides=no_dropout, seconds=12.0, logs=("hype.noise_scale",)),
        "vanilla": arm(0.72, description="plain <b>fine</b>-tuning"),
        "vanilla_no_dropout": arm(0.84, control_for="hype_n", overrides=no_dropout),
        "weight_mixup": arm(0.9, search=True, declared=4.0, seconds=20.0, variant="paper", failed={3: HOSTILE}),
        "weight_mixup_soup": arm(0.7, control_for="weight_mixup", declared=3.8, collapsed=(1,)),
        "r_drop": arm(0.6, declared=2.0, degraded=("bf16 <keeps> nothing",), curves=False),
    }
    tasks = {
        "sst2": synthetic.Task(n=300),
        "sick": synthetic.Task("regression", ("pearson", "mse"), n=80, ood=()),
    }
    return make(arms, tasks, out="reports")
