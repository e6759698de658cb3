"""On a GPU: the same bits twice, after a resume, from graphs and beside others; no waits; memory; precisions."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import warnings
from typing import Any

import numpy as np
import pytest
import torch

from regft_core.contract import laws
from regft_core.data.batches import padding_of
from regft_core.evaluate.logits import predict
from regft_core.grid.executors import run_all
from regft_core.hooks import compose
from regft_core.models.devices import free_memory
from regft_core.runs.environment import environment
from regft_core.runs.training_run import PhaseInputs, TrainedPhase, make_deterministic, prepare, train
from regft_core.schema.training import TrainingConfig
from regft_core.training.loop import Loop
from tests.methods.chain import phase, runner
from tests.methods.harness import entries, same

TRAINING = TrainingConfig(epochs=3, batch_size=4, learning_rate=1e-3, warmup_ratio=0.1)
ADAMAX = TRAINING.model_copy(update={"optimizer": "adamax"})
DEVICE = "cuda:0"
SEARCH: dict[str, Any] = {"name": "search", "split": True}
METHODS: dict[str, tuple[list[Any], TrainingConfig, dict[str, Any]]] = {
    "vanilla": ([], TRAINING, {}),
    "hype_n": ([("hype", {})], TRAINING, {}),
    "pats": ([("pats", {"strength": 1e-4})], ADAMAX, {}),
    "tdt": ([("tdt", {})], TRAINING, {}),
    "cutoff": ([("cutoff", {})], TRAINING, {}),
    "dps_mix": ([("dps", {"mode": "mix"})], TRAINING, {}),
    "r4f": ([("r3f", {}), ("r4f", {})], TRAINING, {}),
    "contrastive": ([("contrastive", {})], TRAINING, {"name": "contrastive"}),
    "mask_tuning_sampled": ([("mask_tuning", {"fill": "sample"})], TRAINING, {"masked_lm": True}),
    "mask_tuning": ([("mask_tuning", {})], TRAINING, {"masked_lm": True}),
    "weight_mixup": ([("weight_mixup", {"attention": "random"})], TRAINING, {}),
    "weight_mixup joint": ([("weight_mixup", {"attention": "joint"})], TRAINING, {}),
    "weight_mixup search": ([("weight_mixup", {})], TRAINING, SEARCH),
    "weight_mixup_released search": ([("weight_mixup", {"variant": "released"})], TRAINING, SEARCH),
}


@pytest.fixture(autouse=True)
def workspace() -> None:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def inputs(method: str, **changes: Any) -> PhaseInputs:
    regularisers, training, more = METHODS[method]
    given = phase(regularisers, name=more.get("name", "finetune"), split=0.5 if more.get("split") else 1.0)
    given = dataclasses.replace(given, training=training.model_copy(update=changes.pop("training", {})))
    found = runner(masked_lm=more.get("masked_lm", False), rows=24, pair=True).inputs(given, {})
    return dataclasses.replace(found, **{"device": DEVICE, **changes})


def weights(trained: TrainedPhase) -> dict[str, torch.Tensor]:
    trained.stack.export(trained.trainee)
    return trained.trainee.trained_weights()


def digest(method: str, *, device: str) -> str:
    """One run, as a worker gets it: the hash of its weights."""
    trained = weights(train(inputs(method, device=device)))
    content = b"".join(trained[name].numpy().tobytes() for name in sorted(trained))
    return hashlib.sha256(content).hexdigest()


def test_runs_that_share_a_gpu_have_the_bits_of_runs_alone() -> None:
    jobs = ["vanilla", "hype_n", "vanilla", "hype_n"]
    beside = run_all(jobs, digest, executor="processes", devices=[DEVICE], per_device=2, threads=1)
    assert beside == [digest("vanilla", device=DEVICE), digest("hype_n", device=DEVICE)] * 2


def test_logits_are_those_of_the_cpu_however_the_rows_are_cut() -> None:
    given = inputs("vanilla")
    model, padding = train(given).trainee.model, padding_of(given.tokenizer)

    def logits(device: str, tokens: int | None) -> Any:
        return predict(model.to(device), given.encoded, device=device, padding=padding, batch_tokens=tokens)

    whole = logits(DEVICE, 1 << 16)
    assert np.allclose(whole, logits(DEVICE, 64), atol=1e-5)
    assert np.allclose(whole, logits("cpu", None), atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_a_killed_run_continues_with_the_same_bits(method: str) -> None:
    assert laws.resume(lambda **options: training_loop(inputs(method), **options), 3) == ""


def waits_of(loop: Loop, index: int) -> list[str]:
    """What CUDA says of the host waiting for it in one step."""
    loop.done.step = index
    rows = loop.stream.steps(0, 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            loop._step(rows[index % len(rows)])
        finally:
            torch.cuda.set_sync_debug_mode("default")
    # Not the notice that this mode is a prototype, which comes with the first use of it in a process.
    return [str(w.message) for w in caught if "called a synchronizing" in str(w.message)]


def training_loop(given: PhaseInputs, **options: Any) -> Loop:
    loop = prepare(given, **options).loop
    assert loop is not None
    loop.trainee.model.train()
    loop.trainee.attached.train()
    return loop


@pytest.mark.parametrize("method", METHODS)
def test_cuda_itself_sees_no_wait_in_a_step_that_logs_nothing(method: str) -> None:
    loop = training_loop(inputs(method))
    loop._step(loop.stream.steps(0, 1)[0])
    assert [waits_of(loop, index) for index in (1, 2, 3)] == [[], [], []]


@pytest.mark.parametrize("method", ["vanilla", "pats", "weight_mixup search"])
def test_nor_after_a_resume(method: str) -> None:
    memory = laws.Memory()

    def die(step: int, *_: Any) -> None:
        if step == 2:
            raise laws.Stopped

    with pytest.raises(laws.Stopped):
        train(inputs(method), checkpointer=memory, checkpoint_seconds=0.0, progress=die)
    loop = training_loop(inputs(method), checkpointer=memory)
    loop._resume()
    assert [waits_of(loop, index) for index in (2, 3)] == [[], []]


@pytest.mark.parametrize(("method", "optimizer", "looks"), [("vanilla", "adamw", 0), ("vanilla", "adamax", 1)])
def test_under_fp16_an_update_that_is_not_fused_is_waited_for_once(method: str, optimizer: str, looks: int) -> None:
    loop = training_loop(inputs(method, training={"precision": "fp16", "optimizer": optimizer}))
    loop._step(loop.stream.steps(0, 1)[0])
    assert len(waits_of(loop, 1)) == looks


@pytest.mark.parametrize("method", ["vanilla", "pats", "weight_mixup"])
def test_graphs_give_the_bits_of_eager_steps(method: str) -> None:
    ready = prepare(inputs(method, cuda_graphs=True, training={"epochs": 6}))
    assert ready.loop is not None
    assert ready.loop.graphs is not None
    ready.loop.train()
    assert ready.loop.graphs._recorded
    eager = train(inputs(method, training={"epochs": 6}))
    ready.stack.export(ready.trainee)
    assert same(ready.trainee.trained_weights(), weights(eager))


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_noise_that_a_precision_rounds_away_is_refused_or_marked(precision: str) -> None:
    tf32 = precision == "tf32"
    training = TRAINING if tf32 else TRAINING.model_copy(update={"precision": precision})
    refused, _ = compose.precision_problems(entries([("hype", {})]), training, tf32)
    assert "rounds away" in refused[0]
    allowed = training.model_copy(update={"allow_precision_loss": True})
    refused, marked = compose.precision_problems(entries([("hype", {})]), allowed, tf32)
    assert refused == []
    assert "rounds away" in marked[0]
    run = train(inputs("hype_n", tf32=tf32, training={"precision": "fp32" if tf32 else precision}))
    assert all(value.isfinite().all() for value in weights(run).values())


def test_memory_is_counted_and_freed() -> None:
    train(inputs("vanilla"))  # what stays once anything has run: the work space of matrix products, 32 MiB and more
    free_memory(DEVICE)
    before = torch.cuda.memory_allocated()
    trained = train(inputs("vanilla"))
    assert trained.peak_memory_bytes is not None
    size = sum(p.numel() * p.element_size() for p in trained.trainee.model.parameters())
    assert trained.peak_memory_bytes - before > 3 * size  # weights, gradients and the optimiser's moments
    del trained
    free_memory(DEVICE)
    assert torch.cuda.memory_allocated() <= before


def test_a_result_names_what_it_ran_with() -> None:
    make_deterministic(DEVICE, wanted=False, tf32=True)
    try:
        named = environment(DEVICE)
    finally:
        make_deterministic(DEVICE, wanted=False)
    assert named["name"] == torch.cuda.get_device_name(DEVICE)
    assert named["tf32"] is True
    assert "cuda_graphs" not in named
    assert "tf32" not in environment(DEVICE)
