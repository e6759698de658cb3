"""An executor whose package is not installed says what to install, before anything runs."""

from __future__ import annotations

import sys

import pytest

from regft_core.errors import ConfigError
from regft_core.grid.executors import run_all
from regft_core.schema.execution import ExecutionConfig
from tests.errors import raises_code
from tests.execution import cluster_jobs


@pytest.mark.parametrize(("executor", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch, executor: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with raises_code(ConfigError, "package-missing", "execution.executor", f"'{package}'", f"[{executor}]"):
        run_all([1], cluster_jobs.square, executor=executor)


def test_options_of_another_executor_are_refused() -> None:
    with pytest.raises(ValueError, match="has options of executor 'ray', but the executor is 'processes'"):
        ExecutionConfig.model_validate({"executor": "processes", "ray": {"retries": 1}})
    chosen = ExecutionConfig.model_validate({"executor": "ray", "ray": {"retries": 1}, "device": "cpu"})
    assert (chosen.settings()["retries"], chosen.settings()["device"]) == (1, "cpu")
    assert ExecutionConfig(executor="slurm").settings()["minutes"] == 240
    assert ExecutionConfig().settings() == {}
