"""Tasks that declarations are asked about."""

from __future__ import annotations

import pytest

from regft_core.schema.tasks import BuiltinSource, ColumnsConfig, SplitsConfig, TaskConfig


@pytest.fixture
def regression_task() -> TaskConfig:
    return TaskConfig(
        kind="regression",
        source=BuiltinSource(kind="builtin", generator="cue_regression"),
        splits=SplitsConfig(train="train", dev="dev"),
        columns=ColumnsConfig(text="text"),
        metrics=("pearson",),
        primary="pearson",
    )
