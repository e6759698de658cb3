"""Three calls from Python: the same files, runs and numbers as the DVC stages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from regft_core.api import Project, load
from regft_core.errors import ConfigError
from tests.errors import raises_code
from tests.small_project import build, stage


def times(root: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in (root / ".regft" / "runs").glob("*/*/result.json")}


def test_run_and_results_are_those_of_the_pipeline(tmp_path: Path) -> None:
    root = build(tmp_path / "project", methods=["vanilla", "hype_n"])
    project = load(root)
    assert isinstance(project, Project)
    assert project.results() == []
    own = project.run("vanilla", "reviews")
    assert {(score.set, score.metric) for score in own} == {("dev", "accuracy"), ("shop", "accuracy")}
    assert project.results() == own  # the other method was not run
    project.run("hype_n", "reviews")

    done = stage(root, "report")
    assert done.returncode == 0, done.stderr
    reported = json.loads((root / "reports" / "results.json").read_text())["reviews-16"]
    for score in project.results():
        cell = reported[score.method][score.set][score.metric]
        assert (score.mean, score.low, score.high) == (cell["mean"], cell["low"], cell["high"])
        compared = reported[score.method].get("versus_reference", {})
        assert score.verdicts == {other: sets[score.set]["verdict"] for other, sets in compared.items()}
        assert bool(score.verdicts) is (score.method == "hype_n")
        assert score.below_chance is (score.set in reported[score.method]["below_chance"])
        assert score.primary
        assert list(score.per_seed) == [0, 1]
        assert sum(score.per_seed.values()) / 2 == pytest.approx(score.mean)

    before = times(root)
    assert project.run("vanilla", "reviews") == [one for one in project.results() if one.method == "vanilla"]
    assert times(root) == before  # nothing was trained again

    params = yaml.safe_load((root / "params.yaml").read_text())
    params["grid"]["seeds"] = [0]
    (root / "params.yaml").write_text(yaml.dump(params))
    (single, _) = project.run("vanilla", "reviews")
    assert (list(single.per_seed), single.low, single.high) == ([0], None, None)
    assert times(root) == before


def test_mistakes_are_the_configurations(tmp_path: Path) -> None:
    root = build(tmp_path / "project")
    with raises_code(ConfigError, "not-listed", "'vanilla'"):
        load(root).run("vanila", "reviews")
    (root / "params.yaml").write_text("grid: {}\n")
    with raises_code(ConfigError, "key-missing", "params.yaml"):
        load(root)
