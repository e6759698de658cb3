"""16: the numbers of a fixed grid. 17: a page that needs no network, light and dark, of 1 to 62 methods. 18: a terminal
of 80 columns. 19: a paper's table with ours beside it, and its claims judged. 20: MLflow loses nothing.

``python -m tests.promises.test_16_20_report_and_mlflow`` writes the golden numbers anew.
"""

from __future__ import annotations

import json
import re
from ast import literal_eval
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.promises.kit import done, run_cells
from tests.report import grids
from tests.small_project import build, python

GOLDEN = Path(__file__).with_name("golden_results.json")
GRID = "6-methods"
METHODS = ("vanilla", "hype_n")


def numbers(value: Any, path: str = "") -> dict[str, float | str | None]:
    """Dotted path -> every number and word of nested results."""
    if isinstance(value, dict):
        return {key: leaf for name, inner in value.items() for key, leaf in numbers(inner, f"{path}.{name}").items()}
    if isinstance(value, list):
        return {key: leaf for i, inner in enumerate(value) for key, leaf in numbers(inner, f"{path}.{i}").items()}
    return {path: value}


def test_the_numbers_and_verdicts_of_a_fixed_grid_stay() -> None:
    found, golden = numbers(grids.report(GRID).results), json.loads(GOLDEN.read_text())
    assert set(found) == set(golden)
    for name, value in golden.items():
        assert found[name] == (pytest.approx(value, rel=1e-9, abs=1e-9) if isinstance(value, float) else value), name


class Page(HTMLParser):
    """Checks that tags close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br", "link", "img", "hr", "input", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()


@pytest.mark.parametrize("name", ["1-method", "6-methods", "62-methods", "3-tasks"])
def test_the_page_stands_alone_in_light_and_dark(name: str) -> None:
    text = grids.report(name).html
    assert Page(text).open == []
    assert set(re.findall(r'\b(?:href|src|action|data|srcset)="(.)', text)) <= {"#"}
    assert not re.search(r"https?:|@import|url\((?!#)", text.replace("data:", ""))
    assert "prefers-color-scheme: dark" in text
    arms, _, _ = grids.GRIDS[name]()
    assert all(f'data-name="{arm}"' in text for arm in arms)


@pytest.mark.parametrize("name", ["1-method", "62-methods", "3-tasks"])
def test_the_terminal_has_80_columns_and_cuts_no_name(name: str) -> None:
    shown = grids.terminal(grids.report(name), 80)
    assert all(len(line) <= 80 for line in shown.splitlines() if not line.startswith("$ "))
    assert "…" not in shown
    arms, _, _ = grids.GRIDS[name]()
    if len(arms) < 10:
        assert all(re.search(rf"\b{arm}\b", shown) for arm in arms)


PAPER: dict[str, Any] = {
    "paper": "A paper",
    "table": "1",
    "what": "a task",
    "seeds": 2,
    "statistic": "mean",
    "columns": {"reviews": {"metric": "accuracy"}},
    "encoders": {"Tiny": {"model": "models/tiny", "source": "the paper"}},
    "rows": [
        {"method": "Plain", "arm": "vanilla", "encoder": "Tiny", "size": 16, "scores": {"reviews": 61.0}},
        {"method": "Noise", "arm": "hype_n", "encoder": "Tiny", "size": 16, "scores": {"reviews": 63.0}},
    ],
    "claims": [{"says": "noise gains", "where": "section 4", "arm": "hype_n", "over": "vanilla", "columns": "reviews"}],
}


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = build(
        tmp_path_factory.mktemp("reported") / "project",
        methods=[*METHODS],
        report={"published": ["a_table1"]},
        trackers=["mlflow"],
    )
    (root / "published").mkdir()
    (root / "published" / "a_table1.yaml").write_text(yaml.dump(PAPER, sort_keys=False))
    run_cells(root, *((method, "reviews") for method in METHODS))
    done(root, "report")
    return root


def test_a_papers_table_stands_beside_ours_and_its_claims_are_judged(reported: Path) -> None:
    page = (reported / "reports" / "report.html").read_text()
    ours = json.loads((reported / "reports" / "results.json").read_text())["reviews-16"]
    for method, printed in (("vanilla", 61.0), ("hype_n", 63.0)):
        mean = 100 * ours[method]["dev"]["accuracy"]["mean"]
        assert f"{printed}" in page
        assert f'{printed:.2f} (2)<span class="ours">{mean:.2f}' in page, (method, mean)
    assert "noise gains" in page


#: In a process of its own: MLflow keeps a database open that was deleted meanwhile.
READ = "from pathlib import Path; from tests.tracking.tree import snapshot; print(snapshot(Path.cwd()))"


def test_mlflow_has_nested_runs_with_curves_and_a_deleted_database_loses_nothing(reported: Path) -> None:
    before = literal_eval(python(reported, "-c", READ).stdout)
    seeds = [run for run in before if run[0].startswith("seed ")]
    assert len(seeds) == 4
    for name, tags, parameters, metrics, files, *_ in seeds:
        assert re.fullmatch(r"seed \d of (vanilla|hype_n) reviews-16", name)
        assert name.endswith(f" of {tags['mlflow.parentRunId']}")
        assert float(parameters["phases.finetune.training.learning_rate"]) == 1.0e-3
        assert "dev.accuracy" in metrics
        assert any(len(points) > 1 for points in metrics.values()), "the curve of the loss"
        assert files
    for file in reported.glob("mlflow.db*"):
        file.unlink()
    done(reported, "sync")
    assert literal_eval(python(reported, "-c", READ).stdout) == before


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(numbers(grids.report(GRID).results), indent=0, sort_keys=True) + "\n")
