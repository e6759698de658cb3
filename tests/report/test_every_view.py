"""Report, terminal, notebook, DVC's files, MLflow's tags, model card, API and plan name one verdict for one pair."""

from __future__ import annotations

import html
import io
import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from regft_core.api import load
from regft_core.report import planner, project_report, show
from regft_core.runs.project import open_project
from regft_core.serve.card import _reported
from regft_core.settings.grid import cells
from regft_core.statistics.verdict import SYMBOLS
from regft_core.tracking.entries import read_grid
from tests.report.synthetic import Arm, Task, build
from tests.report.test_one_verdict import said_of
from tests.small_project import build as build_project

SEEDS = range(6)
ARMS = {
    "vanilla": Arm(0.7, shift=-0.05),
    "hype_n": Arm(0.9, shift=-0.6),
    "vanilla_no_dropout": Arm(0.71, control_for="hype_n", shift=-0.05),
    "linear_probe": Arm(0.35, shift=0.0, trains_encoder=False, declared=0.03, seconds=0.4, search=True),
}
#: What all views must say of the development set: (method, other) -> word.
WORDS = {
    ("hype_n", "vanilla"): "better",
    ("hype_n", "vanilla_no_dropout"): "better",
    ("vanilla_no_dropout", "vanilla"): "no difference shown",
    ("linear_probe", "vanilla"): "worse",
}
ROLE = {"vanilla": "reference", "vanilla_no_dropout": "control"}
BELOW = {("hype_n", "shop"), ("linear_probe", "dev"), ("linear_probe", "shop")}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A real project whose runs are simulated."""
    root = build_project(tmp_path_factory.mktemp("views") / "project", methods=list(ARMS), grid={"seeds": list(SEEDS)})
    build(root, ARMS, {"reviews": Task(metrics=("accuracy",), n=200, ood=("shop",))}, (16,), SEEDS)
    project = open_project(root)
    report = project_report(project, cells(project), {})
    results = json.loads((root / "reports" / "results.json").read_text())["reviews-16"]
    return SimpleNamespace(root=root, project=project, report=report, results=results)


def line(text: str, method: str) -> str:
    return next(line for line in text.splitlines() if re.match(rf" +\d+ +{method} ", line))


def below_marks(row: str) -> int:
    return row.count(" !")


def test_the_page(seen: Any) -> None:
    page = (seen.root / "reports" / "report.html").read_text()
    for (method, other), word in WORDS.items():
        pair = rf'data-value="{method}">{method}</td><td class="method" data-value="{other}">.*?class="word \w+">(.*?)<'
        found = re.search(pair, page, re.DOTALL)
        assert found is not None
        assert html.unescape(found[1]) == f"{SYMBOLS[word]} {word}"
        (row,) = re.findall(rf'<tr[^>]* data-name="{method}">(.*?)</tr>', page, re.DOTALL)
        assert f'title="{word}: {other} ' in row
    for method in ARMS:
        (row,) = re.findall(rf'<tr[^>]* data-name="{method}">(.*?)</tr>', page, re.DOTALL)
        assert row.count('title="no better than a constant answer"') == sum(name == method for name, _ in BELOW)


def test_the_terminal_and_the_notebook(seen: Any) -> None:
    console = Console(width=120, file=io.StringIO())
    show(seen.report, console)
    notebook = html.unescape(re.sub("<[^>]*>", "", load(seen.root).results()._repr_html_()))
    for text in (console.file.getvalue(), notebook):  # type: ignore[attr-defined]
        for (method, other), word in WORDS.items():
            column = {"reference": "vs vanilla", "control": "vs control"}[ROLE[other]]
            head = next(line for line in text.splitlines() if line.startswith("method "))
            end = head.index(column) + len(column)
            assert line(text, method)[:end].endswith(f" {SYMBOLS[word]}"), (method, other)
        for method in ARMS:
            assert below_marks(line(text, method)) == sum(name == method for name, _ in BELOW)


def test_the_files_of_dvc(seen: Any) -> None:
    shown = json.loads((seen.root / "reports/metrics/reviews-16.json").read_text())
    assert set(re.split(", | and ", shown["no_better_than_constant"])) == {
        f"{method} on {name}" for method, name in BELOW
    }
    for (method, other), word in WORDS.items():
        named = {word: re.split(", | and ", names) for word, names in shown[f"vs_{ROLE[other]}"].items()}
        assert [one for one, methods in named.items() if method in methods] == [word] * (word in named)
        assert seen.results[method][f"versus_{ROLE[other]}"][other]["dev"]["verdict"] == word


def test_the_tags_of_mlflow(seen: Any) -> None:
    records = {one.tags["method"]: one.tags for one, _ in read_grid(seen.root, cells(seen.project), SEEDS)}
    for (method, other), word in WORDS.items():
        assert records[method][f"verdict_{ROLE[other]}"] == word
    for method in ARMS:
        found = set(filter(None, records[method].get("no_better_than_constant", "").split(", ")))
        assert found == {s for m, s in BELOW if m == method}


def test_the_model_card(seen: Any) -> None:
    said = {}
    for method in ARMS:
        context: Any = SimpleNamespace(
            root=seen.root, job=SimpleNamespace(method=method, task="reviews", size="16", seed=0)
        )
        card = "\n".join(f"- {text}" for text in _reported(context).get("findings") or ())
        said |= {(one, other.rstrip(".:,")): word for one, word, other in said_of(card)}
    assert {pair: word for pair, word in WORDS.items() if pair in said} == said
    assert len(said) == 3  # a control has no sentences of its own


def test_the_data_frame(seen: Any) -> None:
    results = load(seen.root).results()
    pairs = results.verdicts
    dev = pairs[(pairs["set"] == "dev") & (pairs["role"] != "opponent")]
    assert {(one["method"], one["other"]): one["verdict"] for one in dev.to_dict("records")} == WORDS
    for one in results[results["set"] == "dev"].to_dict("records"):
        own = {ROLE[other]: word for (method, other), word in WORDS.items() if method == one["method"]}
        assert {role: one[f"vs_{role}"] for role in own} == own
    low = results[results["no_better_than_constant"]]
    assert set(zip(low["method"], low["set"])) == BELOW


def test_the_plan(seen: Any) -> None:
    needs = planner.needs(seen.project, [], lambda cell: None, 5.0)
    assert {(need.pair.method, need.pair.other): need.word for need in needs} == WORDS
    table = planner.table(needs, 5.0)
    for need in needs:
        verdict = seen.results[need.pair.method][f"versus_{need.pair.role}"][need.pair.other]["dev"]
        assert (need.comparisons, need.confidence) == (verdict["comparisons"], verdict["confidence"])
        assert re.search(rf"^{need.pair.method} - {need.pair.other} .* {need.word}  ", table, re.MULTILINE)
