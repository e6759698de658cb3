"""What stages write of a cell in ``work/``: cost, marks, where it was computed; all of it can be read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regft_core.data.examples import read_jsonl
from regft_core.errors import DataError, OutOfMemory
from regft_core.models.source import ModelSource, resolve_model
from regft_core.runs import outputs, training_run
from regft_core.runs.context import Context
from regft_core.runs.environment import environment, set_up
from regft_core.runs.evaluate import evaluate
from regft_core.runs.phase import phase_inputs, phase_record
from regft_core.runs.training_run import make_deterministic
from regft_core.runs.work import CURVES, LOGGED, Work
from regft_core.schema.params import ExecutionConfig
from regft_core.schema.training import EncoderConfig
from regft_core.settings.project import Cell
from regft_core.training.stack import Stack
from tests.errors import raises_code
from tests.methods.chain import Runner, phase
from tests.methods.harness import source_of
from tests.runs.conftest import TASK, change, job, refresh, runs, stored, train, write_method

CELL = Cell("hype_n", "rte", 300)
COST: dict[str, float | None] = {"train_seconds": 3.5, "fit_seconds": 0, "real_tokens": 90, "peak_memory_bytes": None}
TRAINED: dict[str, Any] = {
    "size": "300", "seed": 1, "status": "ok", "error": None, "key": "k", "phases": {"search": "s"}, "variant": None,
    "precision": "fp32", "degraded": [], "environment": {"device": "cpu"}, "steps": 2, "seconds": 3.5, "marks": [],
    "cost": COST, "final_loss": 0.5, "skipped": None, "search_cost": COST | {"steps": 4},
    "epoch_scores": {"metric": "accuracy", "scores": [["finetune", "dev", 2, 1.0, None]]},
}  # fmt: skip
BULKY = {
    "curve": [["finetune", 1, 0.5, 0.7, 1e-4, 1.0], ["finetune", 2, 1.0, None, 0.0, 1.0]],
    "diagnostics": [["finetune", 2, "hype.noise", 0.25]],
}
FAILED = {"size": "300", "seed": 2, "key": "f", "status": "failed", "error": "loss became NaN", "phases": {}}
SETTINGS: dict[str, Any] = {
    "phases": ["search", "finetune"],
    "trains_encoder": True, "reads_encoder": True, "versions": {"torch": None},
    "settings": {"model": {"name": "minilm"}, "phases": {"finetune": {"training": {"epochs": 3}}}},
}  # fmt: skip
FOUND = {
    "status": "ok", "error": None, "environment": None, "scalars": {"dev": {"gap": 0.1}}, "ranges": {"gap": [0, None]},
    "tables": {"dev": {"bins": {"columns": ["bin", "n"], "rows": [["a", 2]], "keys": 1}}},
    "description": "a gap", "options": {"bins": 5}, "remarks": [], "over_sizes": [],
}  # fmt: skip
EVALUATED: dict[str, Any] = {
    "size": "300", "seed": 1, "key": "k", "status": "ok", "error": None, "cost": COST, "collapsed": None,
    "sets": {"dev": {"n": 2, "metrics": {"accuracy": 0.5}, "majority": {"accuracy": 0.5}, "warning": None}},
    "predictions": {
        "dev": '{"idx": "a", "label": 1, "prediction": 0, "scores": [0.75, 0.25]}\n'
        '{"idx": "b", "label": 1, "prediction": 1, "scores": [0.25, 0.75]}\n'
    },
    "evaluations": {"gaps": FOUND},
}  # fmt: skip


KEYS = {"runs": {"1": "k", "2": "f"}, "with": "h"}


@pytest.fixture
def work(tmp_path: Path) -> Work:
    work = Work(tmp_path)
    outputs.write_folder(work.folder("finetune", CELL), SETTINGS, [TRAINED | BULKY, FAILED], KEYS)
    outputs.write_folder(work.folder("evaluate", CELL), {"primary": "accuracy"}, [EVALUATED], KEYS)
    return work


def rewrite(path: Path, how: Callable[[Any], object]) -> None:
    content = json.loads(path.read_text())
    how(content)
    path.write_text(json.dumps(content))


def test_what_is_written_is_read(work: Work) -> None:
    manifest = work.finetune(CELL)
    assert [run.plain() for run in manifest.runs] == [TRAINED, FAILED]
    assert manifest.runs[0].keys == {"search": "s", "finetune": "k"}
    assert manifest.model["name"] == "minilm"
    points = work.steps(CURVES, CELL, [2, 1])[["step", "loss", "learning_rate"]]
    np.testing.assert_array_equal(points, [(1, 0.7, 1e-4), (2, np.nan, 0.0)])
    assert work.steps(LOGGED, CELL, [1]).to_numpy().tolist() == [[1, "finetune", 2, "hype.noise", 0.25]]
    (run,) = work.evaluation(CELL).runs
    assert (run.ok, run.sets["dev"].metrics) == (True, {"accuracy": 0.5})
    found = work.predictions(CELL, 1, "dev", "classification")
    assert (found.ids, found.gold.tolist(), found.predicted.tolist()) == (["a", "b"], [1, 1], [0, 1])
    assert found.scored == [[0.75, 0.25], [0.25, 0.75]]
    finding = work.findings(CELL)["gaps"]
    assert (finding.description, finding.runs[0].key, finding.runs[0].tables["dev"]["bins"].keys) == ("a gap", "k", 1)


@pytest.mark.parametrize(
    ("how", "key"),
    [
        (lambda v: v["runs"][0]["cost"].update(train_seconds="long"), r"runs\[0\]\.cost\.train_seconds: "),
        (lambda v: v["runs"][0]["epoch_scores"]["scores"][0].pop(), r"runs\[0\]\.epoch_scores\.scores\[0\]"),
        (lambda v: v["runs"][0].update(status="fine"), r"runs\[0\]\.status: .*'ok' or 'failed'"),
        (lambda v: v.pop("runs"), "runs: Field required"),
    ],
)
def test_a_wrong_value_is_named_with_its_key(work: Work, how: Callable[[Any], object], key: str) -> None:
    path = work.result_file("finetune", CELL)
    rewrite(path, how)
    with pytest.raises(DataError, match=rf"finetune/hype_n/rte/300/manifest\.json: {key}.*\n.*stage finetune"):
        work.finetune(CELL)


@pytest.mark.parametrize(
    "row", ["1,finetune,x,0.5,0.7,1e-4,1.0", "1,finetune,1,0.5,0.7", "1,finetune,1,0.5,a,1e-4,1.0"]
)
def test_a_row_that_is_no_step_is_refused(work: Work, row: str) -> None:
    path = work.folder("finetune", CELL) / "curves.csv"
    path.write_text(f"seed,phase,step,epoch,loss,learning_rate,gradient_norm\n{row}\n")
    with pytest.raises(DataError, match=r"curves\.csv: not a log of steps.*\n.*stage finetune"):
        work.steps(CURVES, CELL, [1])
    assert work.steps(CURVES, CELL, [0]).empty  # of another seed
    path.unlink()
    assert work.steps(CURVES, CELL, [1]).empty


def test_arms_of_a_seed_share_rows_head_and_order(project: Path) -> None:
    def start(method: str) -> Any:
        context = Context(job(project, method, 1))
        inputs = phase_inputs(context.phase("finetune"), None)
        return inputs, training_run.build(inputs)[0].model

    (one, model_a), (other, model_b) = start("vanilla"), start("hype_n")
    assert (one.encoded, one.train_rows, one.streams) == (other.encoded, other.train_rows, other.streams)
    assert torch.equal(model_a.classifier.weight, model_b.classifier.weight)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        # Two epochs of 24 rows are 6 steps. An epoch's worth of passes is 3, a forward pass of them 1; two searches are
        # 3 steps at 5 passes each.
        (
            8,
            {"vanilla": 1.0, "linear_probe": 1 / 6, "child_tuning_d": 1 + 3 / 6, "half": 1 + 2 / 3 / 6}
            | {"weight_mixup": 1 + 2 * 3 * 5 / 6},
        ),
        # Contrastive batches of 8 are twice those of the others; then a head is fitted.
        (4, {"setfit": 20 / 2 * 3 + 1 / 3 / 2, "r_drop": 2.0}),
    ],
)
def test_the_declared_ratio_counts_rows_and_passes_without_steps(
    project: Path, batch: int, expected: dict[str, float]
) -> None:
    half = {"head": {"data": {"split": 0.5}, "regularisers": {"linear_head": {}}, "training": {"epochs": 0}}}
    write_method(project, "half", phases={**half, "finetune": {}})
    change(
        project, methods=["vanilla", *(name for name in expected if name != "vanilla")], training={"batch_size": batch}
    )
    refresh(project)
    records = {method: train(project, method) for method in expected}
    assert {name: record["cost"]["declared_ratio"] for name, record in records.items()} == pytest.approx(expected)
    searched = records.get("weight_mixup", {"variant": "paper", "search_cost": {"steps": 6}})
    assert (searched["variant"], searched["search_cost"]["steps"]) == ("paper", 6)


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


def test_steps_that_fp16_skipped_are_marked() -> None:
    done = Runner(source_of("bert")).run_phase(phase([], max_steps=2), {}).members[0]
    done.progression.curve[0][-1] = None
    assert "1 of 2 steps" in phase_record("finetune", done)["marks"][0]


def test_the_batches_of_a_step_are_counted() -> None:
    """A step over two batches takes twice as long, and passes are counted for each batch."""
    for accumulation in (1, 2):
        one = phase([], batch_size=2, accumulation=accumulation, max_steps=2)
        ran = Runner(source_of("bert")).run_phase(one, {})
        cost = phase_record("finetune", ran.members[0])["cost"]
        assert cost["batches_per_step"] == accumulation
        assert cost["forward_passes_per_step"] == 1


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


def test_the_run_has_the_steps_of_its_task(project: Path) -> None:
    settings = {TASK: {"training": {"max_steps": 3, "warmup_steps": 2}}}
    change(project, grid={"tasks": [TASK, "cue_regression"]}, task_settings=settings)
    refresh(project)
    record = train(project, "vanilla")
    assert record["steps"] == 3
    rates = [row[4] for row in record["curve"]]
    assert rates == pytest.approx([0.0, 5e-4, 1e-3])  # two steps of warm-up
    assert record["cost"]["declared_ratio"] == 1.0  # of the task's own plain run


def test_the_majority_of_the_training_rows(project: Path) -> None:
    """An answer that does not come from a trained model, through the same stages, store, keys and evaluation."""
    change(project, methods=["vanilla", "majority"])
    trained = train(project, "majority")
    evaluated = evaluate(Context(job(project, "majority")), trained)
    rows = read_jsonl(project / "work/subsamples/cue_sentence/24/seed-0.jsonl")
    expected = [sum(row.label == label for row in rows) / 24 for label in (0, 1)]
    for line in evaluated["predictions"]["dev"].splitlines():
        assert json.loads(line)["scores"] == pytest.approx(expected, abs=1e-6)
    assert evaluated["collapsed"] is None  # a constant on purpose
    assert set(evaluated["sets"]) == {"dev", "no_cue", "reversed"}
    assert trained["cost"]["fit_seconds"] > 0
    # No encoder is stored to answer the same whatever it reads.
    assert "weights" not in stored(project, trained["key"]).tensor_names
    # A number of steps in the shared protocol trains no phase without epochs.
    change(project, training={"max_steps": 3})
    assert not outputs.trains_encoder(Context(job(project, "majority")))
    assert train(project, "majority")["steps"] == 0


CONSTANT = {"regularisers": {"constant_answer": {}}, "training": {"epochs": 0}}
PROBE = {"regularisers": {"linear_head": {}}, "training": {"epochs": 0}}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({}, True),
        ({"training": {"epochs": 0}}, False),
        (CONSTANT, False),
        ({"regularisers": {"tfidf_logistic": {}}, "training": {"epochs": 0}}, False),
        # What is put into a frozen encoder is trained; at rank 0 that is nothing.
        ({"regularisers": {"lora": {"rank": 2}}}, True),
        ({"regularisers": {"lora": {"rank": 0}}}, False),
        ({"regularisers": {"prefix_tuning": {}}}, True),
        ({"regularisers": {"prompt_tuning": {}}}, True),
        # A fitted head on an encoder that an earlier phase has trained.
        ({"phases": {"first": {}, "finetune": PROBE}}, True),
        ({"phases": {"first": {"training": {"epochs": 0}}, "finetune": {"training": {"epochs": 0}}}}, False),
    ],
)
def test_whether_the_encoder_is_trained(project: Path, content: dict[str, Any], expected: bool) -> None:
    write_method(project, "arm", **content)
    assert outputs.trains_encoder(Context(job(project, "arm"))) is expected
