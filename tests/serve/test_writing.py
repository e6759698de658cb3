"""Predicted values in files: six digits, whatever the unit of the targets."""

from __future__ import annotations

import io
import json

import pytest

from regft_core.serve.answers import Writer, rounded


@pytest.mark.parametrize(
    ("value", "written"), [(404_878.123, 404_878.0), (3.14159265, 3.14159), (1.23456789e-6, 1.23457e-6), (-0.0, 0.0)]
)
def test_values_keep_their_digits_whatever_their_unit(value: float, written: float) -> None:
    assert rounded(value) == written
    table, lines = io.StringIO(), io.StringIO()
    Writer(".csv", table, ["prediction"]).row({"prediction": rounded(value)})
    Writer(".jsonl", lines, ["prediction"]).row({"prediction": rounded(value)})
    assert float(table.getvalue().splitlines()[1]) == written
    assert json.loads(lines.getvalue())["prediction"] == written
