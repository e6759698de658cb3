"""Two releases of regft: the one that ``params.yaml`` names is in no key, and both may use one run store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from regft_core import __version__
from regft_core.grid.keys import write_plan
from regft_core.runs.context import project_store
from regft_core.runs.project import open_project
from tests.runs.code_copy import python, with_code
from tests.runs.conftest import PARAMS, build, change

RUN = "from regft_core.api import load; load('.').run('vanilla', 'cue_sentence')"


def plan(root: Path) -> dict[str, Any]:
    write_plan(open_project(root))
    return {path.name: json.loads(path.read_text()) for path in sorted((root / "work" / "plan").glob("*.json"))}


def test_naming_a_version_changes_no_key(tmp_path: Path) -> None:
    root = build(tmp_path / "project", {**PARAMS, "methods": ["vanilla", "weight_mixup"]})
    before = plan(root)
    for version in (__version__, "0.0.1"):
        change(root, regft=version)
        assert plan(root) == before


@pytest.mark.slow
def test_two_releases_on_one_store_do_not_hurt_each_other(tmp_path: Path) -> None:
    """The other release has another version and another warm-up; it trains runs of its own beside those of this one."""
    root = with_code(build(tmp_path / "project", {**PARAMS, "methods": ["vanilla"]}))
    edits = {
        "regft_core/__init__.py": ('__version__ = "', '__version__ = "9.'),
        "regft_core/training/schedule.py": ("if step < warmup:", "if step <= warmup:"),
    }
    store = project_store(open_project(root))

    def trained() -> dict[str, int]:
        """Key -> when its run was completed."""
        python(root, RUN)
        return {key: (store.directory(key) / "manifest.json").stat().st_mtime_ns for key in sorted(store.keys())}

    ours = trained()
    plain = {file: (root / file).read_text() for file in edits}
    for file, (old, new) in edits.items():
        (root / file).write_text(plain[file].replace(old, new, 1))
    both = trained()
    assert len(both) == 2 * len(ours)
    for file, text in plain.items():
        (root / file).write_text(text)
    assert trained() == both  # nothing was trained again, nothing was replaced
    assert both.items() >= ours.items()
    assert store.verify() == []
