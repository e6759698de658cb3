"""Fixtures of tests that start processes."""

from __future__ import annotations

from tests.processes import as_reader, public_path, python

__all__ = ["as_reader", "public_path", "python"]
