"""Figures are the same bytes every time, follow the page's colours and do not write over themselves."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regft_core.report.figures import scores as figures
from regft_core.report.figures.svg import VARIABLES, panels
from regft_core.report.leaderboard import leaderboard
from regft_core.report.read_grid import read_grid
from regft_core.report.terminal import text_columns
from regft_core.runs.results.logs import CurvePoint


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


def test_figures_are_deterministic(built: Any, drawn: dict[str, str]) -> None:
    assert figures.scores(built.report.blocks[0]) == drawn["scores"]
    assert figures.cost_and_score(built.report.blocks[0]) == drawn["cost"]


def test_an_arm_that_costs_nothing_has_its_place(built: Any, recwarn: pytest.WarningsRecorder) -> None:
    block = built.report.blocks[0]
    rows = [replace(row, cost=replace(row.cost, measured=0.0)) if not n else row for n, row in enumerate(block.rows)]
    svg = figures.cost_and_score(replace(block, rows=rows))
    assert "≤0.01×" in svg
    assert block.rows[0].method in svg
    assert not recwarn.list


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


def test_every_method_and_set_is_labelled(built: Any, drawn: dict[str, str]) -> None:
    for row in built.report.blocks[0].rows:
        assert row.method in drawn["scores"]
        assert row.method in drawn["cost"]
    assert "contrast (n = 300)" in drawn["scores"]
    assert "hype_n − vanilla_no_dropout (control)" in drawn["differences"]
    assert "r_drop" not in drawn["curves"]  # it left no curve


def test_all_seeds_are_drawn(built: Any, drawn: dict[str, str]) -> None:
    collapsed = sum(len(row.collapsed) for row in built.report.blocks[0].rows)
    values = sum(s["accuracy"].estimate.n for row in built.report.blocks[0].rows for s in row.scores.values())
    means = sum(len(row.scores) for row in built.report.blocks[0].rows)
    groups = re.findall(r'<g clip-path="[^"]*" style="[^"]*">((?:<use [^>]*/>)+)</g>', drawn["scores"])
    markers = sum(group.count("<use ") for group in groups)
    assert collapsed
    assert markers >= values + means


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0, 100)), min_size=2, max_size=15))
@settings(max_examples=30, deadline=None)
def test_names_beside_the_points_keep_their_distance(points: list[tuple[float, float]]) -> None:
    height = max(2.4, 0.21 * len(points) + 0.3)
    _, (axis,) = panels(1, 1, width=4.0, height=height, left=0.5)
    axis.set_ylim(-1, 101)
    figures._names_beside(axis, [(x, y, f"m{i}") for i, (x, y) in enumerate(points)], height)
    places = sorted(text.xyann[1] for text in axis.texts)
    gaps = [b - a for a, b in pairwise(places)]
    assert min(gaps) * height >= 0.19 - 1e-9
    assert places[-1] <= 1 + 1e-9
    assert places[0] > -0.2


def test_a_run_that_diverged_does_not_flatten_the_rest(built: Any) -> None:
    points = [CurvePoint(0, "finetune", i, float("nan") if i == 3 else 0.5, None, None) for i in range(1, 9)]
    (found,) = figures._losses(points, built.report.blocks[0])
    assert 3.0 not in found[0]


def test_what_dvc_shows_stands_alone_and_says_what_the_terminal_says(built: Any) -> None:
    for block in built.report.blocks:
        for kind in ("leaderboard", "loss"):
            text = (built.root / "reports" / "plots" / kind / f"{block.name}.svg").read_text()
            ElementTree.fromstring(text)
            assert not re.findall(r"var\(|https?://(?!www\.w3\.org/2000/svg)|<script|#0[1-7]0[1-7]0[1-7]", text)
        text = (built.root / "reports" / "plots" / "leaderboard" / f"{block.name}.svg").read_text()
        assert block.decision.sentences[0].split(":")[0] in html.unescape(text)
        board = leaderboard(block)
        for head, cells in text_columns(board, built.report.reference):
            assert f">{head}<" in text
            assert all(f">{escape(cell.plain.rstrip())}<" in text for cell in cells if cell.plain.strip())
        assert all(line.row.method in text for line in board.lines)
