"""The printed numbers are facts that hold together: averages recompute, misprints are listed, names are known."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from regft_core.config.papers.published import published_names, read_published
from regft_core.errors import ConfigError
from regft_core.run.project import open_project
from tests.errors import raises_code

ROOT = Path(__file__).resolve().parents[2]
NAMES = published_names(ROOT)


@pytest.mark.parametrize("name", NAMES)
def test_every_table_is_valid_and_its_averages_recompute(name: str) -> None:
    """The loader recomputes them too; this is a second hand with no regard to how it does so."""
    config = read_published(ROOT, name).config
    assert name.endswith(f"_table{config.table}")
    for row in config.rows:
        if row.scores and row.average is not None:
            mean = sum(row.scores.values()) / len(row.scores)
            assert abs(mean - row.average) < 0.0151 or row.recomputed == pytest.approx(mean, abs=0.0051)


def test_known_misprints_are_listed() -> None:
    wrong = {
        (name, row.method, row.average, row.recomputed)
        for name in NAMES
        for row in read_published(ROOT, name).config.rows
        if row.recomputed is not None
    }
    assert wrong == {
        ("hype_table5", "Vanilla", 79.31, 79.15),
        ("hype_table18", "Vanilla", 79.31, 79.15),
        ("pats_table1", "BERT-base", 83.18, 83.04),
        ("pats_table1", "SAGE", 83.65, 83.71),
        ("pats_table1", "NoisyTune", 88.56, 88.54),
        ("pats_table1", "PATS", 88.90, 88.93),
    }
    for name in ("weight_mixup_table8", "weight_mixup_table10"):  # the same pair of numbers for two methods
        assert any("63.93" in text for text in read_published(ROOT, name).config.misprints)


def test_tables_of_all_five_papers_are_there() -> None:
    tables = {
        "tdt": [1, 2, 3, 4, 5],
        "hype": [*range(1, 10), 12, 16, 17, 18],
        "mask_tuning": [1, 2, 3],
        "pats": [1, 3],
        "weight_mixup": [1, 2, 3, 4, 5, 8, 9, 10, 11],
    }
    assert {f"{paper}_table{n}" for paper, numbers in tables.items() for n in numbers} == set(NAMES)


def test_a_gain_of_one_table_is_that_of_another() -> None:
    """Weight mixup's averages of table 1 are the means of table 8, ablations begin and end with table 2's rows."""

    def rows(name: str) -> Any:
        return read_published(ROOT, name).config.rows

    tasks = {(row.arm, row.size): row.average for row in rows("weight_mixup_table8") if row.average is not None}
    averages = {(row.arm, row.size): row.average for row in rows("weight_mixup_table1")}
    assert tasks.items() <= averages.items()
    assert rows("weight_mixup_table4")[0] == rows("weight_mixup_table2")[0] == rows("weight_mixup_table3")[0]


TABLE: dict[str, Any] = {
    "paper": "P",
    "table": "1",
    "what": "w",
    "seeds": 3,
    "statistic": "mean",
    "metrics": {"sst2": "accuracy", "rte": "accuracy"},
    "rows": [
        {"method": "plain", "arm": "vanilla", "model": "a/b", "scores": {"sst2": 90.0, "rte": 70.0}, "average": 80.0}
    ],
}


def problem(tmp_path: Path, **changes: Any) -> str:
    for folder, names in (("tasks", ("sst2", "rte")), ("methods", ("vanilla",))):
        (tmp_path / "pipelines" / folder).mkdir(parents=True, exist_ok=True)
        for name in names:
            (tmp_path / "pipelines" / folder / f"{name}.yaml").write_text("")
    row = {**TABLE["rows"][0], **changes.pop("row", {})}
    (tmp_path / "published").mkdir(exist_ok=True)
    text = yaml.safe_dump({**TABLE, "rows": [row], **changes}, sort_keys=False)
    (tmp_path / "published" / "p.yaml").write_text(text)
    try:
        read_published(tmp_path, "p")
    except ConfigError as error:
        return str(error)
    return ""


def test_a_right_table_has_no_problem(tmp_path: Path) -> None:
    assert problem(tmp_path) == ""
    assert problem(tmp_path, row={"average": 79.0, "recomputed": 80.0}, misprints=["79"]) == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"row": {"average": 80.2}}, "rows[0].average: average 80.2, but the scores' mean is 80.00"),
        ({"row": {"average": 79.0, "recomputed": 80.0}}, "list the misprints in words too"),
        ({"row": {"recomputed": 80.0}, "misprints": ["m"]}, "follows from the scores; remove it"),
        ({"row": {"average": 79.0, "recomputed": 81.0}, "misprints": ["m"]}, "recomputed 81, but"),
        ({"row": {"scores": {"sst2": 90.0, "stsb": 70.0}}}, "column 'stsb' has no metric [column-without-metric]"),
        ({"row": {"deviations": {"mrpc": 1.0}}}, "a deviation of 'mrpc', which has no score"),
        ({"row": {"arm": "vanila"}}, "'vanila' [unknown-method]\n    -> did you mean 'vanilla'?"),
        ({"row": {"scores": {}, "average": None}}, "says nothing"),
        ({"metrics": {"sst2": "acuracy", "rte": "accuracy"}}, "did you mean 'accuracy'?"),
        ({"metrics": {"sst2": "accuracy", "rte": "accuracy", "sst3": "accuracy"}}, "'sst3' [unknown-task]"),
        ({"rows": []}, "'missing' does not say why"),
        ({"row": {"scor": 1}}, "'scor' [unknown-key]"),
    ],
)
def test_wrong_tables_are_refused_with_file_and_line(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    found = problem(tmp_path, **changes)
    assert said in found
    assert "published/p.yaml:" in found


def test_params_name_tables_that_are_there(failures: Any) -> None:
    (found,) = failures({"params.yaml": PARAMS, "published/hype_table1.yaml": "x: 1\n"})
    assert (found.file, found.line, found.key) == ("params.yaml", 6, "report.published")
    assert "there is no published/hype_tabel1.yaml" in found.message
    assert "did you mean 'hype_table1'?" in found.hint


def test_a_table_that_was_edited_is_read_again(build: Any) -> None:
    table = {**TABLE, "metrics": {"opinions": "accuracy"}, "rows": []}
    params = PARAMS.replace("hype_tabel1", "p")
    root = build({"params.yaml": params, "published/p.yaml": yaml.safe_dump({**table, "missing": "not here"})})
    for path in root.rglob("*"):
        os.utime(path, (1, 1))  # old enough to be read once
    open_project(root)
    (root / "published" / "p.yaml").write_text(yaml.safe_dump(table))
    with raises_code(ConfigError, "inconsistent", "'missing' does not say why"):
        open_project(root)


PARAMS = """\
model: {name: minilm}
grid: {tasks: [opinions], sizes: [100], seeds: [0, 1]}
methods: [vanilla]
training: {epochs: 2}
subsample: {}
report: {published: hype_tabel1}
"""
