from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from regft_core.catalogue import EVALUATIONS
from regft_core.settings.yaml_paths import PRESETS, PUBLISHED, names
from tests.papers.page import PAGE, page
from tests.papers.protocols import Item, Paper, Value, matches, read_protocols
from tests.papers.resolved import check_preset, resolved, unknown_settings
from tests.presets.test_presets import OWN
from tests.small_project import REPOSITORY, preset

ITEMS = read_protocols(REPOSITORY)
PAPERS = {item.paper.name: item.paper for item in ITEMS}


def problems(item: Item) -> list[str]:
    found = [problem for name in item.config.presets for problem in check_preset(item, name)]
    return found + unknown_settings(item)


@pytest.mark.parametrize("item", [pytest.param(item, id=item.name) for item in ITEMS])
def test_presets_run_what_the_paper_says(item: Item) -> None:
    assert problems(item) == []


@pytest.mark.parametrize("paper", PAPERS.values(), ids=PAPERS)
def test_what_a_paper_says_of_all_its_items_is_of_use(paper: Paper) -> None:
    settings = [resolved(name) for item in ITEMS if item.paper is paper for name in item.config.presets]
    paths = {path for own in settings for path in own}
    tasks = {task for own in settings for values in own.values() for task in values}
    assert [key for key in paper.config.values if not any(matches(key, path, tasks) for path in paths)] == []


def test_every_preset_has_a_protocol_and_every_item_what_makes_it() -> None:
    made = {name for item in ITEMS for name in item.config.presets}
    assert made | OWN == {*names(REPOSITORY, PRESETS)}
    assert all(preset(name).params.report.reference in preset(name).methods for name in made)
    assert {name for item in ITEMS for name in item.config.evaluations} <= set(EVALUATIONS.names())


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("training.batch_size", {"value": 32, "stated": "x"}, "training.batch_size = 16 on cola, declared 32"),
        ("grid.seeds", None, "grid.seeds = [0, 1, 2] on , undeclared"),
        ("training.max_step", {"value": 1, "stated": "x"}, "no preset has training.max_step"),
        ("training.epochs", {"value": 10, "on": {"snli": 3}, "stated": "x"}, "training.epochs: no task snli"),
    ],
)
def test_a_difference_is_told(key: str, value: dict[str, Any] | None, said: str) -> None:
    item = next(item for item in ITEMS if item.name == "hype_table1")

    def changed(config: Any) -> Any:
        values = {name: own for name, own in config.values.items() if name != key}
        return config.model_copy(update={"values": values | ({key: Value(**value)} if value else {})})

    paper = item.paper if value else replace(item.paper, config=changed(item.paper.config))
    assert any(said in problem for problem in problems(replace(item, config=changed(item.config), paper=paper)))


# -------------------------------------------------------------------------------------------- the page


def test_the_page_is_generated_and_has_every_preset_and_every_table() -> None:
    text = (REPOSITORY / PAGE).read_text(encoding="utf-8")
    assert text == page(REPOSITORY), f"run `python -m tests.papers.page > {PAGE}`"
    assert {name for name in names(REPOSITORY, PRESETS) if f"`{name}`" not in text} == OWN
    for paper in PAPERS:
        own = [item.config.item for item in ITEMS if item.paper.name == paper]
        titles = [title.split("Fig")[0] for title in own if title.startswith("Table")]
        numbers = {number for title in titles for number in re.findall(r"\d+", title)}
        tables = [name for name in names(REPOSITORY, PUBLISHED) if name.startswith(f"{paper}_table")]
        assert {name.rsplit("table", 1)[1] for name in tables} == numbers, paper
