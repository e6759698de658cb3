"""Every value that is shipped says where it is from: a paper, released code with its line, or a reason of ours."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from regft_core.grid.method_table import CITED, COMMITS, all_methods, pinned
from regft_core.hooks.registry import discover
from regft_core.schema.sources import KINDS, source_problem
from regft_core.settings.method_sources import Setting, settings

ROOT = Path(__file__).resolve().parents[2]
REGISTRY = discover()


@pytest.mark.parametrize("name", REGISTRY)
def test_every_option_has_a_source_and_nothing_else(name: str) -> None:
    cls = REGISTRY[name]
    assert list(cls.sources) == list(cls.Config.model_fields)
    assert not [text for text in cls.sources.values() if source_problem(text)]


def test_every_value_of_a_method_has_a_source() -> None:
    methods = all_methods(ROOT)
    found = {name: settings(method, REGISTRY) for name, method in methods.items()}
    assert not [f"{name}: {one.path}" for name, own in found.items() for one in own if not one.source]
    every: list[Setting] = [one for own in found.values() for one in own]
    kinds = Counter(one.source.partition(":")[0] for one in every)
    assert set(kinds) == set(KINDS)
    assert len(every) > 400


def test_released_code_is_cited_at_a_known_commit() -> None:
    sources = [one.source for method in all_methods(ROOT).values() for one in settings(method, REGISTRY)]
    sources += [text for cls in REGISTRY.values() for text in cls.sources.values()]
    assert {name for text in sources for name in CITED.findall(text)} == set(COMMITS)
    assert pinned("code: asappresearch/x a.py:1; google-research/sam b.py:2") == (
        "code: asappresearch/x@unknown a.py:1; google-research/sam@dae9904 b.py:2"
    )


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("paper: section 4.1", True),
        ("ours: not stated", True),
        ("code: owner/repo-1 src/a.py:12", True),
        ("code: owner/repo src/a.py:12-14; the default", True),
        ("code: owner/repo src/a.py", False),
        ("code: src/a.py:12", False),
        ("code: owner/repo src/a.py:12 the default", False),
        ("paper:", False),
        ("ours:  ", False),
        ("a guess", False),
    ],
)
def test_forms_of_a_source(text: str, right: bool) -> None:
    assert (source_problem(text) == "") == right
