"""The table of encoder families, and files that add to it."""

from __future__ import annotations

import pytest

from regft_core.catalogue import FAMILIES
from regft_core.errors import RegftError
from regft_core.models.architectures import architecture_of, architectures, supported
from regft_core.models.families import SHIPPED
from tests.errors import raises_code
from tests.tiny import ARCHITECTURES, EMBEDDERS


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder ``families`` of a project."""
    (tmp_path / "families").mkdir()
    monkeypatch.setattr(FAMILIES, "own", tmp_path / "families")
    return tmp_path / "families"


def family(name, extra=""):
    return (
        "from regft_core.models.architectures import Architecture, LayerStack\n"
        f"FAMILY = Architecture({name!r}, stacks=(), head=(), hidden_dropout=(), attention_dropout=(){extra})\n"
    )


def test_every_family_has_a_tiny_checkpoint():
    rows = set(architectures().values())
    assert {row.module for row in rows} == {FAMILIES.package}
    assert {row.name.replace("-", "_") for row in rows} == set(SHIPPED)
    assert {row.name for row in rows} == {*ARCHITECTURES, *EMBEDDERS}
    assert set(supported()) == {*ARCHITECTURES, *EMBEDDERS, "xlm-roberta", "camembert"}


def test_a_new_file_is_found_without_an_edit(folder):
    (folder / "wonderbert.py").write_text(family("wonderbert"))
    assert architecture_of("wonderbert").module == str(folder / "wonderbert.py")
    assert "wonderbert" in supported()


@pytest.mark.parametrize(
    ("file", "content", "code", "named"),
    [
        ("empty", "", "bad-family-file", "families/empty.py"),
        ("elsewhere", family("wonderbert"), "bad-family-file", "wonderbert.py"),
        ("wonderbert", family("wonderbert", ", model_types=('bert',)"), "bad-family-file", "model_type 'bert'"),
        ("broken", "\n1 / 0\n", "cannot-import", "broken.py:2"),
    ],
)
def test_a_wrong_file_is_named_where_its_family_is_wanted(folder, file, content, code, named):
    (folder / f"{file}.py").write_text(content)
    assert architecture_of("bert").name == "bert"
    with raises_code(RegftError, code, named):
        architecture_of("wonderbert")
