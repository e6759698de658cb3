"""Hints that say how to write what was meant: each fits the field, limits included."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.execution import StoreConfig
from regft_core.schema.params import GridConfig, Params
from regft_core.schema.report import ReportConfig
from regft_core.schema.training import TrainingConfig
from regft_core.settings.messages.repair import repaired


@pytest.mark.parametrize(
    ("model", "field", "value", "hint"),
    [
        (GridConfig, "sizes", 60, "in brackets, even a single value: [60]"),
        (GridConfig, "sizes", 1, ""),  # brackets alone would not make it right: sizes are at least 2
        (GridConfig, "sizes", "full", "write a list, in brackets: [full]"),
        (GridConfig, "seeds", "0-4", "a range is written out: [0, 1, 2, 3, 4]"),
        (GridConfig, "seeds", "0..2", "a range is written out: [0, 1, 2]"),
        (GridConfig, "seeds", "0-400", "write a list, every value by itself: [0, 1, 2]"),
        (GridConfig, "seeds", "range(5)", "write a list, every value by itself: [0, 1, 2]"),
        (GridConfig, "seeds", "0, 1, 2", "write a list, in brackets: [0, 1, 2]"),
        (Params, "methods", "vanilla, hype_n", "write a list, in brackets: [vanilla, hype_n]"),
        (TrainingConfig, "learning_rate", "0,0001", "write 0.0001"),
        (TrainingConfig, "learning_rate", "10%", "write 0.1"),
        (TrainingConfig, "learning_rate", "high", ""),
        (TrainingConfig, "batch_size", 16.0, "write 16"),
        (TrainingConfig, "batch_size", -2, ""),
        (TrainingConfig, "precision", "FP32", "did you mean 'fp32'?"),
        (TrainingConfig, "clip_norm", "none", "write null"),
        (TrainingConfig, "warmup_ratio", 10, "write 0.1"),
        (EncoderConfig, "pooling", "meam", "did you mean 'mean'?"),
        (ReportConfig, "confidence", 95, "write 0.95"),
        (StoreConfig, "budget_gb", "20GB", "write 20"),
    ],
)
def test_what_was_meant(model: type[BaseModel], field: str, value: Any, hint: str) -> None:
    assert repaired(value, model.model_fields[field]) == hint
