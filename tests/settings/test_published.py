"""The printed numbers are facts that hold together: averages recompute, misprints are listed, names are known."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from regft_core.errors import ConfigError
from regft_core.runs.project import open_project
from regft_core.settings.papers.published import published_names, read_published
from tests.errors import raises_code

ROOT = Path(__file__).resolve().parents[2]
NAMES = published_names(ROOT)


def test_tables_of_all_five_papers_are_there() -> None:
    tables = {
        "tdt": [1, 2, 3, 4, 5],
        "hype": [*range(1, 10), 12, 16, 17, 18],
        "mask_tuning": [1, 2, 3],
        "pats": [1, 3],
        "weight_mixup": [1, 2, 3, 4, 5, 8, 9, 10, 11],
    }
    others = {"tdt_prose", "hype_prose", "weight_mixup_prose", "weight_mixup_figure3", "mask_tuning_alpha"}
    others |= {"mask_tuning_rate", "weight_mixup_searches"}
    assert {f"{paper}_table{n}" for paper, numbers in tables.items() for n in numbers} | others == set(NAMES)


TABLE: dict[str, Any] = {
    "paper": "P",
    "table": "1",
    "what": "w",
    "seeds": 3,
    "statistic": "mean",
    "columns": {
        "sst2": {"metric": "accuracy"},
        "rte": {"metric": "accuracy"},
        "average": {"mean_of": ["sst2", "rte"]},
        "time": {"unit": "seconds"},
    },
    "encoders": {"B": {"model": "a/b", "source": "the paper"}, "C": {"model": None, "source": "nobody"}},
    "rows": [
        {
            "method": "plain",
            "arm": "vanilla",
            "encoder": "B",
            "scores": {"sst2": 90.0, "rte": 70.0, "average": 80.0},
            "deviations": {"sst2": 1.0},
        }
    ],
}
SCORES = TABLE["rows"][0]["scores"]
BETTER = {
    "method": "ours",
    "encoder": "B",
    "scores": {"sst2": 91.0, "rte": 72.0, "time": 812.5},
    "gain_over": "plain",
    "gains": {"sst2": 1.0, "average": 1.5},
}


def problem(tmp_path: Path, **changes: Any) -> str:
    """What is wrong with the table after changes of it, of its first ``row`` and with a ``second`` row."""
    for folder, names in (("tasks", ("sst2", "rte")), ("methods", ("vanilla",))):
        (tmp_path / "pipelines" / folder).mkdir(parents=True, exist_ok=True)
        for name in names:
            (tmp_path / "pipelines" / folder / f"{name}.yaml").write_text("")
    rows = [{**TABLE["rows"][0], **changes.pop("row", {})}]
    rows += [{**BETTER, **changes.pop("second")}] if "second" in changes else []
    columns = {**TABLE["columns"], **changes.pop("columns", {})}
    (tmp_path / "published").mkdir(exist_ok=True)
    text = yaml.safe_dump({**TABLE, "columns": columns, "rows": rows, **changes}, sort_keys=False)
    (tmp_path / "published" / "p.yaml").write_text(text)
    try:
        read_published(tmp_path, "p")
    except ConfigError as error:
        return str(error)
    return ""


CLAIM = {"says": "s", "where": "w", "arm": "vanilla_b", "over": "vanilla", "columns": "average"}


def claiming(**changes: Any) -> dict[str, Any]:
    return {"derived": ["vanilla_b"], "second": {"arm": "vanilla_b"}, "claims": [{**CLAIM, **changes}]}


def misprinted(printed: float, recomputed: float) -> dict[str, Any]:
    return {
        "row": {"scores": {**SCORES, "average": printed}, "recomputed": {"average": recomputed}},
        "misprints": ["m"],
    }


def test_a_right_table_has_no_problem(tmp_path: Path) -> None:
    assert problem(tmp_path) == ""
    assert problem(tmp_path, second={}) == ""
    assert problem(tmp_path, **misprinted(79.0, 80.0)) == ""
    assert problem(tmp_path, derived=["vanilla_b"], row={"arm": "vanilla_b"}) == ""
    assert problem(tmp_path, second={"method": "plain", "setting": {"k": 5}, "gain_over": None, "gains": {}}) == ""
    nested = {"both": {"mean_of": ["sst2", "rte"]}, "average": {"mean_of": ["sst2", ["sst2", "rte"]]}}
    assert problem(tmp_path, columns=nested, row={"scores": {"sst2": 90.0, "both": 82.0, "average": 86.0}}) == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"row": {"scores": {**SCORES, "average": 80.2}}},
            "scores.average: average 80.2, but the scores' mean is 80.00",
        ),
        ({**misprinted(79.0, 80.0), "misprints": []}, "list the misprints in words too"),
        (misprinted(80.0, 80.0), "follows from the scores; remove"),
        (misprinted(79.0, 81.0), "recomputed 81, but"),
        ({"row": {"recomputed": {"rte": 1.0}}, "misprints": ["m"]}, "needs its parts and a printed mean"),
        ({"row": {"scores": {"sst2": 90.0, "stsb": 70.0}}}, "'stsb' is not a column [unknown-column]"),
        ({"row": {"scores": {"sst2": 900.0}}}, "900 is not a score in points [not-points]"),
        ({"row": {"deviations": {"rte": 1.0, "time": 1.0}}}, "a deviation of 'time', which has no score"),
        ({"row": {"arm": "vanila"}}, "'vanila' [unknown-method]\n    -> did you mean 'vanilla'?"),
        ({"row": {"encoder": "b"}}, "'b' [unknown-encoder]\n    -> did you mean 'B'?"),
        ({"row": {"encoder": "C"}}, "a row with 'arm' needs an encoder whose checkpoint is known"),
        ({"row": {"scores": {}, "deviations": {}}}, "says nothing"),
        ({"second": {"method": "plain", "gain_over": None, "gains": {}}}, "'plain' is there twice"),
        ({"second": {"gain_over": "plane"}}, "0 rows are 'plane' with this encoder and size"),
        ({"second": {"gain_over": None}}, "gains and gain_over belong together"),
        ({"second": {"gains": {"sst2": 1.2}}}, "gain +1.2, but the scores differ by +1.00"),
        ({"second": {"gains": {"average": 1.2}}}, "gain +1.2, but the scores differ by +1.50"),
        ({"second": {"gains": {"time": 1.2}}}, "a gain of 'time', which one of both rows does not print"),
        ({"columns": {"sst2": {"metric": "acuracy"}}}, "did you mean 'accuracy'?"),
        ({"columns": {"sst3": {"metric": "accuracy"}}}, "'sst3' [unknown-task]"),
        ({"columns": {"average": {"mean_of": ["sst2", "ret"]}}}, "'ret' is not a column [unknown-column]"),
        ({"columns": {"time": {"unit": "s", "metric": "accuracy"}}}, "exactly one of metric, mean_of and unit"),
        (claiming(arm="vanila_b"), "method 'vanila_b', which the table does not have [unknown-in-claim]"),
        (claiming(over=["vanilla", "other"]), "claims[0].over: the claim is about method 'other'"),
        (claiming(columns=["sst2", "avg"]), "column 'avg', which the table does not have [unknown-in-claim]"),
        (claiming(columns="time"), "column 'time', which"),
        (
            claiming(encoders=["C"]),
            "no encoder and size of the table has rows of all methods of the claim [claim-without-rows]",
        ),
        (claiming(encoders=["b"]), "encoder 'b', which the table does not have [unknown-in-claim]"),
        (claiming(sizes=[300]), "size '300', which the table does not have [unknown-in-claim]"),
        (claiming(measure="deviation"), "'average' is a mean of columns, whose deviation papers form in several ways"),
        (claiming(columns=[]), "claims[0].columns"),
        (claiming(where=""), "claims[0].where"),
        ({"rows": []}, "'missing' does not say why"),
        ({"row": {"scor": 1}}, "'scor' [unknown-key]"),
    ],
)
def test_wrong_tables_are_refused_with_file_and_line(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    found = problem(tmp_path, **changes)
    assert said in found
    assert "published/p.yaml:" in found


def test_claims_speak_of_rows_that_are_there(tmp_path: Path) -> None:
    assert problem(tmp_path, **claiming()) == ""
    assert problem(tmp_path, **claiming(columns=["all", "average"], encoders=["B"], sizes=["full"])) == ""
    assert problem(tmp_path, **claiming(columns="all", measure="deviation")) == ""
    # A table without rows has claims all the same, of its encoders.
    config = read_published(tmp_path, "p").config
    assert config.claims[0].settings(config) == [("B", "full")]


def test_params_name_tables_that_are_there(failures: Any) -> None:
    (found,) = failures({"params.yaml": PARAMS, "published/hype_table1.yaml": "x: 1\n"})
    assert (found.file, found.line, found.key) == ("params.yaml", 6, "report.published")
    assert "there is no published/hype_tabel1.yaml" in found.message
    assert "did you mean 'hype_table1'?" in found.hint


def test_a_table_that_was_edited_is_read_again(build: Any) -> None:
    table = {**TABLE, "columns": {"opinions": {"metric": "accuracy"}}, "rows": []}
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
