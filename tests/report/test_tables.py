"""The numbers agree with the files, and so do the files beside the page, and the terminal at every width."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regft_core.errors import DataError
from regft_core.report.facts import row_counts
from regft_core.report.leaderboard import leaderboard
from regft_core.report.results import Results, thinned
from regft_core.report.scores import ordered
from regft_core.runs.work import COLUMNS, CURVES
from regft_core.schema.tasks import RESERVED_SETS
from regft_core.settings.controls import Control
from tests.errors import raises_code
from tests.report import grids
from tests.report.synthetic import Arm, Task, edited


def test_changed_predictions_are_noticed(built: Any, tmp_path: Path) -> None:
    shutil.copytree(built.root / "work", tmp_path / "work")
    with edited(tmp_path / "work/evaluate/vanilla/sst2/300/predictions/seed-0/dev.jsonl") as rows:
        rows[7]["prediction"] = 1 - rows[7]["prediction"]
    with raises_code(DataError, "scores-differ", "vanilla", "sst2-300"):
        built.again(root=tmp_path)
    assert not (tmp_path / "reports").exists()


def test_predictions_agree_with_the_recorded_scores_of_large_values(built: Any, tmp_path: Path) -> None:
    shutil.copytree(built.root / "work", tmp_path / "work")
    for folder in (tmp_path / "work/evaluate").glob("*/sick/*"):
        with edited(folder / "result.json") as result:
            for run in result["runs"]:
                for of in run["sets"].values():
                    of["metrics"]["mse"] *= 1e14 * (1 + 1e-12)
        for file in folder.glob("predictions/*/dev.jsonl"):
            with edited(file) as rows:
                for row in rows:
                    row |= {name: 1e7 * row[name] for name in ("label", "prediction")}
    assert built.again(root=tmp_path, out=None).results["sick-300"]["vanilla"]["dev"]["mse"]["mean"] > 1e12


def test_counted_values_are_all_shown(built: Any) -> None:
    block, years = built.report.blocks[1], np.repeat(np.arange(2000.0, 2011.0), 3)
    rows = replace(block.set_rows["dev"], gold=years)
    (_, counts), *_ = row_counts(replace(block, set_rows={"dev": rows}))
    assert [*counts.values()] == [6, 6, 6, 6, 9]


def test_memory_and_kinds_of_device(make: Any) -> None:
    """The largest peak; seconds of a GPU and a CPU are not compared."""
    gpu, cpu = {"device": "cuda:0", "name": "a card"}, {"device": "cpu", "name": "a machine"}
    arms = {
        "vanilla": Arm(memory=8 * 2**30, environment=gpu),
        "r3f": Arm(memory=12 * 2**30, environment=gpu),
        "cpu": Arm(environment=cpu),
    }
    report = make(arms, {"sst2": Task(n=40)}, (0, 1), mixed_environments="mark").report
    costs = {row.method: row.cost for row in report.blocks[0].rows}
    assert (costs["r3f"].peak_memory_bytes, costs["r3f"].measured) == (12 * 2**30, 1.0)
    assert (costs["cpu"].peak_memory_bytes, costs["cpu"].measured) == (None, None)


@given(st.data())
def test_every_method_is_listed_once_whatever_controls_what(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from("abcdefg"), unique=True, min_size=1))
    found = ordered({name: data.draw(st.sampled_from([*names, None])) for name in names}, "a")
    assert sorted(found) == sorted(names)
    if "a" in names:
        assert found[0] == "a"


def test_neither_a_difference_nor_the_scale_passes_the_metrics_range(make: Any) -> None:
    """Three seeds, one of which collapsed, stretch the interval of a difference far beyond 100 points."""
    arms = {"vanilla": Arm(0.02, 0.0), "good": Arm(0.99, 0.0, collapsed=(0,))}
    report = make(arms, {"one": Task(n=200)}, seeds=[0, 1, 2], averages={"all": ["one"]}).report
    (found,), (average,) = report.blocks, report.averages
    (c,) = (c for c in found.row("good").comparisons if c.set == "dev")
    assert c.estimate.high == leaderboard(found).high == 1.0
    assert -1.0 <= c.estimate.low < c.estimate.mean
    assert [line.difference.high for line in average.lines if line.difference] == [1.0]
    assert [line.value.high for line in average.lines if line.method == "good"] == [1.0]


def test_a_gain_is_over_strength_zero_alone(make: Any) -> None:
    """A replacement that does harm makes no method look good."""
    arms = {
        "vanilla": Arm(0.75, zero_for=("good",)),
        "good": Arm(0.75),
        "good_random": Arm(0.5, control_for="good", zero_for=()),
    }
    built = make(arms, {"one": Task(n=300)})
    (found,) = built.report.blocks
    (gain,), (replacement,) = (found.row("good").against(role) for role in ("control", "replacement"))
    assert (gain.other, gain.role, replacement.other) == ("vanilla", "reference", "good_random")
    assert (gain.verdict.word, replacement.verdict.word) == ("no difference shown", "better")
    numbers = built.report.results["one-300"]["good"]
    assert (numbers["verdict_control"], numbers["verdict_replacement"]) == (gain.verdict.word, "better")
    assert (numbers["versus_control"].keys(), numbers["versus_replacement"].keys()) == ({"vanilla"}, {"good_random"})
    frame = Results.of(built.report)
    shown = frame[(frame["method"] == "good") & (frame["set"] == "dev") & frame["primary"]].to_dict("records")
    assert [(row["vs_control"], row["vs_replacement"]) for row in shown] == [(gain.verdict.word, "better")]
    heads = [column.head for column in leaderboard(found, "vanilla").columns]
    assert "vs replaced" in heads
    assert "gain" not in heads, "the reference has a column of its own"


def test_a_control_that_only_its_method_names_is_compared_and_stands_as_a_method(make: Any) -> None:
    """``controlled_by``: the other arm's file does not say that it is a control."""
    built = make({"vanilla": Arm(0.7), "good": Arm(0.8), "other": Arm(0.75)}, {"one": Task(n=60)}, seeds=[0, 1])
    (block,) = built.again(None, controls=[Control("other", "good", "another teacher", False, "other", True)]).blocks
    (c,) = block.row("good").against("replacement")
    assert (c.other, c.differs_by, block.row("other").control_for) == ("other", "another teacher", ())


