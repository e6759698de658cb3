"""What the papers state is what the presets run, setting by setting, and nothing that runs is undeclared."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pytest

from regft_core.errors import ConfigError
from regft_core.runs.project import open_project
from regft_core.settings.papers import protocols
from regft_core.settings.papers.protocols import PROTOCOLS, Item, Paper, read_protocols
from regft_core.settings.papers.resolved import check_preset, matches, resolved, unknown_settings
from regft_core.settings.project import Project
from tests.errors import raises_code
from tests.small_project import REPOSITORY

PAPERS = read_protocols(REPOSITORY)
ITEMS = [pytest.param(paper, item, id=item.name) for paper in PAPERS for item in paper.items]


@cache
def opened(preset: str) -> Project:
    return open_project(REPOSITORY, f"pipelines/presets/{preset}.yaml")


@pytest.mark.parametrize(("paper", "item"), ITEMS)
def test_presets_run_what_the_paper_says(paper: Paper, item: Item) -> None:
    projects = {preset: opened(preset) for preset in item.config.presets}
    problems = [problem for name, project in projects.items() for problem in check_preset(paper, item, name, project)]
    assert [str(problem) for problem in [*problems, *unknown_settings(paper, item, projects)]] == []


@pytest.mark.parametrize("paper", [pytest.param(paper, id=paper.name) for paper in PAPERS])
def test_what_a_paper_says_of_all_its_items_is_of_use(paper: Paper) -> None:
    known = [resolved(opened(preset)) for item in paper.items for preset in item.config.presets]
    paths = {path for settings in known for path in settings}
    tasks = {task for settings in known for values in settings.values() for task in values}
    unused = [key for key in paper.config.values if not any(matches(key, path, tasks) for path in paths)]
    assert unused == []


TABLE = f"{PROTOCOLS}/hype_table1.yaml"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{value: 32, on: {cola: 64}, stated", "{value: 32, stated", ("other-value", "= 64 on cola")),
        ("model.name: {value: FacebookAI", "task.dev: {value: FacebookAI", ("undeclared-setting", "model.name")),
        ("training.max_steps: {", "training.max_step: {", ("unknown-setting", "training.max_steps")),
        ("on: {rte: 10, stsb: 10}", "on: {rte: 10, stsb: 10, snli: 3}", ("unknown-task", "snli")),
    ],
)  # fmt: skip
def test_a_difference_is_told(tmp_path: Path, old: str, new: str, said: tuple[str, str]) -> None:
    paper, item = edited(tmp_path, old, new)
    projects = {preset: opened(preset) for preset in item.config.presets}
    problems = [problem for name, project in projects.items() for problem in check_preset(paper, item, name, project)]
    problems += unknown_settings(paper, item, projects)
    assert any(problem.code == said[0] and said[1] in str(problem) for problem in problems), problems


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("presets: [hype_table1,", "presets: [hype_tabel1, hype_table1,", ("unknown-preset", "'hype_tabel1'")),
        ("presets: [hype_table1, ", "presets: [", ("inconsistent", "'hype_table1' is none of the item's presets")),
        ("stated: last column of the table}", "stated: last, not_stated: ours}", ("inconsistent", "exactly one of")),
        ("{value: [stsb, cola, mrpc, rte], stated: columns of the table}", "{stated: a}", ("inconsistent", "'value'")),
        ("item: Table 1", "item: Table 1\nblocked: no", ("inconsistent", "blocked")),
        ("shows:", "show:", ("unknown-key", "'show'")),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, old: str, new: str, said: tuple[str, ...]) -> None:
    with raises_code(ConfigError, *said):
        edited(tmp_path, old, new)


def test_a_shipped_preset_without_a_protocol_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edited(tmp_path / "own", "", "", without="hype_table9")  # a project's own preset needs none
    monkeypatch.setattr(protocols, "ships", lambda folder, name: True)
    with raises_code(ConfigError, "undeclared-preset", "hype_table9"):
        edited(tmp_path, "", "", without="hype_table9")


def edited(root: Path, old: str, new: str, without: str = "") -> tuple[Paper, Item]:
    """The protocols with HyPe's table 1 changed, or without the file of another item."""
    root.mkdir(exist_ok=True)
    shutil.copytree(REPOSITORY / PROTOCOLS, root / PROTOCOLS)
    (root / "pipelines").mkdir()
    (root / "pipelines" / "presets").symlink_to(REPOSITORY / "pipelines" / "presets")
    if without:
        (root / PROTOCOLS / f"{without}.yaml").unlink()
    text = (root / TABLE).read_text(encoding="utf-8")
    assert old in text
    (root / TABLE).write_text(text.replace(old, new, 1), encoding="utf-8")
    paper = next(paper for paper in read_protocols(root) if paper.name == "hype")
    return paper, paper.items[0]
