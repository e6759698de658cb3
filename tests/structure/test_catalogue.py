"""docs/methods.md is the catalogue, and the catalogue tells of every shipped method."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from regft_core.grid.method_table import Line, as_markdown, as_text, catalogue

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
    assert lines["hype_n_pats"].controls == "hype_n_pats_hype_no_noise, hype_n_pats_pats_no_noise"
    assert lines["hype_n_pats"].replacements == "hype_n, pats, hype_n_pats_uniform"
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
    assert f"declared cost: {cost:.2f}x" in as_text([shipped()[name]])
