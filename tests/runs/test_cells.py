"""What stages write of a cell, its cost, its workers; failures are shown, nothing is lost."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from regft_core.errors import OutOfMemory
from regft_core.runs import training_run
from regft_core.runs.context import Context
from regft_core.training.stack import Stack
from tests.errors import raises_code
from tests.runs.conftest import TASK, change, job, run_stages, runs, train, write_method


def test_arms_of_a_seed_share_rows_head_and_order(project: Path) -> None:

    from regft_core.runs.phase import phase_inputs

    def start(method: str) -> Any:
        context = Context(job(project, method, 1))
        inputs = phase_inputs(context, context.phase("finetune"), None)
        return inputs, training_run.build(inputs)[0].model

    (one, model_a), (other, model_b) = start("vanilla"), start("hype_n")
    assert (one.encoded, one.train_rows, one.streams) == (other.encoded, other.train_rows, other.streams)
    assert torch.equal(model_a.classifier.weight, model_b.classifier.weight)


def test_outputs_of_a_method_on_a_task(project: Path) -> None:
    records = run_stages(project, "weight_mixup")
    curves = list(csv.DictReader((project / f"work/search/weight_mixup/{TASK}/24/curves.csv").open()))
    assert {row["phase"] for row in curves} == {"search-0", "search-1"}
    assert {row["seed"] for row in curves} == {"0", "1"}
    manifest = json.loads((project / f"work/finetune/weight_mixup/{TASK}/24/manifest.json").read_text())
    assert manifest["cell"] == {"method": "weight_mixup", "task": TASK, "size": 24}
    assert [run["status"] for run in manifest["runs"]] == ["ok", "ok"]
    assert manifest["runs"][0]["variant"] == "paper"
    # 2 searches of 3 steps at 5 passes, then 6 steps, against 6 steps of vanilla.
    assert manifest["runs"][0]["cost"]["declared_ratio"] == pytest.approx((2 * 3 * 5 + 6) / 6)
    assert manifest["runs"][0]["search_cost"]["steps"] == 6
    assert manifest["runs"][0]["phases"] in [record["phases"] for record in records["search"]]
    folder = project / f"work/evaluate/weight_mixup/{TASK}/24"
    result = json.loads((folder / "result.json").read_text())
    assert set(result["runs"][0]["sets"]) == {"dev", "no_cue", "reversed"}
    predictions = (folder / "predictions" / "seed-0" / "dev.jsonl").read_text().splitlines()
    gold = [json.loads(line) for line in predictions]
    accuracy = sum(row["label"] == row["prediction"] for row in gold) / len(gold)
    assert accuracy == pytest.approx(result["runs"][0]["sets"]["dev"]["metrics"]["accuracy"])


def test_passes_without_steps_are_in_the_declared_ratio(project: Path) -> None:
    """24 rows in batches of 8, two epochs: 6 steps. An epoch's worth of passes is 3, a forward pass of them 1."""
    half = {"head": {"data": {"split": 0.5}, "regularisers": {"linear_head": {}}, "training": {"epochs": 0}}}
    write_method(project, "half", phases={**half, "finetune": {}})
    change(project, methods=["vanilla", "linear_probe", "child_tuning_d", "half"])
    expected = {"vanilla": 1.0, "linear_probe": 1 / 6, "child_tuning_d": 1 + 3 / 6, "half": 1 + 2 / 3 / 6}
    found = {method: train(project, method)["cost"]["declared_ratio"] for method in expected}
    assert found == pytest.approx(expected)


@pytest.fixture
def encoded_rows(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """Rows of every pass over the encoder in training, and whether it was backward; counted at the encoder itself."""
    found: list[tuple[int, bool]] = []
    plain = Stack.prepare

    def prepare(self: Stack, trainee: Any, handed: Any) -> None:
        plain(self, trainee, handed)

        def forward(_module: Any, _args: Any, output: Any) -> None:
            hidden = output[0]
            found.append((hidden.shape[0], False))
            if hidden.requires_grad:
                hidden.register_hook(lambda _: found.append((hidden.shape[0], True)))

        trainee.model.base_model.register_forward_hook(forward)

    monkeypatch.setattr(Stack, "prepare", prepare)
    return found


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("setfit", 20 / 2 * 3 + 1 / 3 / 2),  # batches of 8, twice those of the others; then a head is fitted
        ("r_drop", 2.0),
    ],
)
def test_the_declared_ratio_is_that_of_the_rows_that_were_encoded(
    make_project: Any, encoded_rows: list[tuple[int, bool]], method: str, expected: float
) -> None:
    """Steps were counted whatever their batch: a contrastive phase with smaller ones seemed to cost double."""
    root = make_project(methods=["vanilla", method], training={"batch_size": 4})
    costs = {}
    for name in ("vanilla", method):
        encoded_rows.clear()
        declared = train(root, name)["cost"]["declared_ratio"]
        costs[name] = sum(rows * (2 if backward else 1) for rows, backward in encoded_rows), declared
    (plain, one), (own, ratio) = costs["vanilla"], costs[method]
    assert one == pytest.approx(1.0)
    assert ratio == pytest.approx(own / plain)
    assert ratio == pytest.approx(expected)


def test_running_out_of_memory_is_not_stored_as_a_result(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says something about the machine, not about the run: on another machine the run may fit."""

    from regft_core.training.stack import Stack

    def exhausted(*_: object) -> None:
        raise torch.OutOfMemoryError("no memory")

    with monkeypatch.context() as patched:
        patched.setattr(Stack, "backward", exhausted)
        with raises_code(OutOfMemory, "out-of-memory"):
            train(project, "vanilla")
    assert runs(project) == {}
    assert train(project, "vanilla")["status"] == "ok"
