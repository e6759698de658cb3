"""docs/papers.md is what the protocols, the presets and the plan say, and leaves no preset and no table out."""

from __future__ import annotations

import re

from regft_core.settings.papers.protocols import read_protocols
from regft_core.settings.papers.published import published_names
from regft_core.settings.preset import preset_names
from tests.papers.page import PAGE, page
from tests.presets.miniature import OWN
from tests.small_project import REPOSITORY


def test_the_page_is_generated_and_has_every_preset_and_every_table() -> None:
    text = (REPOSITORY / PAGE).read_text(encoding="utf-8")
    assert text == page(REPOSITORY), f"run `python -m tests.papers.page > {PAGE}`"
    assert {name for name in preset_names(REPOSITORY) if f"`{name}`" not in text} == OWN
    for paper in read_protocols(REPOSITORY):
        titles = [item.config.item.split("Fig")[0] for item in paper.items if item.config.item.startswith("Table")]
        numbers = {number for title in titles for number in re.findall(r"\d+", title)}
        tables = [name for name in published_names(REPOSITORY) if name.startswith(f"{paper.name}_table")]
        assert {name.rsplit("table", 1)[1] for name in tables} == numbers, paper.name
