"""``SECURITY.md``: every threat names a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_threat_names_a_test_that_exists() -> None:
    rows = [line for line in (ROOT / "SECURITY.md").read_text().splitlines() if line.startswith("| ")][1:]
    named = [re.fullmatch(r"\| .+ \| .+ \| `(tests/[\w/]+\.py)::(test_\w+)` \|", row) for row in rows]
    assert len(rows) > 30
    assert not [row for row, found in zip(rows, named) if not found]
    missing = []
    for found in filter(None, named):
        file, name = found.groups()
        tree = ast.parse((ROOT / file).read_text()) if (ROOT / file).is_file() else ast.Module([], [])
        if name not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
            missing.append(f"{file}::{name}")
    assert missing == []
