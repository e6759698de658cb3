"""Rows that are worth labelling next: uncertain ones, unlike each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from regft_core.errors import DataError
from regft_core.serve.model import load_served
from regft_core.serve.pick import choose, pick_file, uncertainty
from tests.errors import raises_code
from tests.small_project import read_csv, review, write_csv
from tests.stages.conftest import Exported


@pytest.mark.parametrize(
    ("unsure", "vectors", "rows", "chosen"),
    [
        # The most uncertain row comes first, and its copies last.
        ([0.9, 0.8, 0.3, 0.7], [[1, 0], [1, 0], [0, 1], [1, 0]], 4, [0, 2, 1, 3]),
        # A certain row is not taken for being odd.
        ([0.9, 0.9, 0.01], [[1, 0, 0], [0.6, 0.8, 0], [0, 0, 1]], 2, [0, 1]),
        ([1, 1, 1], [[1, 0, 0], [0, 1, 0], [0, 0, 1]], 10, [0, 1, 2]),  # no more than there are
    ],
)
def test_which_rows_are_chosen(unsure: list[float], vectors: list[list[float]], rows: int, chosen: list[int]) -> None:
    assert choose(np.array(unsure, float), csr_matrix(np.array(vectors, float)), rows) == chosen


def test_one_label_is_unsure_by_its_margin_and_several_by_their_least_certain_label() -> None:
    scores = np.array([[0.6, 0.4, 0.0], [0.98, 0.97, 0.01]])
    assert uncertainty(scores, "classification") == pytest.approx([0.8, 0.99])
    # Two labels that are both surely there have no margin, and the model is sure of each.
    assert uncertainty(scores, "multi_label") == pytest.approx([0.8, 0.06])
    assert uncertainty(np.array([[3.2], [-1.0]]), "regression").tolist() == [1, 1]


def test_rows_are_written_whole_with_prediction_and_uncertainty(exported: Exported, tmp_path: Path) -> None:
    model = load_served(exported["vanilla", "reviews"], "cpu")
    texts = [review(i) for i in range(12)]
    data = write_csv(tmp_path / "new.csv", [("id", "review"), *enumerate([*texts, texts[0], "", "  "])])
    counted = pick_file(model, data, tmp_path / "out.csv", 5)
    assert (counted.rows, counted.read, counted.empty) == (5, 15, 2)
    assert counted.repeated == 13 - len(set(texts))
    rows = read_csv(tmp_path / "out.csv")
    assert list(rows[0]) == ["id", "review", "prediction", "uncertainty"]
    assert len({row["review"] for row in rows}) == 5
    assert all(row["review"] == [*texts, texts[0]][int(row["id"])] for row in rows)
    (tmp_path / "unnamed.csv").write_text(",review,\n17,good film,\n18,bad film,x\n")
    pick_file(model, tmp_path / "unnamed.csv", tmp_path / "named.csv", 2)
    picked = [(row["column 1"], row["review"], row["column 3"]) for row in read_csv(tmp_path / "named.csv")]
    assert sorted(picked) == [("17", "good film", ""), ("18", "bad film", "x")]
    unsure = [float(row["uncertainty"]) for row in rows]
    assert unsure[0] == max(unsure)
    for out, code in ((tmp_path / "out.csv", "in-the-way"), (data, "output-is-input")):
        with raises_code(DataError, code):
            pick_file(model, data, out, 5)
    (tmp_path / "objects.jsonl").write_text('{"review": {"en": "good"}}\n')
    with raises_code(DataError, "not-text", "row 1"):
        pick_file(model, tmp_path / "objects.jsonl", tmp_path / "none.csv", 5)
