"""Seconds of a training step and of an evaluation batch on this machine, measured once and kept beside the run store.

A process of its own measures, so that the one that plans keeps its threads, its memory and no GPU context. On a CPU
the unit is CPU seconds over threads: what else the machine does at the moment does not count. Nothing that is measured
is in any key.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regft_core.errors import RegftError, StoreError
from regft_core.grid.processes import collect_rarely, leave_at_once
from regft_core.io.canonical import canonical_json, sha256_text
from regft_core.io.files import write_json
from regft_core.io.reading import read_json
from regft_core.models.devices import cores
from regft_core.models.source import ModelSource, resolve_model
from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.training import TrainingConfig

FILE = "times.json"
#: Shortest length that is measured, and the factor to the next one. A line between them is off by under a tenth.
SHORTEST, FACTOR = 16, 8
#: Tokens of a batch that is timed on a CPU, where time is linear in rows from some hundred tokens on.
_TOKENS = 256
#: Most seconds to wait for a measurement.
_PATIENCE = 600


@dataclass(frozen=True)
class StepTimes:
    """What was measured.

    Attributes:
        start: seconds of a worker until it can load a model.
        load: seconds until the model is on its device.
        update: seconds of clipping and the optimiser, once per step.
        train: length in tokens -> seconds per row of a forward and a backward pass.
        judge: length in tokens -> seconds per row of a forward pass in evaluation.
    """

    start: float
    load: float
    update: float
    train: Mapping[int, float]
    judge: Mapping[int, float]


def buckets(longest: int, max_length: int) -> list[int]:
    """The lengths at which rows of up to ``longest`` tokens are timed: from ``SHORTEST`` in steps of ``FACTOR``."""
    found = [SHORTEST]
    while found[-1] < longest:
        found.append(found[-1] * FACTOR)
    return list(dict.fromkeys(min(length, max_length) for length in found))


def step_times(
    source: ModelSource,
    encoder: EncoderConfig,
    training: TrainingConfig,
    lengths: Sequence[int],
    *,
    device: str,
    threads: int,
    store: Path,
    environment: Mapping[str, str],
    root: Path,
    measure_now: bool = True,
) -> StepTimes | None:
    """The times of one encoder with a new head; from ``store/times.json`` where they are known.

    Args:
        lengths: in tokens; those that are not known are measured.
        measure_now: False measures nothing and returns None where a length is not known.
        environment: of the process that measures, beside this one's: what workers have.
        root: of the project, from which ``encoder`` is found.

    Raises RegftError when the measurement failed, with its last line.
    """
    asked = {
        "encoder": source.content_sha256,
        "pooling": encoder.pooling,
        "batch_size": training.batch_size,
        "max_length": encoder.max_length,
        "precision": training.precision,
        "optimizer": training.optimizer,
        "device": device.partition(":")[0],
        "threads": threads,
        "machine": _machine(),
    }
    key = sha256_text(canonical_json(asked))[:16]
    kept = _read(store / FILE)
    known = kept.get(key, {})
    lacking = [length for length in lengths if str(length) not in known.get("train", {})]
    if lacking and not measure_now:
        return None
    if lacking:
        request: dict[str, Any] = {
            "root": str(root.resolve()),
            "encoder": encoder.model_dump(mode="json"),
            "lengths": lacking,
        }
        request |= {"training": training.model_dump(mode="json"), "device": device, "threads": threads}
        found = _measured_apart(request, {**os.environ, **environment})
        for part in ("train", "judge"):
            found[part] = {**known.get(part, {}), **found[part]}
        known = asked | found
        write_json(store / FILE, _read(store / FILE) | {key: known})
    train, judge = ({int(length): seconds for length, seconds in known[part].items()} for part in ("train", "judge"))
    return StepTimes(known["start"], known["load"], known["update"], train, judge)


def _machine() -> str:
    """The processor, and how many of it this process may use."""
    names = [line.partition(":")[2].strip() for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name")]
    return f"{os.uname().machine} {names[0] if names else ''} x{cores()}"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _read(path: Path) -> dict[str, Any]:
    """What was measured so far; a file that cannot be read is measured anew."""
    try:
        found = read_json(path)
    except StoreError:
        return {}
    return found if isinstance(found, dict) else {}


def _measured_apart(request: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "regft_core.grid.step_times"]
    code = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [code, environment.get("PYTHONPATH")]))
    done = subprocess.run(
        command,
        input=json.dumps(request),
        env={**environment, "PYTHONPATH": path, "OMP_NUM_THREADS": str(request["threads"])},
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RegftError(
            "not-measured",
            f"the time of a step could not be measured: {last}\n    -> correct what it names, or go on without",
        )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# ---------------------------------------------------------------------------- the process that measures


def measure(request: Mapping[str, Any]) -> dict[str, Any]:
    """Load the encoder with a new head for two labels and time random rows of every length asked for."""
    import torch

    from regft_core.models.load import load_classifier

    device, threads = request["device"], request["threads"]
    torch.set_num_threads(threads)
    encoder = EncoderConfig.model_validate(request["encoder"])
    training = TrainingConfig.model_validate(request["training"])
    clock = _clock(device, threads)
    source = resolve_model(encoder, Path(request["root"]))
    options: dict[str, Any] = {"dropout": training.dropout, "head_seed": 0, "pooling": encoder.pooling}
    moments = []
    for _ in range(2):  # the first one imports the family's code
        model = load_classifier(source, kind="classification", labels=("a", "b"), **options).to(device)
        moments.append(clock())
    load = moments[1] - moments[0]
    times = {"start": moments[0] - load, "load": load}
    return times | _timed(model, training, request["lengths"], device, clock)


def _timed(
    model: Any, training: TrainingConfig, lengths: Sequence[int], device: str, clock: Callable[[], float]
) -> dict[str, Any]:
    import torch

    from regft_core.models.mask_head import MaskClassifier
    from regft_core.models.sites import classify
    from regft_core.training.optim import build_optimizer, parameter_groups
    from regft_core.training.step import DTYPES

    groups = parameter_groups(dict(model.named_parameters()), training, lambda name: False)
    optimizer = build_optimizer(groups, training)
    dtype = DTYPES.get(training.precision)
    mixed = torch.autocast(torch.device(device).type, dtype=dtype, enabled=dtype is not None)
    draw = torch.Generator().manual_seed(0)

    def rows(length: int, count: int) -> dict[str, torch.Tensor]:
        ids = torch.randint(model.config.vocab_size // 2, model.config.vocab_size, (count, length), generator=draw)
        if isinstance(model, MaskClassifier):
            model.mask_token.fill_(ids[0, 1])
            ids[:, 1] = ids[0, 1]
        return {"input_ids": ids.to(device), "attention_mask": torch.ones_like(ids).to(device)}

    def passes(batch: dict[str, torch.Tensor]) -> None:
        with mixed:
            logits = classify(model, batch, padded=False)[0]
        labels = torch.zeros(len(logits), dtype=torch.int64, device=device)
        torch.nn.functional.cross_entropy(logits.float(), labels).backward()

    def update() -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def judged(batch: dict[str, torch.Tensor]) -> None:
        with torch.inference_mode(), mixed:
            classify(model, batch, padded=False)

    def seconds(action: Callable[..., None], *values: Any) -> float:
        begun = clock()
        action(*values)
        return clock() - begun

    whole = torch.device(device).type != "cpu"
    model.train()
    passes(rows(lengths[0], 2))
    update()  # the first of everything takes longer: memory, choice of kernels, the optimiser's state
    found: dict[str, Any] = {"train": {}, "judge": {}}
    for length in lengths:
        count = training.batch_size if whole else max(1, min(training.batch_size, _TOKENS // length))
        batch = rows(length, count)
        model.train()
        if whole:
            passes(batch)
        found["train"][str(length)] = seconds(passes, batch) / count
        model.eval()
        if whole:
            judged(batch)
        found["judge"][str(length)] = seconds(judged, batch) / count
    found["update"] = seconds(update)  # with the gradients of all lengths
    return found


def _clock(device: str, threads: int) -> Callable[[], float]:
    """Seconds that count: of the CPU, over its threads; on a device, until it has done what it was given."""
    if device == "cpu":
        return lambda: time.process_time() / threads
    import torch

    def waited() -> float:
        torch.accelerator.synchronize()
        return time.perf_counter()

    torch.zeros(1, device=device)
    begun = time.perf_counter() - time.process_time()
    return lambda: waited() - begun


if __name__ == "__main__":
    collect_rarely()
    print(json.dumps(measure(json.load(sys.stdin))))
    leave_at_once()
