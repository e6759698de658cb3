"""docs/papers.md is what the protocols, the presets and the plan say, and leaves no preset and no table out."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from pathlib import Path

import pytest

from regft_core.errors import ConfigError
from regft_core.settings.papers.protocols import read_protocols
from regft_core.settings.papers.published import published_names
from regft_core.settings.preset import preset_names
from stages.papers import main
from tests.papers.page import PAGE, page
from tests.small_project import REPOSITORY


def test_the_page_is_generated_and_has_every_preset_and_every_table() -> None:
    text = (REPOSITORY / PAGE).read_text(encoding="utf-8")
    assert text == page(REPOSITORY), f"run `python -m tests.papers.page > {PAGE}`"
    assert [name for name in preset_names(REPOSITORY) if f"`{name}`" not in text] == []
    for paper in read_protocols(REPOSITORY):
        titles = [item.config.item.split("Fig")[0] for item in paper.items if item.config.item.startswith("Table")]
        numbers = {number for title in titles for number in re.findall(r"\d+", title)}
        tables = [name for name in published_names(REPOSITORY) if name.startswith(f"{paper.name}_table")]
        assert {name.rsplit("table", 1)[1] for name in tables} == numbers, paper.name


def test_the_command_lists_an_item(capsys: pytest.CaptureFixture[str]) -> None:
    main(REPOSITORY, Namespace(item="tdt_figure3", report=False))
    assert "made by tdt_figure3" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="tdt_figure3"):
        main(REPOSITORY, Namespace(item="tdt_figure33", report=False))


def test_the_command_joins_what_presets_of_a_paper_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claim = {"word": "reproduced", "says": "it gains", "where": "section 1", "encoder": "BERT", "size": "full"}
    for folder, table in (
        ("tdt_table2", {"nothing": "", "claims": [claim]}),
        ("tdt_table2_macbert.small", {"nothing": "Another experiment", "claims": []}),
    ):
        (tmp_path / "presets" / folder / "reports").mkdir(parents=True)
        results = {"published": {"tdt_table2": table}}
        (tmp_path / "presets" / folder / "reports" / "results.json").write_text(json.dumps(results))
    main(tmp_path, Namespace(item="tdt", report=True))
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "reproduced: it gains (section 1; BERT, all rows)" in lines
    assert lines[
        lines.index("ran: presets/tdt_table2_macbert.small, at small scale, where no claim is judged") + 1
    ] == ("Another experiment")
    assert "not run: regft preset tdt_table2_roberta" in lines
    assert "claimed, not tested here: TDT gains over plain fine-tuning on average (section 3.3)" in lines  # of table 1
