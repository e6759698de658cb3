"""Packages that an extra of pyproject.toml brings: a test that needs one is skipped with one wording of the reason."""

from __future__ import annotations

from typing import Any

import pytest


def needs(package: str, extra: str) -> Any:
    """Import a package of an extra, or skip the test (in a module: its tests)."""
    return pytest.importorskip(package, reason=f"the extra '{extra}' is not installed: there is no {package}")
