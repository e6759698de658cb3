"""Tests that need a GPU: skipped, with the reason, where there is none."""

from __future__ import annotations

from typing import Any

import pytest


def pytest_collection_modifyitems(items: list[Any]) -> None:
    import torch

    if torch.cuda.is_available():
        return
    reason = pytest.mark.skip(reason="needs a CUDA device, and torch sees none on this machine")
    for item in items:
        if "/tests/gpu/" in str(item.path):
            item.add_marker(reason)
