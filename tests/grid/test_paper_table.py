"""docs/papers.md is what the protocols, the presets and the plan say, and leaves no preset and no table out."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from regft_core.catalogue import EVALUATIONS
from regft_core.grid.paper_table import MINIATURES, PAGE, miniature_state, settings_hash
from regft_core.settings.papers.protocols import PROTOCOLS, read_protocols
from regft_core.settings.papers.published import published_names
from regft_core.settings.preset import preset_names
from stages.papers import compare, main, page
from tests.small_project import REPOSITORY

PAPERS = read_protocols(REPOSITORY)


def test_the_page_is_generated() -> None:
    assert (REPOSITORY / PAGE).read_text(encoding="utf-8") == page(REPOSITORY)


def test_every_preset_and_every_published_table_is_told() -> None:
    text = (REPOSITORY / PAGE).read_text(encoding="utf-8")
    assert [name for name in preset_names(REPOSITORY) if f"`{name}`" not in text] == []
    for paper in PAPERS:
        titles = [item.config.item.split("Fig")[0] for item in paper.items if item.config.item.startswith("Table")]
        told = {number for title in titles for number in re.findall(r"\d+", title)}
        tables = [name for name in published_names(REPOSITORY) if name.startswith(f"{paper.name}_table")]
        assert {name.rsplit("table", 1)[1] for name in tables} == told, paper.name


def test_the_evaluations_are_there_and_switched_on() -> None:
    for paper in PAPERS:
        for item in paper.items:
            assert set(item.config.evaluations) <= set(EVALUATIONS.names())


def test_a_miniature_counts_as_long_as_the_preset_has_its_settings(tmp_path: Path) -> None:
    (tmp_path / "pipelines" / "presets").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    preset = tmp_path / "pipelines" / "presets" / "x.yaml"
    preset.write_text("grid: {seeds: [0]}\n", encoding="utf-8")
    assert miniature_state(tmp_path, "x") == "not run"
    (tmp_path / MINIATURES).write_text(json.dumps({"x": settings_hash(tmp_path, "x")}), encoding="utf-8")
    preset.write_text("# a comment\ngrid: {seeds: [0]}\n", encoding="utf-8")
    assert miniature_state(tmp_path, "x") == "finished"
    preset.write_text("grid: {seeds: [0, 1]}\n", encoding="utf-8")
    assert miniature_state(tmp_path, "x") == "changed since"


def test_the_recorded_miniatures_are_presets() -> None:
    assert set(json.loads((REPOSITORY / MINIATURES).read_text())) <= set(preset_names(REPOSITORY))


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert compare(REPOSITORY, ["tdt_figure3"]) == f"1 preset of 1 item as declared in {PROTOCOLS}"
    assert main(["--root", str(REPOSITORY), "tdt_figure33"]) == 2
    assert "did you mean 'tdt_figure3'?" in capsys.readouterr().err
    for folder in ("pipelines", "published"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder)
    preset = tmp_path / "pipelines" / "presets" / "tdt_figure3.yaml"
    preset.write_text(preset.read_text(encoding="utf-8").replace("seeds: [0, 1, 2]", "seeds: [0, 1]"), encoding="utf-8")
    assert main(["--root", str(tmp_path), "tdt_figure3"]) == 2
    told = capsys.readouterr().err
    assert "published/protocols/tdt.yaml" in told
    assert "'tdt_figure3' runs grid.seeds = [0, 1]" in told
