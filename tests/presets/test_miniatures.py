"""Every preset runs: its arms, settings, grids and checkpoint rule, with a tiny encoder on a few rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.presets.miniature import build, failures, names, run

#: Phases and settings per task and method. The others take minutes together: ``pytest -m slow tests/presets``.
QUICK = ("mask_tuning_table1_roberta",)


def finishes(root: Path, name: str) -> None:
    assert failures(run(build(root, name))) == []


@pytest.mark.parametrize("name", QUICK)
def test_some_presets_run_in_miniature(name: str, tmp_path: Path) -> None:
    finishes(tmp_path, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in names() if name not in QUICK])
def test_every_preset_runs_in_miniature(name: str, tmp_path: Path) -> None:
    finishes(tmp_path, name)
