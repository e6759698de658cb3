"""Seconds of a plain training step and of a forward pass on this machine, measured once and kept beside the run store.

A worker process measures, so that the one that plans keeps its threads and memory and opens no GPU context. On a CPU
the unit is CPU seconds over threads: other load on the machine does not count. No key depends on these times.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regft_core.errors import RunFailed, StoreError
from regft_core.grid.executors import JobsFailed, run_all
from regft_core.grid.pool import prepared_devices
from regft_core.io.canonical import canonical_json, sha256_text
from regft_core.io.files import write_json
from regft_core.io.reading import read_json
from regft_core.models.devices import cores
from regft_core.models.source import resolve_model
from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.training import TrainingConfig
from regft_core.settings.project import Project
from regft_core.settings.store_path import store_path

FILE = "times.json"
#: Tokens of a batch that is timed on a CPU, where time is linear in rows from some hundred tokens on.
_TOKENS = 256


@dataclass(frozen=True)
class StepTimes:
    """Measured seconds.

    Attributes:
        train: per token of a forward and a backward pass.
        update: of clipping and the optimiser, once per step.
        judge: per token of a forward pass in evaluation.
    """

    train: float
    update: float
    judge: float


def step_times(project: Project, encoder: EncoderConfig, training: TrainingConfig, length: int) -> StepTimes:
    """Return the times of one encoder with a new head, from ``times.json`` of the run store if measured before.

    Args:
        length: of the rows that are timed, in tokens.

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
    key = sha256_text(canonical_json([request, content, machine]))[:16]
    times = _read(file).get(key)
    if times is None:
        times = _measure_apart(project, request | {"root": str(project.root.resolve())})
        write_json(file, _read(file) | {key: times})
    return StepTimes(**times)


def _read(file: Path) -> dict[str, Any]:
    """Return the times measured so far; a file that cannot be read counts as empty."""
    try:
        return dict(read_json(file))
    except (StoreError, TypeError, ValueError):
        return {}


def _measure_apart(project: Project, request: Mapping[str, Any]) -> dict[str, float]:
    devices, threads = prepared_devices(project), project.params.execution.threads
    try:
        return run_all([request], measure, executor="processes", devices=devices[:1], threads=threads)[0]
    except JobsFailed as error:
        message = f"the time of a step could not be measured: {error.failures[0].message}"
        raise RunFailed("not-measured", f"{message}\n    -> correct what it names, or go on without") from error


def measure(request: Mapping[str, Any], *, device: str) -> dict[str, float]:
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

    def passes() -> None:
        model.train()
        with mixed:
            logits = classify(model, batch, padded=False)[0]
        torch.nn.functional.cross_entropy(logits.float(), labels).backward()

    def update() -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def judge() -> None:
        model.eval()
        with torch.inference_mode(), mixed:
            classify(model, batch, padded=False)

    def clock() -> float:
        if device == "cpu":
            return time.process_time() / torch.get_num_threads()
        torch.accelerator.synchronize()
        return time.perf_counter()

    def seconds(action: Callable[[], None]) -> float:
        begun = clock()
        action()
        return clock() - begun

    for action in (passes, update, judge):  # the first of everything takes longer: memory, choice of kernels
        action()
    tokens = count * length
    return {"train": seconds(passes) / tokens, "update": seconds(update), "judge": seconds(judge) / tokens}
