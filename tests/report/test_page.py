"""The page: numbers of results.json, where a method fails, escaped text; sorting, filter, print in a real browser."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from regft_core.report.formatting import number, score
from tests.report import grids
from tests.report.synthetic import Arm, Task, edited


def rows_of(root: Any, method: str, seed: int = 0) -> tuple[list[int], list[int], list[list[float]]]:
    path = root / "work" / "evaluate" / method / "sst2" / "300" / "predictions" / f"seed-{seed}" / "dev.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return tuple([row[key] for row in rows] for key in ("label", "prediction", "scores"))  # type: ignore[return-value]


def test_answers_are_whole_counts_of_the_exported_run_and_agree_with_scikit_learn(built: Any) -> None:
    block, results = built.report.blocks[0], built.report.results["sst2-300"]
    taken = block.decision.pick.method
    gold, predicted, scores = rows_of(built.root, taken)
    answers = built.report.answers[block.name]["dev"]
    assert answers.confusion == confusion_matrix(gold, predicted).tolist()
    wanted = np.array(precision_recall_fscore_support(gold, predicted, zero_division=0.0))
    found = np.array([[one[key] for key in ("precision", "recall", "f1", "rows")] for one in answers.classes.values()])
    assert found == pytest.approx(wanted.T)
    right = np.array(gold) == np.array(predicted)
    assert answers.bias == pytest.approx(np.max(scores, axis=1).mean() - right.mean())
    assert answers.wrong == (~right).sum()
    order = np.argsort(-np.max(scores, axis=1), kind="stable")
    half = next(kept for kept in answers.kept if kept["share"] == 0.5)
    assert half["score"] == pytest.approx(right[order[: round(0.5 * len(right))]].mean())
    assert results[taken]["answers"]["dev"]["confusion"] == answers.confusion
    for mistake in answers.mistakes:
        assert mistake["gold"] != mistake["predicted"]


def test_several_labels_and_values_have_what_fits_them(make: Any) -> None:
    tasks = {
        "tags": Task("multi_label", ("f1_micro",), n=80, ood=(), labels=("fast", "cheap", "good")),
        "stars": Task("regression", ("mse",), n=80, ood=()),
    }
    answers = make({"vanilla": Arm(0.8), "good": Arm(0.9)}, tasks, range(2)).report.answers
    tags, stars = (answers[f"{task}-300"]["dev"] for task in tasks)
    assert (tags.confusion, len(tags.classes), len(tags.probability)) == (None, 3, 3 * tags.rows)
    assert (stars.confusion, stars.classes, stars.kept) == (None, {}, [])
    distances = [one["size"] for one in stars.mistakes]
    assert distances == sorted(distances, reverse=True)
    assert distances[0] == pytest.approx(np.abs(stars.gold - stars.predicted).max())


def shown_numbers(value: Any) -> set[str]:
    """Every number below ``value`` in each of the forms that the first screen has."""
    if isinstance(value, dict):
        return {text for inner in value.values() for text in shown_numbers(inner)}
    if isinstance(value, bool) or not isinstance(value, int | float):
        return set()
    forms = {score(value, "accuracy"), number(100 * value, 0), number(value, 2), number(value, 0)}
    return {form.lstrip("−+") for form in forms}


@pytest.mark.parametrize("name", ["1-method", "6-methods"])
def test_words_and_numbers_of_the_first_screen_are_those_of_the_results(name: str) -> None:
    report = grids.report(name)
    (block,), results = report.blocks, report.results["reviews-300"]
    screen = report.html[report.html.index('<section id="decision"') : report.html.index('<nav aria-label="Sections"')]
    screen = re.sub(r'<details>.*?</details>|<thead>.*?</thead>|data-def="[^"]*"', "", screen, flags=re.DOTALL)
    text = html.unescape(re.sub(r"<svg.*?</svg>|<[^>]*>", " ", screen, flags=re.DOTALL))
    text = re.sub(r"What is [\w ]+\?|strength 0", "", text.replace(block.title, ""))
    if block.decision.pick is not None:
        (taken,) = [method for method, own in results.items() if own.get("decision", {}).get("taken")]
        assert f"take {taken}:" in text
    counts = {str(count) for count in range(len(results) * 2 + 1)} | {"95", "0.5", block.size, str(len(report.seeds))}
    names = "|".join(sorted(results, key=len, reverse=True))
    found = re.findall(r"(?<![\w.])\d+(?:\.\d+)?", re.sub(names, "", text))
    assert len(found) > 10
    allowed = shown_numbers(results) | counts
    assert [one for one in found if one not in allowed] == []


# -------------------------------------------------------------------------------------------- the page


def test_links_lead_to_places_of_the_page_and_text_from_files_is_escaped(built: Any) -> None:
    source = built.report.html
    ids = re.findall(r'\bid="([^"]+)"', source)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', source)) <= set(ids)
    for hostile in ("<script>alert", "<b>fine</b>", "<keeps>"):
        assert hostile not in source
        assert html.escape(hostile) in source


def test_of_each_task_the_page_says_what_its_runs_were_trained_with(make: Any) -> None:
    task, chosen = Task(n=60, ood=()), {"checkpoint": "best_on_split"}
    built = make({"vanilla": Arm(), "good": Arm(0.9, overrides=chosen)}, {"x": task, "y": task}, [0, 1])
    with edited(built.root / "work/finetune/good/y/300/manifest.json") as manifest:
        manifest["settings"]["phases"]["finetune"]["training"] |= {"checkpoint": "last", "learning_rate": 0.5}
    page = built.again("reports").html
    assert ["good" in text for text in re.findall(r"evaluated by accuracy[^.]*", page)] == [True, False]
    assert "no best epoch" not in page
    found = re.findall(r"<code>(\w+)</code>[^<]* → (\S+) on (\w)<", page)
    assert found == [("checkpoint", "best_on_split", "x"), ("learning_rate", "0.5", "y")]


# ------------------------------------------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    for name in ("3-tasks", "6-methods", "62-methods"):
        (folder / f"{name}.html").write_text(grids.report(name).html, encoding="utf-8")
    return folder


@pytest.fixture
def visit(browser: Any, pages: Path) -> Iterator[Any]:
    """Open one page; nothing may be asked of the net and no script may fail."""
    wrong: list[str] = []
    contexts = []

    def opened(name: str, width: int = 1280, **options: Any) -> Any:
        contexts.append(browser.new_context(viewport={"width": width, "height": 844}, **options))
        page = contexts[-1].new_page()
        page.on("request", lambda one: one.url.startswith(("file:", "data:")) or wrong.append(one.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda one: one.type == "error" and wrong.append(one.text))
        page.goto((pages / f"{name}.html").as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not wrong


def column(page: Any, index: int) -> list[str]:
    """Values of one column of the leaderboard, in the order that is shown."""
    return page.eval_on_selector_all(
        "table.lines tbody tr:not([hidden])", f"rows => rows.map(row => row.cells[{index}].dataset.value)"
    )


def names(page: Any) -> list[str]:
    return column(page, 1)


def test_numbers_are_sorted_as_numbers_with_mouse_and_keyboard(visit: Any) -> None:
    page = visit("62-methods")
    first = names(page)
    head = page.locator("table.lines th", has_text="measured")
    index = head.evaluate("cell => cell.cellIndex")
    head.get_by_role("button").click()
    values = [float(value) for value in column(page, index)]
    assert values == sorted(values, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    head.get_by_role("button").press("Enter")
    assert [float(value) for value in column(page, index)] == sorted(values)
    page.locator("table.lines th button", has_text="#").press("Enter")
    page.locator("table.lines th button", has_text="#").press("Enter")
    assert names(page) == first
    page.locator("table.lines th button", has_text="Method").press("Enter")
    assert names(page) == sorted(first)


def test_filter_controls_and_the_pinned_line(visit: Any) -> None:
    page = visit("62-methods")
    every = names(page)
    page.get_by_label("Filter").fill("TDT")
    assert names(page) == [name for name in every if "tdt" in name]
    assert page.locator(".count").inner_text() == f"{len(names(page))} of 62 lines"
    page.get_by_label("hide 8 controls and replacements").check()
    assert names(page) == [name for name in every if "tdt" in name and "_off" not in name]
    page.get_by_label("Filter").fill("")
    page.get_by_label("hide 8 controls and replacements").uncheck()
    assert names(page) == every

    page.locator("button.pin", has_text="linear_probe").press("Enter")
    assert names(page)[0] == "linear_probe"
    deltas = page.eval_on_selector_all("table.lines td.delta", "cells => cells.map(cell => cell.innerText)")
    assert deltas[0] == "0.0"
    assert deltas[1].startswith("+")
    page.locator("button.pin", has_text="linear_probe").press("Enter")
    assert names(page) == every
    assert not page.locator("table.lines td.delta").first.is_visible()


def test_the_first_screen_answers(visit: Any) -> None:
    page = visit("62-methods")
    found = grids.report("62-methods").blocks[0].decision
    for text in (found.sentences[0], found.command):
        box = page.get_by_text(text, exact=True).bounding_box()
        assert box["y"] + box["height"] < 844
    rows = page.locator("table.lines tbody tr").all()[:15]
    assert all(24 <= row.bounding_box()["height"] <= 28 for row in rows)
    assert rows[14].bounding_box()["y"] < 844


def test_print_is_three_pages_with_folds_closed_and_nothing_to_click(visit: Any) -> None:
    page = visit("6-methods", 1047)  # an A4 page on its side, less the margins
    page.emulate_media(media="print")
    assert not page.locator(".tools").first.is_visible()
    assert not page.locator("details:not([open]) summary").first.is_visible()
    wide = "tables => tables.filter(one => one.getBoundingClientRect().right > 1047).map(one => one.tHead.innerText)"
    assert page.eval_on_selector_all("table", wide) == []
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(prefer_css_page_size=True))) <= 3


@pytest.mark.parametrize(("width", "scheme"), [pytest.param(1280, "dark", marks=pytest.mark.slow), (390, "light")])
def test_no_rule_of_accessibility_is_broken(visit: Any, width: int, scheme: str) -> None:
    pytest.importorskip("axe_core_python", reason="axe-core-python is not installed (pip install '.[test]')")
    page = visit("3-tasks", width, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    page.add_script_tag(content=(files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found] == []
