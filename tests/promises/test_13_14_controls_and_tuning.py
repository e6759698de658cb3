"""13: a control differs from its arm in one thing and stands beside it. 14: settings are chosen by a split of the
training rows, by inner folds, or on dev as a paper did, which is marked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from regft_core.api import Project
from tests.promises.kit import change, done, run_cells
from tests.small_project import build, predictions

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
    found = {method: predictions(root, method, "reviews") for method in (*methods, "vanilla_no_dropout")}
    assert found["hype_n_no_noise"] == found["vanilla_no_dropout"] != found["hype_n"]


RATES = [1.0e-6, 3.0e-3]


def test_settings_are_chosen_without_the_rows_that_judge_or_marked(tmp_path: Path) -> None:
    root = build(tmp_path / "project", methods=["vanilla"])
    for rule in ({"split": 0.75}, {"folds": 2}, {"selection": "dev_as_published"}):
        change(root, tuning=None)
        change(root, tuning={**rule, "values": {"training.learning_rate": RATES}})
        run_cells(root, ("vanilla", "reviews"))
        runs = json.loads((root / "work/finetune/vanilla/reviews/16/manifest.json").read_text())["runs"]
        scores = [[trial["score"] for trial in run["tuned"]["trials"]] for run in runs]
        if marked := "selection" in rule:  # one choice for all seeds, by their mean
            scores = [[sum(both) / 2 for both in zip(*scores, strict=True)]] * 2
        for run, own in zip(runs, scores, strict=True):
            assert len(own) == 2
            assert run["tuned"]["values"] == {"training.learning_rate": RATES[own.index(max(own))]}
            assert bool(run["degraded"]) == marked
    done(root, "report")
    page = (root / "reports" / "report.html").read_text()
    assert all(mark in page for mark in runs[0]["degraded"])
