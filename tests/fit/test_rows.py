"""What a label column is taken for, what is left out, and whether the encoder reads the language."""

from __future__ import annotations

from pathlib import Path

import pytest

from regft_core.data.examples import Example
from regft_core.data.lengths import Lengths
from regft_core.data.prompts import Reading
from regft_core.fit.own_rows import BY_CHARACTERS, Asked, OwnRows, other_script, read_own, unread
from tests.small_project import write_csv


def read(path: Path, labels: list[str], kind: str | None = None) -> OwnRows:
    file = write_csv(path / "rows.csv", [("text", "label"), *((f"text {n}", label) for n, label in enumerate(labels))])
    rows, problems = read_own(Asked(file, "text", "label", kind=kind))
    assert problems == []
    assert rows is not None
    return rows


@pytest.mark.parametrize(
    ("labels", "kind", "names"),
    [
        (["good", "bad"] * 5, "classification", ("bad", "good")),
        (["1", "2", "3", "4", "10"] * 4, "classification", ("1", "2", "3", "4", "10")),  # by their value
        (["0.5", "1.5"] * 5, "classification", ("0.5", "1.5")),
        (["1.5", "2", "2.5"] * 5, "regression", None),
        ([str(n) for n in range(20)], "regression", None),
        (["fast;cheap", "fast", "cheap", ""] * 4, "multi_label", ("cheap", "fast")),
        (["a|b", "a", "b"] * 4, "multi_label", ("a", "b")),
        (["yes, but late", "yes", "no"] * 4, "classification", ("no", "yes", "yes, but late")),
    ],
)
def test_the_kind_is_told_from_the_labels(
    tmp_path: Path, labels: list[str], kind: str, names: tuple[str, ...] | None
) -> None:
    rows = read(tmp_path, labels)
    assert (rows.kind, rows.labels) == (kind, names)
    assert "--kind" in rows.why  # and what changes it


def test_the_kind_may_be_said(tmp_path: Path) -> None:
    assert read(tmp_path, ["1", "2", "3"] * 5, "regression").labels is None
    assert read(tmp_path, [str(n % 12) for n in range(48)], "classification").labels is not None


def test_a_rare_class_makes_macro_f1_the_metric(tmp_path: Path) -> None:
    even = read(tmp_path, ["good"] * 16 + ["bad"] * 4)
    assert (even.metrics[0], even.rarest) == ("accuracy", "")
    skewed = read(tmp_path, ["good"] * 17 + ["bad"] * 4)
    assert (skewed.metrics[0], skewed.rarest) == ("f1_macro", "bad")


def test_a_long_tail_stays_and_a_few_odd_rows_are_left_out(tmp_path: Path) -> None:
    tail = read(tmp_path, ["a"] * 9 + ["b"] * 8 + ["c", "c", "d"])
    assert (tail.labels, tail.counts) == (("a", "b", "c", "d"), {"a": 9, "b": 8, "c": 2, "d": 1})
    assert tail.rare_line
    assert tail.in_every_fold == [8]
    assert read(tmp_path, ["a"] * 20 + ["b", "c", "d"]).in_every_fold == [3]
    assert not read(tmp_path, ["a"] * 9 + ["b"] * 8).rare_line
    assert "drop_labels" not in tail.task(Asked(tmp_path / "rows.csv", "text", "label"), "rows.csv", {"folds": 3})
    few = read(tmp_path, ["a"] * 9 + ["b"] * 8 + ["c", "c"])
    assert (few.labels, len(few.examples)) == (("a", "b"), 17)
    assert few.task(Asked(tmp_path / "rows.csv", "text", "label"), "rows.csv", {"folds": 3})["drop_labels"] == ["c"]
    ordered = read(tmp_path, ["1"] * 9 + ["2"] * 8 + ["3"] * 7 + ["4", "4", "5"], "ordinal")
    assert ordered.labels == ("1", "2", "3")
    several = read(tmp_path, ["a;b", "a", "b"] * 4 + ["a;c"], "multi_label")
    assert (several.labels, several.left_out) == (("a", "b", "c"), ())


def test_rows_without_label_or_text_are_counted(tmp_path: Path) -> None:
    lines = [
        ("text", "label"),
        *((f"text {n}", ["a", "b"][n % 2]) for n in range(10)),
        ("x", ""),
        ("", "a"),
        (" ", "b"),
    ]
    rows, problems = read_own(Asked(write_csv(tmp_path / "rows.csv", lines), "text", "label"))
    assert problems == []
    assert rows is not None
    assert (len(rows.examples), rows.without_label, rows.without_text) == (10, 1, 2)


# ---------------------------------------------------------------------------------------------------------- languages


@pytest.mark.parametrize(
    ("text", "encoder", "unknown", "warned"),
    [
        ("a good film", "minilm", 0, False),
        ("un café très bon", "minilm", 0, False),
        ("质量很好", "minilm", 0, True),  # each character is in the vocabulary, and the encoder read English only
        ("очень хороший фильм", "minilm", 0, True),
        ("质量很好", "multilingual", 0, False),
        ("质量很好", "multilingual", 4, True),
    ],
)
def test_a_language_that_is_not_read_is_said(text: str, encoder: str, unknown: int, warned: bool) -> None:
    warning = unread([Example("0", text, None, 0)], encoder, Lengths([], [], 0, Reading(), unknown, 100))
    assert (warning is not None) == warned
    assert warning is None or (encoder in warning and BY_CHARACTERS in warning and "--model" in warning)


def test_the_share_of_another_script() -> None:
    assert other_script([Example("0", "ab, 12", "дж", 0)]) == 0.5
    assert other_script([Example("0", "12 !", None, 0)]) == 0.0
