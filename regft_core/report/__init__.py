"""Reads what the stages left in ``work/`` and says what it shows: numbers, figures, one HTML file."""

from __future__ import annotations

from regft_core.report.read_grid import Inputs
from regft_core.report.terminal import show
from regft_core.report.values import Report
from regft_core.report.write import project_report, write_report

__all__ = ["Inputs", "Report", "project_report", "show", "write_report"]
