"""What stages write of a cell: cost, marks, where it was computed; failures are shown, nothing is lost."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from regft_core.errors import OutOfMemory
from regft_core.models.source import ModelSource, resolve_model
from regft_core.runs import training_run
from regft_core.runs.context import Context
from regft_core.runs.environment import environment, set_up
from regft_core.runs.phase import phase_inputs, phase_record
from regft_core.runs.training_run import make_deterministic
from regft_core.schema.params import ExecutionConfig
from regft_core.schema.training import EncoderConfig
from regft_core.training.stack import Stack
from tests.errors import raises_code
from tests.methods.chain import Runner, phase
from tests.methods.harness import source_of
from tests.runs.conftest import TASK, change, job, refresh, run_stages, runs, train, write_method


def test_arms_of_a_seed_share_rows_head_and_order(project: Path) -> None:
    def start(method: str) -> Any:
        context = Context(job(project, method, 1))
        inputs = phase_inputs(context.phase("finetune"), None)
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

    def exhausted(*_: object) -> None:
        raise torch.OutOfMemoryError("no memory")

    with monkeypatch.context() as patched:
        patched.setattr(Stack, "backward", exhausted)
        with raises_code(OutOfMemory, "out-of-memory"):
            train(project, "vanilla")
    assert runs(project) == {}
    assert train(project, "vanilla")["status"] == "ok"


# ----------------------------------------------------------------------------------------------- marks


@pytest.fixture
def still(tmp_path: Path) -> ModelSource:
    """A checkpoint whose own configuration has no dropout (ModernBERT's is like that)."""
    folder = tmp_path / "still"
    shutil.copytree(source_of("bert").path, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    return resolve_model(EncoderConfig(name=str(folder)), Path("/"))


def marks(source: ModelSource, name: str, options: dict[str, Any], **training: Any) -> list[str]:
    ran = Runner(source).run([phase([(name, options)], **training)], steps=1)["finetune"]
    found: list[str] = phase_record("finetune", ran.members[0])["marks"]
    return found


@pytest.mark.parametrize(
    ("name", "options", "alike"),
    [
        *(("r_drop", {}, True), ("r3f", {"scale": 0.0}, True), ("cutoff", {"ratio": 0.0}, True)),
        *((name, {}, False) for name in ("r3f", "cutoff", "hype", "lnsr")),  # with a difference of their own
    ],
)
def test_passes_that_nothing_tells_apart_are_marked(
    name: str, options: dict[str, Any], alike: bool, still: ModelSource
) -> None:
    """The protocol keeps the checkpoint's dropout, so only the loaded model shows that there is none."""
    found = marks(still, name, options)
    assert [mark.startswith(f"{name}: this encoder runs without dropout") for mark in found] == [True] * alike
    assert not alike or marks(source_of("bert"), name, options) == []


def test_the_batches_of_a_step_are_counted() -> None:
    """A step over two batches takes twice as long, and passes are counted for each batch."""
    for accumulation in (1, 2):
        one = phase([], batch_size=2, accumulation=accumulation, max_steps=2)
        ran = Runner(source_of("bert")).run_phase(one, {})
        cost = phase_record("finetune", ran.members[0])["cost"]
        assert cost["batches_per_step"] == accumulation
        assert cost["forward_passes_per_step"] == 1


# ----------------------------------------------------------------------------------------- environment


def test_what_changes_digits_is_named_where_it_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch says, after it was asked for what the configuration wants."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    plain = {"device": "cuda", "name": "a GPU", "threads": torch.get_num_threads(), "deterministic": True}
    try:
        assert set_up("cuda:0", ExecutionConfig(threads=7)) == plain
        assert set_up("cuda:0", ExecutionConfig(tf32=True)) == plain | {"tf32": True}
        assert environment("cuda:0") == plain | {"tf32": True}  # it is on, whoever asked for it
        assert set_up("cuda:0", ExecutionConfig(cuda_graphs=True)) == plain | {"cuda_graphs": True}
        assert set_up("cuda:0", ExecutionConfig(deterministic=False)) == plain | {"deterministic": False}
    finally:
        make_deterministic("cuda:0", False)
    monkeypatch.setattr("regft_core.runs.environment.fast_products", lambda: False)
    assert set(environment("cpu")) == {"device", "name", "threads", "deterministic"}
    monkeypatch.setattr("regft_core.runs.environment.fast_products", lambda: True)
    assert environment("cpu")["products"] == "oneDNN"


# -------------------------------------------------------------------------------------------- settings


def test_the_run_has_the_steps_of_its_task(project: Path) -> None:
    settings = {TASK: {"training": {"max_steps": 3, "warmup_steps": 2}}}
    change(project, grid={"tasks": [TASK, "cue_regression"]}, task_settings=settings)
    refresh(project)
    record = train(project, "vanilla")
    assert record["steps"] == 3
    rates = [row[4] for row in record["curve"]]
    assert rates == pytest.approx([0.0, 5e-4, 1e-3])  # two steps of warm-up
    assert record["cost"]["declared_ratio"] == 1.0  # of the task's own plain run
