"""Seconds of a training step: measured on this machine once, or by an assumed speed. No key depends on them.

A worker process measures, so that the one that plans keeps its threads and memory and opens no GPU context. On a CPU
the unit is CPU seconds over threads: other load on the machine does not count.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from regft_core.disk.canonical import sha256_json
from regft_core.disk.files import write_json
from regft_core.disk.reading import read_json
from regft_core.errors import RunFailed, StoreError
from regft_core.grid.executors import JobsFailed, run_all
from regft_core.grid.pool import prepared_devices
from regft_core.models.devices import cores
from regft_core.models.source import encoder_weights, resolve_model
from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.training import TrainingConfig
from regft_core.settings.project import Project
from regft_core.settings.store_path import store_path

#: Times that were measured, in the run store.
FILE = "times.json"
#: Tokens of a batch that is timed on a CPU, where time is linear in rows from some hundred tokens on.
_TOKENS = 256
#: Operations per second that an A100 or H100 is assumed to sustain in training, by precision; and one CPU core in fp32.
GPU_SPEED: dict[str, float] = {"fp32": 2.5e13, "bf16": 1.2e14, "fp16": 1.2e14}
CORE_SPEED = 3.0e10


@dataclass(frozen=True)
class StepTime:
    """Seconds of one worker.

    Attributes:
        train: per token of a forward and a backward pass.
        update: of clipping and the optimiser, once per step.
        predict: per token of a forward pass in evaluation.
    """

    train: float
    update: float = 0.0
    predict: float = 0.0


def assumed(project: Project, task: str, speed: float) -> StepTime | None:
    """Return the time at ``speed`` operations per second, 6 per weight and token; None for an unknown encoder."""
    weights = encoder_weights(project.model(task).name, project.root)
    return None if weights is None else StepTime(train=6 * weights / speed)


def measured(project: Project, encoder: EncoderConfig, training: TrainingConfig, length: int) -> StepTime:
    """Return the time of a step on rows of ``length`` tokens, from ``times.json`` of the run store if measured before.

    Raises RunFailed when the measurement failed.
    """
    execution, file = project.params.execution, store_path(project.root, project.params) / FILE
    request: dict[str, Any] = {
        "encoder": encoder.model_dump(mode="json", include={"name", "revision", "pooling"}),
        "training": training.model_dump(mode="json", include={"batch_size", "precision", "optimizer"}),
        "length": length,
    }
    machine = [platform.node(), cores(), execution.device, execution.threads]
    content = resolve_model(encoder, project.root).content_sha256
    key = sha256_json([request, content, machine, [field.name for field in fields(StepTime)]])[:16]
    times: dict[str, Any] = {}
    with suppress(StoreError):  # nothing was measured so far
        times = read_json(file, dict)
    if key not in times:
        times[key] = asdict(_measure_apart(project, request | {"root": str(project.root.resolve())}))
        write_json(file, times)
    return StepTime(**times[key])


def _measure_apart(project: Project, request: Mapping[str, Any]) -> StepTime:
    devices, threads = prepared_devices(project)[:1], project.params.execution.threads
    try:
        return run_all([request], measure, executor="processes", devices=devices, threads=threads)[0]
    except JobsFailed as error:
        message = f"the time of a step could not be measured: {error.failures[0].message}"
        raise RunFailed("not-measured", f"{message}\n    -> correct what it names, or go on without") from error


def measure(request: Mapping[str, Any], *, device: str) -> StepTime:
    """Load the encoder with a new head for two labels, and time a step and an evaluation of random rows."""
    import torch

    from regft_core.models.load import load_classifier
    from regft_core.models.mask_head import MaskClassifier
    from regft_core.models.sites import classify
    from regft_core.training.optim import build_optimizer, parameter_groups
    from regft_core.training.step import DTYPES

    encoder = EncoderConfig.model_validate(request["encoder"])
    training = TrainingConfig.model_validate(request["training"])
    model = load_classifier(
        resolve_model(encoder, Path(request["root"])),
        kind="classification",
        labels=("a", "b"),
        dropout=training.dropout,
        head_seed=0,
        pooling=encoder.pooling,
    ).to(device)
    groups = parameter_groups(dict(model.named_parameters()), training, lambda name: False)
    optimizer = build_optimizer(groups, training)
    dtype = DTYPES.get(training.precision)
    mixed = torch.autocast(torch.device(device).type, dtype=dtype, enabled=dtype is not None)
    length, vocabulary = request["length"], model.config.vocab_size
    count = training.batch_size if device != "cpu" else max(1, min(training.batch_size, _TOKENS // length))
    ids = torch.randint(vocabulary // 2, vocabulary, (count, length), generator=torch.Generator().manual_seed(0))
    if isinstance(model, MaskClassifier):
        model.mask_token.fill_(ids[0, 1])
        ids[:, 1] = ids[0, 1]
    batch = {"input_ids": ids.to(device), "attention_mask": torch.ones_like(ids).to(device)}
    labels = torch.zeros(count, dtype=torch.int64, device=device)

    def train() -> None:
        model.train()
        with mixed:
            logits = classify(model, batch, padded=False)[0]
        torch.nn.functional.cross_entropy(logits.float(), labels).backward()

    def update() -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def predict() -> None:
        model.eval()
        with torch.inference_mode(), mixed:
            classify(model, batch, padded=False)

    def clock() -> float:
        if device == "cpu":
            return time.process_time() / torch.get_num_threads()
        torch.accelerator.synchronize()
        return time.perf_counter()

    times = [0.0]
    for _ in range(2):  # the first of everything takes longer: memory, choice of kernels
        times = [clock()]
        for action in (train, update, predict):
            action()
            times.append(clock())
    trained, updated, predicted = (end - begin for begin, end in pairwise(times))
    return StepTime(trained / (count * length), updated, predicted / (count * length))
