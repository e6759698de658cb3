"""Every preset runs at small scale: its arms, settings, grids, checkpoint rule and OOD sets, with a tiny encoder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regft_core.runs.records import MARK
from tests.presets.miniature import build, failures, names, run

#: The others take minutes together: ``pytest -m slow tests/presets``.
QUICK = ("pats_table3",)


def finishes(root: Path, name: str) -> None:
    folder = build(root, name)
    report = run(folder)
    assert failures(report) == []
    assert report.mark.startswith(f"Not the paper's experiment: preset {name} at small scale.")
    assert report.mark.replace("'", "&#39;") in report.html
    claims = [claim for table in report.published for claim in table.claims if claim.claim.numbers]
    assert all(any(test.ours for test in claim.tested) for claim in claims)
    assert json.loads((folder / "reports" / "results.json").read_text())[MARK] == report.mark


@pytest.mark.parametrize("name", QUICK)
def test_some_presets_run_in_miniature(name: str, tmp_path: Path) -> None:
    finishes(tmp_path, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in names() if name not in QUICK])
def test_every_preset_runs_in_miniature(name: str, tmp_path: Path) -> None:
    finishes(tmp_path, name)
