"""The README's table of methods is the catalogue, and the catalogue tells of every shipped method."""

from __future__ import annotations

from pathlib import Path

import pytest

from regft_core.methods.__main__ import main
from regft_core.phases.method_table import as_markdown, as_text, catalogue

ROOT = Path(__file__).resolve().parents[2]


def test_the_readme_has_the_catalogue() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    start = text.index("\n", text.index("<!-- made by python -m regft_core.methods --markdown")) + 1
    assert text[start : text.index("<!-- end -->", start)].strip() == as_markdown(catalogue(ROOT))


def test_every_shipped_method_is_told() -> None:
    lines = {line.name: line for line in catalogue(ROOT)}
    assert set(lines) == {path.stem for path in (ROOT / "pipelines" / "methods").glob("*.yaml")}
    assert lines["weight_mixup"].phases == "search x2, finetune"
    assert lines["weight_mixup"].cost == pytest.approx((2 * 0.8 * 5 + 4) / 4)
    assert "another weight view" in lines["weight_mixup"].not_with
    assert lines["hype_n_pats"].controls == "hype_n, pats"
    assert lines["post_training"].cost is None
    assert lines["pats"].touches == "gradient, update"
    assert "vanilla_no_dropout" in as_text([lines["hype_n"]])


def test_a_wrong_name_gets_the_nearest(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", ["methods", "hyp_n"])
    assert main() == 2
    assert "did you mean 'hype_n'?" in capsys.readouterr().err
