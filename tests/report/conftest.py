"""One grid with every situation a report must show, built once for all tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from regft_core.report import Inputs, Report, write_report
from regft_core.schema.params import ReportConfig
from regft_core.settings.project import Cell
from tests.report.synthetic import TRAINING, Arm, Task, build, methods_of

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

    @property
    def inputs(self) -> Inputs:
        return Inputs(self.root, self.cells, self.seeds, self.config, self.methods)

    def again(self, out: Path | None = Path("reports"), **changes: Any) -> Report:
        """Write the report once more, for instance of another grid."""
        return write_report(replace(self.inputs, **changes), out)


@pytest.fixture(scope="session")
def make(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Build a tree and its report, whose files and page are written below ``out``, if anywhere."""

    def _make(
        arms: dict[str, Any],
        tasks: dict[str, Any],
        seeds: Any = range(6),
        sizes: Any = (300,),
        out: Any = None,
        **options: Any,
    ) -> Built:
        root = tmp_path_factory.mktemp("project")
        cells = build(root, arms, tasks, sizes, seeds)
        methods = methods_of(arms)
        config = ReportConfig(**{"bootstrap_samples": 500, **options})
        report = write_report(
            Inputs(root, cells, tuple(seeds), config, methods, training=dict.fromkeys(tasks, TRAINING)), out
        )
        return Built(root, cells, tuple(seeds), methods, config, report)

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
    tasks = {
        "sst2": Task(n=300),
        "sick": Task("regression", ("pearson", "mse"), n=80, ood=()),
    }
    return make(arms, tasks, out="reports")
