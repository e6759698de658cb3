"""23: leaks, cut texts, rare classes and permuted labels are warned of. 29: in folds every row is judged once, and the
rows of a group stay together."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.promises.kit import done, messages, run_cells
from tests.promises.kit import folded as make_folded
from tests.small_project import build, predictions, read_csv, review, write_csv

HEAD = ("review", "verdict")
NAMES = ("bad", "good")


def warnings(root: Path) -> str:
    """What preparing the rows of a project, and its plan, warn of."""
    return messages(done(root, "subsample") + done(root, "subsample"))


def test_a_clean_project_is_warned_of_nothing(tmp_path: Path) -> None:
    root = build(tmp_path / "project")
    for name, start in (("train", 0), ("dev", 100), ("shop", 200)):
        rows = [(f"{NAMES[n % 2]} number {n}", NAMES[n % 2]) for n in range(start, start + 32)]
        write_csv(root / "data" / f"{name}.csv", [HEAD, *rows])
    said = warnings(root)
    assert not any(word in said for word in ("repeat the text", "cuts", "few training rows"))


def test_leaks_cuts_and_rare_classes_are_warned_of(tmp_path: Path) -> None:
    root = build(tmp_path / "project", words=59)
    rows = [(review(n, 59), NAMES[n % 16 == 1]) for n in range(32)]
    write_csv(root / "data" / "train.csv", [HEAD, *rows])
    write_csv(root / "data" / "dev.csv", [HEAD, *rows[:16]])
    said = warnings(root)
    assert "all rows of dev repeat the text of a training row" in said
    assert "max_length 32 cuts 100.0% of train" in said
    assert "few training rows are 'good'" in said


def test_permuted_labels_of_another_set_are_warned_of(tmp_path: Path) -> None:
    root = build(tmp_path / "project", grid={"seeds": [0]}, training={"epochs": 4, "learning_rate": 3.0e-3})
    swapped = [(review(n, 9), NAMES[(n + 1) % 2]) for n in range(32)]
    write_csv(root / "data" / "shop.csv", [HEAD, *swapped])
    run_cells(root, ("vanilla", "reviews"))
    said = messages(done(root, "report") + (root / "reports" / "report.html").read_text())
    assert "Check the order of" in said
    assert "label_map" in said


@pytest.fixture(scope="module")
def folded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_folded(tmp_path_factory.mktemp("folds") / "project", ["vanilla", "tfidf_logistic"])
    run_cells(root, ("vanilla", "reviews"), ("tfidf_logistic", "reviews"))
    return root


@pytest.mark.parametrize("method", ["vanilla", "tfidf_logistic"])
def test_in_each_repeat_every_row_is_judged_once_and_groups_stay_together(folded: Path, method: str) -> None:
    shops = [row["shop"] for row in read_csv(folded / "data" / "rows.csv")]
    judged = [[int(row["idx"]) for row in predictions(folded, method, "reviews", n, "full")] for n in range(6)]
    first = min(min(rows) for rows in judged)  # rows are counted from 0 or from 1
    for repeat in (judged[:3], judged[3:]):
        counts = Counter(row - first for rows in repeat for row in rows)
        assert counts == Counter(range(48))
        groups = [{shops[row - first] for row in rows} for rows in repeat]
        assert sum(map(len, groups)) == len(set(shops)), "a group lies in one fold"
    assert judged[:3] != judged[3:]