# -------------------------------------------------------------------------------------------- files


def rows(built: Any, name: str) -> list[dict[str, str]]:
    with open(built.root / "reports" / "tables" / f"{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_tables_have_a_row_per_run(built: Any) -> None:
    scores = pd.DataFrame(rows(built, "scores")).set_index(["task", "method", "set", "metric"])["value"]
    own = scores.loc["sst2", "weight_mixup", "dev", "accuracy"].astype(float)
    results = json.loads((built.root / "reports" / "results.json").read_text())
    shown = results["sst2-300"]["weight_mixup"]["dev"]["accuracy"]
    assert (len(own), np.mean(own)) == (shown["n"], pytest.approx(shown["mean"]))
    runs = rows(built, "runs")
    assert len(runs) == 2 * 6 * 6
    (failed,) = [row for row in runs if row["status"] == "failed" and row["task"] == "sst2"]
    assert (failed["method"], failed["seed"]) == ("weight_mixup", "3")
    assert [row["collapsed"] for row in runs if row["method"] == "weight_mixup_soup"].count("constant") == 2
    declared = {float(row["value"]) for row in rows(built, "costs") if row["quantity"] == "declared_ratio"}
    assert declared == {1.0, 2.0, 3.8, 4.0}
    # Whatever stands beside the sets of a task is refused as the name of a set.
    sets = {name for one in built.report.blocks for name in one.sets}
    assert all(set(row) - sets <= RESERVED_SETS for one in built.report.blocks for row in results[one.name].values())


def test_what_dvc_shows_is_a_line_for_each_block_of_the_primary_metric(built: Any) -> None:
    """``dvc exp show`` prints a column per number, by name: method and score come first."""
    shown = json.loads((built.root / "reports" / "metrics" / "sst2-300.json").read_text())
    everything = built.report.results["sst2-300"]
    (taken,) = [name for name, own in everything.items() if own.get("decision", {}).get("taken")]
    dev, contrast = (everything[taken][name]["accuracy"] for name in ("dev", "contrast"))
    numbers = {"score": dev["mean"], "score_low": dev["low"], "score_high": dev["high"]}
    numbers["set_contrast"] = contrast["mean"]
    points = {name: round(100 * value, 2) for name, value in numbers.items()}
    assert shown == {"method": taken, **points, "unfinished": 1}
    assert sorted(shown)[:2] == ["method", "score"]


@settings(max_examples=30)
@given(st.integers(1, 400), st.integers(1, 60))
def test_thinning_keeps_the_range_and_the_mean(n: int, most: int) -> None:
    steps = [(1, "finetune", i, i / n, float(i), np.nan, 1.0) for i in range(1, n + 1)]
    found = thinned(pd.DataFrame(steps, columns=[*COLUMNS[CURVES]]), most)
    assert len(found) == min(n, most)
    assert found["step"].is_monotonic_increasing
    assert found["step"].iloc[-1] == n
    if n % most == 0 or n <= most:
        assert found["loss"].mean() == pytest.approx((n + 1) / 2)
    assert found["learning_rate"].isna().all()


# ------------------------------------------------------------------------------------------------------- the terminal


def test_the_terminal_is_that_of_the_golden_text() -> None:
    found, golden = grids.terminal(grids.report("3-tasks"), 80), grids.GOLDEN.read_text(encoding="utf-8")
    assert found == golden, f"what people see changed. Read it as a user would, then write it anew: {grids.COMMAND}"


@pytest.mark.parametrize("width", [60, 140])
def test_no_line_is_cropped_or_too_long(width: int) -> None:
    text, golden = grids.terminal(grids.report("3-tasks"), width), grids.GOLDEN.read_text(encoding="utf-8")
    assert not [line for line in text.splitlines() if len(line) > width and not line.startswith("$ ")]
    assert set(text.split()) == set(golden.split())
    commands = {line for line in golden.splitlines() if line.startswith("$ ")}
    assert commands <= set(text.splitlines())


def test_a_mean_rank_is_within_its_interval_where_seeds_failed(make: Any) -> None:
    arms = {"vanilla": Arm(0.97, collapsed=(3, 4, 5)), "other": Arm(0.8, failed=dict.fromkeys((3, 4, 5), "NaN"))}
    ranks = [one.mean_rank for one in make(arms, {"one": Task(n=600), "two": Task(n=600)}).report.across]
    assert [(rank.value, rank.low, rank.high) for rank in ranks if rank] == [(1, 1, 1), (2, 2, 2)]


def test_an_arm_without_a_finished_run_gets_no_verdict_across_tasks(make: Any) -> None:
    arms = {"vanilla": Arm(), "broken": Arm(failed={0: "NaN", 1: "NaN"}), "mate": Arm(control_for="broken")}
    built = make(arms, {"one": Task(n=60), "two": Task(n=60)}, seeds=[0, 1])
    (across,) = [one for one in built.report.across if one.method == "broken"]
    assert not any(across.words[role] for role in ("reference", "control"))
