"""A cell's resolved configuration as the few flat parameters that one filters and compares by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from regft_core.runs.results.records import Manifest
from regft_core.settings.grid import Cell

#: Longer values are in the run's config.yaml only: MLflow refuses very long ones, and nobody filters by them.
LONGEST_VALUE = 500


def as_text(value: Any) -> str:
    """Return a value as one writes it in YAML: ``null``, ``true``, ``1e-05``, ``[0.9, 0.999]``."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def flatten(value: Any, prefix: str) -> dict[str, Any]:
    """Return nested mappings as dotted names; lists stay values."""
    if not isinstance(value, Mapping) or not value:
        return {prefix: value}
    return {name: item for key, inner in value.items() for name, item in flatten(inner, f"{prefix}.{key}").items()}


def regulariser_names(manifest: Manifest) -> list[str]:
    """Names of a method's regularisers, phase by phase."""
    return list(dict.fromkeys(name for phase in manifest.regularisers.values() for name in phase))


def parameters(cell: Cell, manifest: Manifest) -> dict[str, str]:
    """Return the parameters of a cell: its place in the grid, regulariser options, training, model.

    Regulariser options are ``<regulariser>.<option>`` for the fine-tuning phase and
    ``<phase>.<regulariser>.<option>`` for the phases before it.
    """
    found: dict[str, Any] = {
        "method": cell.method,
        "task": cell.task,
        "size": cell.size,
        "phases": ", ".join(manifest.phases),
    }
    if model := manifest.model:
        found |= {"model": model.name, "model.max_length": model.max_length}
        found |= {"model.pooling": model.pooling, "model.pairs": model.pairs}
        reading = {"model.prompt": model.prompt, "model.windows": model.windows, "model.stride": model.stride}
        found |= reading if model.prompt or model.windows > 1 else {}
    for phase, regularisers in manifest.regularisers.items():
        for name, options in regularisers.items():
            prefix = name if phase == "finetune" else f"{phase}.{name}"
            found |= flatten(options, prefix) if options else {prefix: True}
    for key, value in manifest.training.items():
        found |= flatten(value, key)
    texts = {name: as_text(value) for name, value in found.items() if value is not None}
    return {name: text for name, text in texts.items() if len(text) <= LONGEST_VALUE}
