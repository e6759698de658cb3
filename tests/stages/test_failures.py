"""Cells that fail: the report of the others says so, and the command fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from regft_core.errors import RunFailed
from tests.small_project import build, stage

BROKEN = {"description": "no such layer", "regularisers": {"hype": {"layers": [7]}}}


@pytest.mark.parametrize("reference", ["vanilla", "broken"])
def test_the_report_of_the_others_lists_what_has_failed(tmp_path: Path, reference: str) -> None:
    root = build(tmp_path / "project", methods=["vanilla", "broken", "hype_n"], report={"reference": reference})
    (root / "pipelines" / "methods" / "broken.yaml").write_text(yaml.dump(BROKEN))
    for name in ("plan", "search", "finetune", "evaluate"):
        done = stage(root, name, *([] if name == "plan" else ["--keep-going"]))
        assert done.returncode == 0, done.stdout + done.stderr
    done = stage(root, "report")
    assert done.returncode == RunFailed.exit_code
    assert done.stderr.startswith("regft: 1 cell without a result: [cells-failed]\n  broken/reviews/16: finetune: ")
    assert "has layers 0 to 1, given [7]" in done.stderr
    assert "No result for broken/reviews/16: finetune: " in (root / "reports" / "report.html").read_text()
    results = json.loads((root / "reports" / "results.json").read_text())
    assert set(results["reviews-16"]) >= {"vanilla", "hype_n"}
    assert list(results["failed"]) == ["broken/reviews/16"]


def test_where_every_cell_fails_there_is_no_report(tmp_path: Path) -> None:
    root = build(tmp_path / "project", methods=["broken"], report={"reference": "broken"})
    (root / "pipelines" / "methods" / "broken.yaml").write_text(yaml.dump(BROKEN))
    for name in ("plan", "search", "finetune", "evaluate"):
        stage(root, name, *([] if name == "plan" else ["--keep-going"]))
    done = stage(root, "report")
    assert done.returncode == RunFailed.exit_code
    assert "broken/reviews/16" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (root / "reports").exists()
