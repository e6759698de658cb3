"""13: a control differs from its arm in one thing and stands beside it. 14: settings are chosen by a split of the
training rows, by inner folds, or on dev as a paper did, which is marked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from regft_core.api import Project
from tests.promises.kit import change, done, run_cells
from tests.small_project import build

#: Enough steps to tell methods apart.
LEARNS = {"epochs": 2, "learning_rate": 2.0e-3}


def test_a_control_is_written_trained_and_compared_with_its_arm(tmp_path: Path) -> None:
    root = build(tmp_path / "project", methods=["vanilla", "hype_n"], training=LEARNS)
    done(root, "controls", "--write")
    methods = yaml.safe_load((root / "params.yaml").read_text())["methods"]
    assert methods == ["vanilla", "hype_n_no_noise", "hype_n"]
    run_cells(root, *((method, "reviews") for method in methods))
    results = Project.open(root).results()
    means = results[results["set"] == "dev"].set_index("method")["mean"]
    assert len(set(means)) > 1
    verdicts = results.verdicts
    (pair,) = verdicts[(verdicts["role"] == "control") & (verdicts["set"] == "dev")].to_dict("records")
    assert (pair["method"], pair["other"]) == ("hype_n", "hype_n_no_noise")
    assert pair["difference"] == pytest.approx(means["hype_n"] - means["hype_n_no_noise"])
    # The control is the method without noise: plain fine-tuning without dropout, in every bit.
    change(root, methods=[*methods, "vanilla_no_dropout"])
    run_cells(root, ("vanilla_no_dropout", "reviews"))

    def predictions(method: str) -> bytes:
        return (root / f"work/evaluate/{method}/reviews/16/predictions/seed-0/dev.jsonl").read_bytes()

    assert predictions("hype_n_no_noise") == predictions("vanilla_no_dropout") != predictions("hype_n")


RATES = [1.0e-6, 3.0e-3]


@pytest.mark.parametrize(
    ("rule", "marked"),
    [({"split": 0.75}, False), ({"folds": 2}, False), ({"selection": "dev_as_published"}, True)],
    ids=["split", "folds", "dev"],
)
def test_settings_are_chosen_without_the_rows_that_judge_or_marked(
    tmp_path: Path, rule: dict[str, Any], marked: bool
) -> None:
    tuning = {**rule, "values": {"training.learning_rate": RATES}}
    root = build(tmp_path / "project", methods=["vanilla"], tuning=tuning)
    run_cells(root, ("vanilla", "reviews"))
    runs = json.loads((root / "work/finetune/vanilla/reviews/16/manifest.json").read_text())["runs"]
    for run in runs:
        scores = trial_scores(run)
        assert len(scores) == 2
        if marked:  # one choice for all seeds, by their mean
            scores = [sum(both) / 2 for both in zip(*(trial_scores(run) for run in runs), strict=True)]
        assert run["tuned"]["values"] == {"training.learning_rate": RATES[scores.index(max(scores))]}
        assert bool(run["degraded"]) == marked
    if marked:
        done(root, "report")
        page = (root / "reports" / "report.html").read_text()
        assert all(mark in page for mark in runs[0]["degraded"])


def trial_scores(run: dict[str, Any]) -> list[float]:
    """Scores of a run's trials, in their order."""
    return [trial["score"] for trial in run["tuned"]["trials"]]
