"""Three calls from Python: the same files, runs and numbers as the DVC stages."""

from __future__ import annotations

import html
import json
import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from regft_core.api import Project, Results
from regft_core.errors import ConfigError
from tests.errors import raises_code
from tests.small_project import REPOSITORY, build, python, stage


def times(root: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in (root / ".regft" / "runs").glob("*/*/result.json")}


def scores(results: Results, method: str) -> list[dict[str, Any]]:
    return results[results["method"] == method].to_dict("records")


def test_run_and_results_are_those_of_the_pipeline(tmp_path: Path) -> None:
    root = build(tmp_path / "project", methods=["vanilla", "hype_n"])
    project = Project.open(root)
    assert isinstance(project, Project)
    assert project.results().empty
    assert "No run" in project.results()._repr_html_()
    project.run("vanilla", "reviews")
    own = project.results()  # the other method was not run
    assert list(zip(own["method"], own["set"], own["metric"])) == [
        ("vanilla", "dev", "accuracy"),
        ("vanilla", "shop", "accuracy"),
    ]
    project.run("hype_n", "reviews")
    results = project.results()

    done = stage(root, "report")
    assert done.returncode == 0, done.stderr
    reported = json.loads((root / "reports" / "results.json").read_text())["reviews-16"]
    for score in results.to_dict("records"):
        cell = reported[score["method"]][score["set"]][score["metric"]]
        assert (score["mean"], score["low"], score["high"]) == (cell["mean"], cell["low"], cell["high"])
        compared = reported[score["method"]].get("versus_reference", {})
        assert ([score["vs_reference"]] if compared else []) == [
            sets[score["set"]]["verdict"] for sets in compared.values()
        ]
        assert bool(compared) is (score["method"] == "hype_n")
        assert score["no_better_than_constant"] is (
            score["set"] in reported[score["method"]]["no_better_than_constant"]
        )
        assert score["primary"]
        assert (score["seed 0"] + score["seed 1"]) / 2 == pytest.approx(score["mean"])
    for pair in results.verdicts.to_dict("records"):
        cell = reported[pair["method"]]["versus_reference"][pair["other"]][pair["set"]]
        assert (pair["verdict"], pair["low"], pair["high"]) == (cell["verdict"], *cell["simultaneous"].values())
    assert results.verdicts["other"].tolist() == ["vanilla", "vanilla"]

    shown, printed = html.unescape(re.sub("<[^>]*>", "", results._repr_html_())).split(), done.stdout.split()
    start = printed.index("On")  # both begin with the decision
    assert shown[:60] == printed[start : start + 60]
    assert "<span style=" in results._repr_html_()
    assert 'class="dataframe"' in results[results["primary"]]._repr_html_()  # a selection is an ordinary data frame

    before = times(root)
    project.run("vanilla", "reviews")
    assert times(root) == before  # nothing was trained again
    pd.testing.assert_frame_equal(pd.DataFrame(project.results()), pd.DataFrame(results))

    params = yaml.safe_load((root / "params.yaml").read_text())
    params["grid"] |= {"seeds": [0]}
    params["methods"] = ["vanilla"]
    (root / "params.yaml").write_text(yaml.dump(params))
    project.run("vanilla", "reviews")
    (single, _) = scores(project.results(), "vanilla")
    assert single["seeds"] == 1
    assert math.isnan(single["low"])
    assert "seed 1" not in single
    assert times(root) == before


def test_settings_are_edited_in_place_and_the_plan_counts_runs(tmp_path: Path) -> None:
    root = build(tmp_path / "project", methods=["majority", "vanilla"])
    file = root / "params.yaml"
    file.write_text("# mine\n" + file.read_text())
    project = Project.open(root)
    project.set("training.epochs", 2)
    assert file.read_text().startswith("# mine\n")
    assert yaml.safe_load(file.read_text())["training"]["epochs"] == 2
    before = file.read_text()
    with raises_code(ConfigError, "unknown-key", "epochz"):
        project.set("training.epochz", 2)
    assert file.read_text() == before
    project.run("majority")
    plan = project.plan().set_index("method")
    assert plan["to_train"].to_dict() == {"majority": 0, "vanilla": 2}
    assert plan["cost"]["vanilla"] > plan["cost"]["majority"] == 0


def test_the_documented_calls_run(tmp_path: Path) -> None:
    """docs/running.md, with a task and a method that this project has."""
    root = build(tmp_path / "project", methods=["vanilla", "weight_mixup"])
    *_, code = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs" / "running.md").read_text(), flags=re.DOTALL)
    done = python(root, "-c", code.replace("film_polarity", "reviews"))
    assert done.returncode == 0, done.stderr
    assert "weight_mixup" in done.stdout
    assert (root / "leaderboard.html").read_text().startswith("<pre")
