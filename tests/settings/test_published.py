"""Tables of printed numbers: what is read, and the file, line and key of what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from regft_core.errors import ConfigError, Problem
from regft_core.settings.papers.published import read_published

TABLE: dict[str, Any] = {
    "paper": "P",
    "table": "1",
    "what": "w",
    "statistic": "mean",
    "columns": {
        "sst2": {"metric": "accuracy"},
        "rte": {"metric": "accuracy"},
        "average": {"mean_of": ["sst2", "rte"]},
        "time": {"unit": "seconds"},
    },
    "encoders": {"B": {"model": "a/b", "source": "the paper"}, "C": {"model": None, "source": "nobody"}},
}
PLAIN = {"method": "plain", "arm": "vanilla", "encoder": "B", "scores": {"sst2": 90.0, "rte": 70.0, "average": 80.0}}
OURS = {"method": "ours", "arm": "mine", "encoder": "B", "scores": {"sst2": 91.0, "time": 812.5}}
OURS |= {"gain_over": "plain", "gains": {"sst2": 1.0}}
CLAIM = {"says": "s", "where": "w", "arm": "mine", "over": "vanilla", "columns": "sst2"}


def problems(root: Path, ours: dict[str, Any], claim: dict[str, Any] | None, **changes: Any) -> list[Problem]:
    """What is wrong with the table after changes of it, of its row ``ours`` and of its claim."""
    (root / "published").mkdir(exist_ok=True)
    claims = [] if claim is None else [CLAIM | claim]
    table = {**TABLE, "rows": [PLAIN, OURS | ours], "claims": claims, **changes}
    (root / "published" / "p.yaml").write_text(yaml.safe_dump(table, sort_keys=False))
    try:
        read_published(root, "p")
    except ConfigError as error:
        return error.problems
    return []


@pytest.mark.parametrize(
    "claim",
    [None, {}, {"columns": ["all", "sst2"], "encoders": ["B"], "sizes": ["full"]}, {"measure": "deviation"}],
)
def test_a_right_table_has_no_problem(tmp_path: Path, claim: dict[str, Any] | None) -> None:
    assert problems(tmp_path, {}, claim) == []


def test_claims_of_a_table_without_rows_are_of_its_encoders(tmp_path: Path) -> None:
    assert problems(tmp_path, {}, {}, rows=[], missing="all") == []
    config = read_published(tmp_path, "p").config
    assert config.claims[0].settings(config) == [("B", "full"), ("C", "full")]


@pytest.mark.parametrize(
    ("ours", "claim", "changes", "key"),
    [
        ({"scor": 1}, None, {}, "rows[1].scor"),
        ({"scores": {"stsb": 70.0}}, None, {}, "rows[1].scores.stsb"),
        ({"deviations": {"rte": 1.0}}, None, {}, "rows[1].deviations.rte"),
        ({"encoder": "b"}, None, {}, "rows[1].encoder"),
        ({"encoder": "C"}, None, {}, "rows[1].arm"),
        ({"scores": {}}, None, {}, "rows[1].scores"),
        ({"gain_over": "plane"}, None, {}, "rows[1].gain_over"),
        ({"gain_over": None}, None, {}, "rows[1].gains"),
        ({}, None, {"rows": []}, "rows"),
        ({}, None, {"columns": TABLE["columns"] | {"sst2": {"metric": "acuracy"}}}, "columns.sst2.metric"),
        ({}, None, {"columns": TABLE["columns"] | {"average": {"mean_of": ["ret"]}}}, "columns.average"),
        ({}, None, {"columns": TABLE["columns"] | {"time": {"unit": "s", "metric": "accuracy"}}}, "columns.time"),
        ({}, {"arm": "min"}, {}, "claims[0].arm"),
        ({}, {"over": ["vanilla", "other"]}, {}, "claims[0].over"),
        ({}, {"columns": ["sst2", "time"]}, {}, "claims[0].columns"),
        ({}, {"columns": []}, {}, "claims[0].columns"),
        ({}, {"where": ""}, {}, "claims[0].where"),
        ({}, {"encoders": ["b"]}, {}, "claims[0].encoders"),
        ({}, {"encoders": ["C"]}, {}, "claims[0]"),
        ({}, {"sizes": [300]}, {}, "claims[0].sizes"),
        ({}, {"columns": "average", "measure": "deviation"}, {}, "claims[0].columns"),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(
    tmp_path: Path, ours: dict[str, Any], claim: dict[str, Any] | None, changes: dict[str, Any], key: str
) -> None:
    found = problems(tmp_path, ours, claim, **changes)
    assert key in [problem.key for problem in found], found
    assert all(problem.file == "published/p.yaml" and problem.line for problem in found)
