"""The catalogue has every shipped method, the notes of the site are complete, and every shipped value has a source."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import yaml

from regft_core.grid.method_table import Line, as_text, catalogue, shipped_methods
from regft_core.hooks.registry import discover
from regft_core.schema.methods import SOURCE
from regft_core.settings.layers import Setting, settings

ROOT = Path(__file__).resolve().parents[2]


@cache
def shipped() -> dict[str, Line]:
    """The catalogue by name."""
    return {line.name: line for line in catalogue(ROOT)}


def test_every_shipped_method_is_told() -> None:
    lines = shipped()
    assert set(lines) == {path.stem for path in (ROOT / "pipelines" / "methods").glob("*.yaml")}
    assert lines["weight_mixup"].facts["phases"] == "search x2, finetune"
    assert lines["weight_mixup"].cost == pytest.approx((2 * 0.8 * 5 + 4) / 4)
    assert lines["hype_n_pats"].facts["controls"] == "hype_n_pats_hype_no_noise, hype_n_pats_pats_no_noise"
    assert lines["hype_n_pats"].facts["replacements"] == "hype_n, pats, hype_n_pats_uniform"
    assert lines["post_training"].cost is None
    assert lines["pats"].facts["touches"] == "update"
    assert "hype_n_no_noise" in as_text([lines["hype_n"]])


@pytest.mark.parametrize(
    ("name", "cost"),
    [
        ("child_tuning_f", 1.0),
        ("child_tuning_d", 1 + 1 / 4),  # one more epoch of four, without steps
        ("linear_probe", 1 / 3 / 4),  # one forward pass, which is a third of an epoch
        ("lp_ft", 1 + 1 / 3 / 4),
        ("setfit", 20 / 4 * 3 + 1 / 3 / 4),
        ("majority", 0.0),  # counts labels
        ("tfidf_logistic", 0.0),  # reads no encoder
    ],
)
def test_declared_cost_has_the_passes_of_fits(name: str, cost: float) -> None:
    assert shipped()[name].cost == pytest.approx(cost)
    assert f"declared cost: {cost:.2f}x" in as_text([shipped()[name]])


def test_every_regulariser_has_one_group_and_every_note_is_complete() -> None:
    notes = yaml.safe_load((ROOT / "docs/method_notes.yaml").read_text(encoding="utf-8"))
    grouped = [name for members in notes["groups"].values() for name in members]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == set(discover()) | {"vanilla", "head_only", "soup", "intermediate"}
    assert set(notes["notes"]) == set(grouped)
    assert set(notes["embedding"]) <= set(grouped)
    assert {tuple(note) for note in notes["notes"].values()} == {("idea", "formula", "take", "leave")}


# --------------------------------------------------------------------------------------------- sources


REGISTRY = discover()


@pytest.mark.parametrize("name", REGISTRY)
def test_every_option_has_a_source_and_nothing_else(name: str) -> None:
    cls = REGISTRY[name]
    assert list(cls.sources) == list(cls.Config.model_fields)
    assert not [text for text in cls.sources.values() if not re.match(SOURCE, text)]


def test_every_value_of_a_method_has_a_source() -> None:
    methods = shipped_methods(ROOT).methods
    found = {name: settings(method, REGISTRY) for name, method in methods.items()}
    assert not [f"{name}: {one.path}" for name, own in found.items() for one in own if not one.source]
    every: list[Setting] = [one for own in found.values() for one in own]
    kinds = Counter(one.source.partition(":")[0] for one in every)
    assert set(kinds) == {"paper", "code", "ours"}
    assert len(every) > 400


def test_released_code_is_cited_at_a_known_commit() -> None:
    sources = [one.source for method in shipped_methods(ROOT).methods.values() for one in settings(method, REGISTRY)]
    sources += [text for cls in REGISTRY.values() for text in cls.sources.values()]
    notes = yaml.safe_load((ROOT / "docs/method_notes.yaml").read_text(encoding="utf-8"))
    cited = re.compile(r"\b[\w.-]+/[\w.-]+(?= [\w./-]+\.\w+:\d+)")
    assert {name for text in sources for name in cited.findall(text)} == set(notes["commits"])


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
    assert bool(re.match(SOURCE, text)) == right
