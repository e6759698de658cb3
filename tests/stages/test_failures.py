"""Cells that fail: the report of the others says so, and the command fails."""

from __future__ import annotations

from pathlib import Path

import yaml

from regft_core.errors import RunFailed
from tests.small_project import build, stage

BROKEN = {"description": "no such layer", "regularisers": {"hype": {"layers": [7]}}}


def test_where_every_cell_fails_there_is_no_report(tmp_path: Path) -> None:
    root = build(tmp_path / "project", methods=["broken"], report={"reference": "broken"})
    (root / "pipelines" / "methods" / "broken.yaml").write_text(yaml.dump(BROKEN))
    for name in ("subsample", "search", "finetune", "evaluate"):
        stage(root, name, *([] if name == "subsample" else ["--keep-going"]))
    done = stage(root, "report")
    assert done.returncode == RunFailed.exit_code
    assert "broken/reviews/16" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (root / "reports").exists()
