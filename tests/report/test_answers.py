"""Where a method fails; the page has the numbers of results.json, and text from files is escaped."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from regft_core.report.formatting import number, score
from tests.report import grids
from tests.report.synthetic import Arm, Task


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
