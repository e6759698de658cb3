"""Training cost of methods relative to plain fine-tuning, all in one process, interleaved.

    python benchmarks/cost.py --shape minilm --batch 16 --length 128 --out benchmarks/cost_cpu.json
    python benchmarks/cost.py --shape bert-large --device cuda --out benchmarks/cost_gpu.json

Random weights, random tokens, no padding. In every round each arm makes a few optimiser steps;
the ratio of an arm is the median over rounds of its time over vanilla's time in the same round,
so that a machine that is busy for a while slows both. On a GPU the peak memory of an arm is
taken with only that arm's model alive, in a pass of its own.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regft_core.config.schema import DropoutConfig, TrainingConfig, TrainingOverrides
from regft_core.data.batches import Padding
from regft_core.data.encode import Encoded
from regft_core.methods import compose
from regft_core.methods.base import Setting
from regft_core.methods.registry import discover
from regft_core.methods.stack import Stack
from regft_core.models.load import load_classifier
from regft_core.models.source import ModelSource
from regft_core.phases.cells import KEEP_FREED_MEMORY
from regft_core.training.loop import Loop
from regft_core.training.stream import BatchStream
from regft_core.training.trainee import Trainee

SHAPES = {
    "tiny": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128},
    "minilm": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
    "bert-base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    "bert-large": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
}
VOCABULARY = 30_522


@dataclass(frozen=True)
class Arm:
    """One timed configuration; ``search`` arms time a step of the search phase."""

    name: str
    regularisers: tuple[tuple[str, dict[str, Any]], ...] = ()
    search: dict[str, Any] | None = None
    optimizer: str = "adamw"
    target: float | None = None


ARMS = (
    Arm("vanilla"),
    Arm("adamax", optimizer="adamax"),
    Arm("hype_n", (("hype", {}),), target=1.05),
    Arm("pats", (("pats", {}),), optimizer="adamax", target=1.15),
    Arm("mask_tuning", (("mask_tuning", {}),), target=2.1),
    Arm("tdt", (("tdt", {}),), target=2.7),
    Arm("weight_mixup search step", (("weight_mixup", {}),), search={}, target=4.2),
    Arm("weight_mixup search step, reused gradient", (("weight_mixup", {}),), search={"inner_gradient": "reused"}),
    Arm("weight_mixup search step, released", (("weight_mixup", {"variant": "released"}),), search={}),
    Arm("weight_mixup fine-tuning step", (("weight_mixup", {"mode": "fixed"}),)),
)


def checkpoint(shape: str, folder: Path) -> ModelSource:
    """A random BERT of the given shape with a masked-LM head, saved where the loaders find it."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(vocab_size=VOCABULARY, **SHAPES[shape])
    torch.manual_seed(0)
    BertForMaskedLM(config).save_pretrained(folder)
    return ModelSource(path=folder, name=shape, revision=None, content_sha256="0" * 64, tokenizer_sha256="0" * 64)


def tokens(rows: int, length: int) -> Encoded:
    draw = random.Random(0)
    ids = [[101, *(draw.randrange(1000, VOCABULARY) for _ in range(length - 2)), 102] for _ in range(rows)]
    special = [[1, *([0] * (length - 2)), 1] for _ in range(rows)]
    segment = [[-1, *([0] * (length - 2)), -1] for _ in range(rows)]
    types = [[0] * length for _ in range(rows)]
    labels: list[int | float] = [i % 2 for i in range(rows)]
    return Encoded(ids, types, labels, [str(i) for i in range(rows)], special, segment)


class Tokenizer:
    """What methods ask a tokenizer for."""

    mask_token_id = 103
    pad_token_id = 0
    mask_token = "[MASK]"
    all_special_ids = (0, 101, 102, 103)


