"""`regft init`: a project of few files that works at once; what a label column is taken for, and what is left out."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from regft_core.data.examples import Example
from regft_core.data.lengths import Lengths
from regft_core.data.prepare import declaration_of
from regft_core.data.prompts import Reading
from regft_core.data.read_split import read_split
from regft_core.disk.files import write_text
from regft_core.fit.new_project import make_project
from regft_core.fit.own_rows import Asked, OwnRows, count_unlabelled, read_elsewhere, read_own
from regft_core.fit.setup import BY_CHARACTERS, other_script, unread
from regft_core.kinds import find
from regft_core.schema.sources import FileFormat
from regft_core.schema.tasks import TaskConfig
from regft_core.settings.read_project import open_project
from tests.promises.kit import regft
from tests.small_project import parquet, review, workbook, write_csv
from tests.tiny import tiny_model_dir

FILES = [".dvc/.gitignore", ".dvc/config", ".dvcignore", ".gitignore", "README.md", "dvc.yaml"]
FILES += ["params.yaml"]


def files(root: Path) -> list[str]:
    return sorted(
        path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file() and ".git/" not in str(path)
    )


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    table = [("review", "verdict"), *((f"{review(n)} {n}", ["bad", "good"][n % 2]) for n in range(30))]
    return write_csv(tmp_path / "Own Reviews.csv", table)


def test_an_example_is_few_files_that_are_right(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    make_project(folder, None)
    assert files(folder) == FILES
    project = open_project(folder)
    assert list(project.params.grid.tasks) == ["film_polarity"]
    assert "pipelines/methods" in (folder / "README.md").read_text()


def test_one_that_was_killed_is_taken_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("regft_core.fit.new_project.write_text", die)
        with pytest.raises(KeyboardInterrupt):
            make_project(tmp_path / "new", None)
    make_project(tmp_path / "new", None)
    assert set(FILES) <= set(files(tmp_path / "new"))


def test_without_git_it_says_what_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    [said] = make_project(tmp_path / "new", None)
    assert "no_scm" in said
    assert "dvc metrics diff" in said
    assert "no_scm = true" in (tmp_path / "new" / ".dvc" / "config").read_text()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_command_makes_a_project_whose_results_git_ignores(tmp_path: Path, rows: Path) -> None:
    encoder = tiny_model_dir(tmp_path / "scratch", "bert")
    columns = ["--text", "review", "--label", "verdict", "--model", str(encoder)]
    write_csv(tmp_path / "pipelines" / "tasks" / "own-reviews.yaml", [])  # a task of another project
    with rows.open("a") as file:
        file.write("a slip,odd\r\n,good\r\n")
    done = regft(tmp_path, "init", "a new one", "--task", str(rows), *columns)
    assert done.returncode == 0, done.stderr
    assert "cd 'a new one' && regft run" in done.stdout
    assert "(odd), 1 row: never predicted" in done.stdout
    assert "0 rows without a label, 1 without a text" in done.stdout
    (tmp_path / "a new one").rename(tmp_path / "new")
    grid = open_project(tmp_path / "new").params.grid
    assert (list(grid.tasks), list(grid.seeds), list(grid.sizes)) == (["own-reviews"], [*range(10)], ["full"])
    results = [".regft/runs", "work/plan", "reports/report.html", "mlflow.db"]
    command = ["git", "check-ignore", *results]
    ignored = subprocess.run(command, cwd=tmp_path / "new", check=True, capture_output=True, text=True).stdout
    assert ignored.split() == results


# --------------------------------------------------------------------------------------------------------------- rows


def read(path: Path, labels: list[str], kind: str | None = None) -> OwnRows:
    file = write_csv(path / "rows.csv", [("text", "label"), *((f"text {n}", label) for n, label in enumerate(labels))])
    rows, problems = read_own(Asked(file, "text", "label", kind=kind))
    assert problems == []
    assert rows is not None
    return rows


@pytest.mark.parametrize(
    ("labels", "said", "kind", "names"),
    [
        (["good", "bad"] * 5, None, "classification", ("bad", "good")),
        (["1", "2", "3", "4", "10"] * 4, None, "classification", ("1", "2", "3", "4", "10")),  # by their value
        (["0.5", "1.5"] * 5, None, "classification", ("0.5", "1.5")),
        (["1.5", "2", "2.5"] * 5, None, "regression", None),
        ([str(n) for n in range(20)], None, "regression", None),
        (["fast;cheap", "fast", "cheap", ""] * 4, None, "multi_label", ("cheap", "fast")),
        (["a|b", "a", "b"] * 4, None, "multi_label", ("a", "b")),
        (["yes, but late", "yes", "no"] * 4, None, "classification", ("no", "yes", "yes, but late")),
        (["1", "2", "3"] * 5, "regression", "regression", None),
        ([str(n % 12) for n in range(48)], "classification", "classification", tuple(map(str, range(12)))),
        (["1,2", "1", "2"] * 5, "multi_label", "multi_label", ("1", "2")),
    ],
)
def test_the_kind_is_told_from_the_labels_or_said(
    tmp_path: Path, labels: list[str], said: str | None, kind: str, names: tuple[str, ...] | None
) -> None:
    rows = read(tmp_path, labels, said)
    assert (rows.kind, rows.labels) == (kind, names)
    assert said or "--kind" in rows.why  # what changes it


def test_numbers_that_commas_join_are_refused_with_what_reads_them(tmp_path: Path) -> None:
    rows = [("text", "label"), *((f"text {n}", ("1,2", "1", "2")[n % 3]) for n in range(15))]
    _, [problem] = read_own(Asked(write_csv(tmp_path / "rows.csv", rows), "text", "label"))
    assert problem.code == "not-a-number"
    assert "--kind multi_label" in problem.hint


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
    assert (several.labels, several.left_out) == (("a", "b", "c"), {})


def test_rows_without_label_or_text_are_counted(tmp_path: Path) -> None:
    lines = [*((f"text {n}", ["a", "b"][n % 2]) for n in range(10)), ("x", ""), ("", "a"), (" ", "b")]
    rows, problems = read_own(Asked(write_csv(tmp_path / "rows.csv", [("text", "label"), *lines]), "text", "label"))
    assert problems == []
    assert rows is not None
    assert (len(rows.examples), rows.without_label, rows.without_text) == (10, 1, 2)


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ([1.5, 2.5, 3.5] * 5, "ordinal"),
        ([-1, -2] * 7, None),
        (["a;b", "a", "b", "", None] * 4, None),  # blank and null are dropped alike, so both are counted
        ([["a"], ["b", "a"], [], None] * 4, None),
    ],
)
def test_a_run_reads_the_rows_that_are_told(tmp_path: Path, labels: list[Any], kind: str | None) -> None:
    file = tmp_path / "data" / "rows.jsonl"
    write_text(file, "\n".join(json.dumps({"text": f"text {n}", "label": one}) for n, one in enumerate(labels)))
    asked = Asked(file, "text", "label", kind=kind)
    own, problems = read_own(asked)
    assert own is not None, problems
    task = TaskConfig.model_validate(own.task(asked, file.name, {"folds": 3}))
    rows = read_split(tmp_path, "rows", task.source, file.name, declaration_of(task)).examples
    assert [row.text for row in rows] == [row.text for row in own.examples]
    assert find(own.kind).label_counts([row.label for row in rows], own.labels or ()) == own.counts


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet", "rows.xlsx"])
def test_a_decimal_mark_is_that_of_text_and_not_of_stored_numbers(tmp_path: Path, name: str) -> None:
    values = [n + 0.125 for n in range(12)]  # as text, 125 to 11125 where a point stands between thousands
    stored = [Decimal(str(value)) for value in values] if name == "rows.parquet" else values
    rows = [{"text": f"text {n}", "label": value} for n, value in enumerate(stored)]
    write_text(tmp_path / "data" / "rows.jsonl", "\n".join(json.dumps(row, default=str) for row in rows))
    (tmp_path / "data" / "rows.parquet").write_bytes(parquet(rows))
    if name == "rows.xlsx":
        (tmp_path / "data" / name).write_bytes(workbook(rows=[["text", "label"], *map(list, map(dict.values, rows))]))
    asked = Asked(tmp_path / "data" / name, "text", "label", how=FileFormat(decimal=","))
    own, problems = read_own(asked)
    assert own is not None, problems
    task = TaskConfig.model_validate(own.task(asked, name, {"folds": 3}))
    read = read_split(tmp_path, "rows", task.source, name, declaration_of(task)).examples
    assert (own.kind, [row.label for row in read]) == ("regression", values)


@pytest.mark.parametrize("labels", [["a", "a"], ["a", ""], [None]])
def test_a_list_that_no_run_would_read_is_refused_at_once(tmp_path: Path, labels: list[Any]) -> None:
    file, rows = tmp_path / "rows.jsonl", [*([["a"], ["b", "a"]] * 6), labels]
    write_text(file, "\n".join(json.dumps({"text": f"text {n}", "label": one}) for n, one in enumerate(rows)))
    assert [problem.code for problem in read_own(Asked(file, "text", "label"))[1]] == ["label-twice"]


def test_texts_differ_where_one_of_a_pair_does(tmp_path: Path) -> None:
    rows = [("one", "other", "label"), *(("the same", f"text {n}", "ab"[n % 2]) for n in range(12))]
    asked = Asked(write_csv(tmp_path / "rows.csv", rows), "one", "label", "other")
    assert read_own(asked)[1] == []
    assert [problem.code for problem in read_own(replace(asked, pair=None))[1]] == ["one-text"]


def test_a_file_of_other_texts_is_read_as_the_run_reads_it(tmp_path: Path) -> None:
    for training, labels, count in (
        (["a|b", "a", "b"] * 4, ["b"] * 23 + ["a|b"] * 2, 25),
        (["a"] * 9 + ["b"] * 8 + ["c"] * 2, ["a"] * 20 + ["c"] * 5, 20),
    ):
        other = write_csv(tmp_path / "other.csv", [("text", "label"), *((f"new {n}", x) for n, x in enumerate(labels))])
        own = read(tmp_path, training)
        found, problems = read_elsewhere(Asked(tmp_path / "rows.csv", "text", "label", ood=(other,)), own)
        assert [one.rows for one in found] == [count], problems


def test_each_file_is_read_in_its_own_encoding(tmp_path: Path) -> None:
    text = "text,label\n" + "".join(f"schön {review(n)} {n},{'ab'[n % 2]}\n" for n in range(40))
    utf8, western = tmp_path / "utf8.csv", tmp_path / "western.csv"
    utf8.write_text(text, encoding="utf-8")
    western.write_text(text, encoding="cp1252")
    for file, other in ((utf8, western), (western, utf8)):
        asked = Asked(file, "text", "label", how=FileFormat(encoding="cp1252"), ood=(other,), unlabelled=other)
        own, _ = read_own(asked)
        assert own is not None
        assert own.examples[0].text.startswith("schön")
        [found], problems = read_elsewhere(asked, own)
        encoding = "cp1252" if other is western else None
        assert (problems, found.declared["source"].get("encoding")) == ([], encoding)
        assert [problem.code for problem in count_unlabelled(replace(asked, ood=()))[1]] == ["not-its-encoding"]


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
