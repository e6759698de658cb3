"""Figures are the same bytes every time, follow the page's colours and do not write over themselves."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from regft_core.report.figures import block as figures
from regft_core.report.figures.svg import VARIABLES
from regft_core.report.read_grid import read_grid


@pytest.fixture(scope="module")
def drawn(built: Any) -> dict[str, str]:
    block = built.report.blocks[0]
    data = read_grid(built.root, built.cells, built.seeds, ["weight_mixup"])[0]
    return {
        "scores": figures.scores(block),
        "differences": figures.differences(block),
        "curves": figures.learning_curves(block, data),
        "cost": figures.cost_and_score(block),
    }


def test_figures_hold_no_address_no_date_and_no_fixed_colour(drawn: dict[str, str]) -> None:
    for name, svg in drawn.items():
        assert svg.startswith("<svg"), name
        assert "http" not in svg
        assert "<metadata" not in svg
        assert not re.findall(r"20\d\d-\d\d-\d\d", svg)
        assert not any(placeholder in svg for placeholder in VARIABLES)
        assert set(re.findall(r"#[0-9a-fA-F]{6}\b", svg)) == set(), name
        ids = re.findall(r'\bid="([^"]+)"', svg)
        assert len(ids) == len(set(ids))


def test_all_seeds_are_drawn(built: Any, drawn: dict[str, str]) -> None:
    collapsed = sum(len(row.collapsed) for row in built.report.blocks[0].rows)
    values = sum(s["accuracy"].estimate.n for row in built.report.blocks[0].rows for s in row.scores.values())
    means = sum(len(row.scores) for row in built.report.blocks[0].rows)
    groups = re.findall(r'<g clip-path="[^"]*">((?:<use [^>]*/>)+)</g>', drawn["scores"])
    markers = sum(group.count("<use ") for group in groups)
    assert collapsed
    assert markers >= values + means


def test_what_dvc_shows_stands_alone(built: Any) -> None:
    for block in built.report.blocks:
        for kind in ("leaderboard", "loss"):
            text = (built.root / "reports" / "plots" / kind / f"{block.name}.svg").read_text()
            ElementTree.fromstring(text)
            assert not re.findall(r"var\(|https?://(?!www\.w3\.org/2000/svg)|<script|#0[1-7]0[1-7]0[1-7]", text)
        text = (built.root / "reports" / "plots" / "leaderboard" / f"{block.name}.svg").read_text()
        assert all(row.method in text for row in block.rows)