def build(arm: Arm, source: ModelSource, data: Encoded, batch: int, device: torch.device) -> Loop:
    registry = discover()
    entries = [(registry[name], registry[name].Config.model_validate(options)) for name, options in arm.regularisers]
    shared = TrainingConfig(batch_size=batch, learning_rate=2e-5, warmup_ratio=0.0, epochs=10_000)
    overrides = TrainingOverrides(optimizer=arm.optimizer) if arm.optimizer != "adamw" else TrainingOverrides()
    training, problems = compose.resolve_training(entries, shared, overrides)
    assert not problems, problems
    search = None
    if arm.search is not None:
        owner = entries[0][0]
        assert owner.SearchConfig is not None
        search = owner.SearchConfig.model_validate(arm.search)
    phase = "finetune" if search is None else "search-0"
    setting = Setting("classification", 2, 0, training, None, phase)
    model = load_classifier(
        source, kind="classification", labels=["a", "b"], dropout=training.dropout or DropoutConfig(), head_seed=0
    ).to(device)
    trainee = Trainee(model, Tokenizer(), source, 0, phase, device)
    stack = Stack(entries, search, setting)
    stack.prepare(trainee, None)

    def stream(name: str) -> BatchStream:
        return BatchStream(
            data,
            kind="classification",
            padding=Padding(0, 0, "right"),
            seed=0,
            stream=name,
            batch_size=batch,
            bucket_batches=1,
            device=device,
        )

    loop = Loop(trainee, stack, stream(phase), training, validation=stream("validation") if search else None)
    trainee.model.train()
    trainee.attached.train()
    return loop


def run_steps(loop: Loop, count: int, device: torch.device) -> float:
    """Seconds per optimiser step."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(count):
        epoch, position = divmod(loop.done.step, loop.steps_per_epoch)
        loop._step(loop.stream.steps(epoch, 1)[position])
        loop.done.step += 1
    loop._flush()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - started) / count


def memory(arm: Arm, source: ModelSource, data: Encoded, batch: int, device: torch.device) -> int | None:
    """Peak bytes of a few steps with nothing else on the GPU."""
    if device.type != "cuda":
        return None
    gc.collect()
    torch.cuda.empty_cache()
    loop = build(arm, source, data, batch, device)
    run_steps(loop, 1, device)
    torch.cuda.reset_peak_memory_stats()
    run_steps(loop, 2, device)
    peak = torch.cuda.max_memory_allocated()
    del loop
    return int(peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="minilm")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=2, help="optimiser steps of each arm in a round")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.device == "cpu" and not all(name in os.environ for name in KEEP_FREED_MEMORY):
        # As the pipeline's workers, which get these before they start.
        os.execve(sys.executable, [sys.executable, *sys.argv], KEEP_FREED_MEMORY | os.environ)
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = False
    data = tokens(options.batch * 8, options.length)
    with tempfile.TemporaryDirectory() as folder:
        source = checkpoint(options.shape, Path(folder))
        peaks = {arm.name: memory(arm, source, data, options.batch, device) for arm in ARMS}
        loops = {arm.name: build(arm, source, data, options.batch, device) for arm in ARMS}
        for loop in loops.values():
            run_steps(loop, 1, device)
        times: dict[str, list[float]] = {arm.name: [] for arm in ARMS}
        for _ in range(options.rounds):
            for name, loop in loops.items():
                times[name].append(run_steps(loop, options.steps, device))
    arms = {}
    for arm in ARMS:
        ratios = [own / vanilla for own, vanilla in zip(times[arm.name], times["vanilla"], strict=True)]
        done = loops[arm.name].done
        arms[arm.name] = {
            "ratio": round(statistics.median(ratios), 3),
            "ratio_low": round(min(ratios), 3),
            "ratio_high": round(max(ratios), 3),
            "target": arm.target,
            "milliseconds_per_step": round(1000 * statistics.median(times[arm.name]), 1),
            "forward_passes": done.forward_passes / done.batches,
            "backward_passes": done.backward_passes / done.batches,
            "peak_memory_bytes": peaks[arm.name],
        }
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu, {options.threads} thread(s)"
    settings = {k: v for k, v in vars(options).items() if k != "out"}
    result = {"settings": settings, "hardware": name, "torch": torch.__version__, "arms": arms}
    print(f"{'arm':44} {'ratio':>6} {'low':>6} {'high':>6} {'target':>6} {'ms/step':>8} {'GiB':>6}")
    for key, row in arms.items():
        peak = f"{row['peak_memory_bytes'] / 2**30:.2f}" if row["peak_memory_bytes"] else "-"
        target = row["target"] or "-"
        print(
            f"{key:44} {row['ratio']:6.2f} {row['ratio_low']:6.2f} {row['ratio_high']:6.2f} {target:>6} "
            f"{row['milliseconds_per_step']:8.1f} {peak:>6}"
        )
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
