"""docs/methods.md is the catalogue, and the catalogue tells of every shipped method."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path

import pytest

from regft_core.grid.method_table import Line, all_methods, as_markdown, as_text, catalogue, exclusive
from regft_core.hooks import listed, ownership
from regft_core.hooks.registry import discover

ROOT = Path(__file__).resolve().parents[2]


@cache
def shipped() -> dict[str, Line]:
    """The catalogue by name."""
    return {line.name: line for line in catalogue(ROOT)}


def test_the_page_of_methods_is_the_catalogue() -> None:
    shown, wanted = (ROOT / "docs/methods.md").read_text(encoding="utf-8"), as_markdown(list(shipped().values()))
    lacking = sorted(set(wanted.splitlines()) ^ set(shown.splitlines()))
    assert shown.strip() == wanted.strip(), f"run `regft methods --markdown > docs/methods.md`; differs: {lacking}"


def test_every_shipped_method_is_told() -> None:
    lines = shipped()
    assert set(lines) == {path.stem for path in (ROOT / "pipelines" / "methods").glob("*.yaml")}
    assert lines["weight_mixup"].phases == "search x2, finetune"
    assert lines["weight_mixup"].cost == pytest.approx((2 * 0.8 * 5 + 4) / 4)
    assert "another weight view" in lines["weight_mixup"].not_with
    declared = ["hype_n_pats_hype_no_noise", "hype_n_pats_pats_no_noise", "hype_n_pats_uniform"]
    assert lines["hype_n_pats"].controls == ", ".join([*declared, "hype_n", "pats"])
    assert lines["post_training"].cost is None
    assert lines["pats"].touches == "update"
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
    assert f"declared cost: {cost:.2f}x\n" in as_text([shipped()[name]])


def test_what_is_told_is_what_the_rules_refuse() -> None:
    """Every two shipped methods: refused for one of these reasons exactly where the catalogue says so of both."""
    reasons = {
        "another step program or added loss": lambda e: bool(e.declares.program) or e.declares.adds_terms,
        "a step program": lambda e: bool(e.declares.program),
        "another task loss": ownership.transforms_loss,
        "another weight view": lambda e: e.declares.owns_weights,
        "another optimiser": lambda e: e.declares.optimizer is not None,
        "what works on trained encoder weights": ownership.works_on_encoder,
        "a frozen encoder": lambda e: e.declares.freezes_encoder,
        "a view of the head": ownership.views_head,
        "a solved head": ownership.solves_head,
        "what reads hidden states by position": lambda e: e.declares.reads_positions,
        "what needs another head": lambda e: bool(e.declares.says.refused_at_mask),
        "answers at a mask": lambda e: e.declares.answers_at_mask,
        "virtual tokens that move the text": lambda e: e.declares.moves_tokens,
    }
    registry = discover()
    stacks = [
        (name, stack)
        for name, method in all_methods(ROOT).items()
        if (stack := listed.active(listed.entries(registry, method.finetune.regularisers)))
        and not any(entry.declares.owns_prediction for entry in stack)
    ]
    refused = 0
    for (one, first), (two, second) in itertools.combinations(stacks, 2):
        if {cls.name for cls, _ in first} & {cls.name for cls, _ in second}:
            continue
        told = any(reasons[text](entry) for text in exclusive(first) for entry in second)
        found = [p for p in ownership.ownership_problems([*first, *second]) if "declares which comes first" not in p]
        assert bool(found) == told, (one, two, found)
        refused += told
    assert refused > 500
