"""docs/papers.md is what its source and the presets say, and leaves no preset and no table out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from regft_core.catalogue import EVALUATIONS
from regft_core.config.papers.published import published_names
from regft_core.config.papers.sources import as_markdown, main, read_papers
from regft_core.config.preset import preset_names
from regft_core.errors import ConfigError
from tests.errors import raises_code

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_generated() -> None:
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    assert page == as_markdown(read_papers(ROOT).papers(), preset_names(ROOT))


def test_every_preset_and_every_published_table_is_told() -> None:
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    assert [name for name in preset_names(ROOT) if f"`{name}`" not in page] == []
    for paper, items in read_papers(ROOT).papers().items():
        tables = {
            n for item in items if item.item.startswith("Table") for n in re.findall(r"\d+", item.item.split("Fig")[0])
        }
        printed = {name.rsplit("table", 1)[1] for name in published_names(ROOT) if name.startswith(f"{paper}_table")}
        assert printed == tables, paper


def test_the_evaluations_are_there() -> None:
    named = {name for items in read_papers(ROOT).papers().values() for item in items for name in item.evaluations}
    assert named <= set(EVALUATIONS.names())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("presets: [tdt_table1]", "presets: [tdt_tabel1]", ("unknown-preset", "tdt_tabel1")),
        (
            "presets: [tdt_table1], state: miniature",
            "state: miniature",
            ("incomplete-entry",),
        ),
        ("state: miniature", "state: ran", ("invalid-value", "state")),
        ("shows:", "show:", ("unknown-key", "'show'")),
    ],
)
def test_a_wrong_list_is_refused(tmp_path: Path, old: str, new: str, said: tuple[str, ...]) -> None:
    (tmp_path / "docs").mkdir()
    text = (ROOT / "docs" / "papers.yaml").read_text(encoding="utf-8")
    (tmp_path / "docs" / "papers.yaml").write_text(text.replace(old, new, 1), encoding="utf-8")
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "presets").symlink_to(ROOT / "pipelines" / "presets")
    with raises_code(ConfigError, *said):
        read_papers(tmp_path)


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["--markdown"]) == 0
    assert capsys.readouterr().out == (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main([]) == 2
    assert "docs/papers.yaml" in capsys.readouterr().err
