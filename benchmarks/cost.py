"""Training cost of methods relative to plain fine-tuning, all in one process, interleaved; ``gpu.py`` prints it.

Random weights, random tokens, no padding. Every phase that takes optimiser steps is timed; phases before it
run a single step first, so that it finds what it needs. In every round an arm and plain fine-tuning make as many
steps one after the other; the ratio is the median over rounds of the two times, so that a machine that is busy for a
while slows both. On a GPU the peak memory of an arm is taken, too, without that of plain fine-tuning beside it, and how
often the host waits for the device.
"""

from __future__ import annotations

import functools
import random
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from regft_core.data.encode import Encoded
from regft_core.errors import RegftError
from regft_core.hooks import compose
from regft_core.hooks.declare import Handed, Setting
from regft_core.hooks.registry import discover
from regft_core.models.source import ModelSource, resolve_model
from regft_core.runs.training_run import PhaseInputs, outcome_tensors, prepare, train
from regft_core.schema.method import Method, Phase
from regft_core.schema.training import EncoderConfig, TrainingConfig
from regft_core.training.loop import Loop

ROOT = Path(__file__).resolve().parents[1]
SHAPES = {
    "tiny": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128},
    "minilm": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
    "bert-base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    "bert-large": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
}
VOCABULARY = 30_522
#: Environment of a run on a GPU, as ``grid/jobs.py`` sets it: without, torch refuses to be deterministic.
WORKSPACE = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "TOKENIZERS_PARALLELISM": "false"}
#: Issue targets, as ratios on a GPU; shown beside the measurement.
TARGETS = {"hype_n": 1.05, "pats": 1.15, "mask_tuning": 2.1, "tdt": 2.7, "weight_mixup (search)": 4.2}


@dataclass
class Row:
    """One timed phase of a method."""

    ratio: float
    low: float
    high: float
    milliseconds: float


def checkpoint(shape: str, folder: Path) -> ModelSource:
    """A random BERT of the given shape with a masked-LM head, saved where the loaders find it."""
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    BertForMaskedLM(BertConfig(vocab_size=VOCABULARY, **SHAPES[shape])).save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")  # tokens are drawn; an encoder without a tokenizer is refused
    return source_of(folder)


def source_of(folder: Path) -> ModelSource:
    """The checkpoint in a folder."""
    return resolve_model(EncoderConfig(name=str(folder)), folder.parent)


def tokens(rows: int, length: int) -> Encoded:
    draw = random.Random(0)
    ids = [[101, *(draw.randrange(1000, VOCABULARY) for _ in range(length - 2)), 102] for _ in range(rows)]
    segment = [[-1, *([0] * (length - 2)), -1] for _ in range(rows)]
    labels: list[int | float] = [i % 2 for i in range(rows)]
    return Encoded(ids, [[0] * length for _ in range(rows)], labels, [str(i) for i in range(rows)], segment)


class Tokenizer:
    """A tokenizer with the attributes that methods and the collation read."""

    mask_token_id, pad_token_id, pad_token_type_id = 103, 0, 0
    mask_token, padding_side = "[MASK]", "right"
    all_special_ids = (0, 101, 102, 103)

    def __len__(self) -> int:
        return VOCABULARY


def with_training(inputs: PhaseInputs, training: TrainingConfig) -> PhaseInputs:
    """The same phase under another protocol."""
    return replace(inputs, setting=replace(inputs.setting, training=training))


class Bench:
    """Prepares phases of methods on one checkpoint and one set of rows."""

    def __init__(self, source: ModelSource, data: Encoded, batch: int, device: str) -> None:
        self.source, self.data, self.device = source, data, device
        self.shared = TrainingConfig(batch_size=batch, learning_rate=2e-5, warmup_ratio=0.0, epochs=10_000)
        self.registry = discover()

    def phases(self, method: Method) -> Iterator[tuple[Phase, PhaseInputs]]:
        """Every phase that takes steps, with what the phases before it left after one step."""
        handed: dict[str, Handed] = {}
        for phase in method.phases:
            inputs = self.inputs(method, phase, handed)
            if phase.training.epochs:
                endless = inputs.setting.training.model_copy(update={"epochs": 10_000, "max_steps": None})
                yield phase, with_training(inputs, endless)
            if phase is not method.finetune:
                once = inputs.setting.training.model_copy(update={"max_steps": 1 if phase.training.epochs else None})
                short = replace(inputs, setting=replace(inputs.setting, training=once, final=False))
                tensors = outcome_tensors(short, train(short), weights=True)
                handed[phase.name] = Handed("0" * 64, tensors.get("state", {}), tensors.get("weights", {}))

    def inputs(self, method: Method, phase: Phase, handed: dict[str, Handed]) -> PhaseInputs:
        entries = compose.entries(self.registry, phase.regularisers)
        training, problems = compose.resolve_training(entries, phase)
        if problems:
            raise RegftError("bad-composition", "; ".join(problems))
        if "batch_size" not in phase.explicit:
            training = training.model_copy(update={"batch_size": self.shared.batch_size})
        rows = len(self.data.input_ids)
        cut = rows if phase.data.split == 1.0 else rows // 2
        needed = {name for entry in compose.active(entries) for name in entry.declares.needs}
        start = handed[phase.start].weights if phase.start in handed else None
        return PhaseInputs(
            entries=entries,
            setting=Setting("classification", 2, 0, training, phase.name, phase is method.finetune),
            streams={"noise": phase.name, "order": phase.name, "head": "head"},
            source=self.source,
            tokenizer=Tokenizer(),
            encoded=self.data,
            train_rows=list(range(cut)),
            validation_rows=list(range(cut, rows)),
            labels=["a", "b"],
            device=self.device,
            pooling=(method.config.model.pooling if method.config.model else None) or "head",
            start=start or None,
            handed={name: handed[name] for name in needed},
        )

    def loop(self, inputs: PhaseInputs) -> Loop | None:
        """The loop of a phase; None where it has nothing to do for this checkpoint."""
        ready = prepare(inputs)
        if ready.loop is None:
            return None
        ready.trainee.model.train()
        ready.trainee.attached.train()
        return ready.loop


def take_steps(loop: Loop, count: int) -> None:
    """Make optimiser steps."""
    for _ in range(count):
        epoch, position = divmod(loop.done.step, loop.steps_per_epoch)
        loop._step(loop.stream.steps(epoch, 1)[position])
        loop.done.step += 1


def run_steps(loop: Loop, count: int) -> float:
    """Seconds per optimiser step."""
    synchronise = torch.cuda.synchronize if loop.trainee.device.type == "cuda" else lambda: None
    synchronise()
    started = time.perf_counter()
    take_steps(loop, count)
    loop._flush()
    synchronise()
    return (time.perf_counter() - started) / count


def measure(loop: Loop, vanilla: Loop, rounds: int, steps: int) -> Row:
    """Interleave the arm with plain fine-tuning; see the module's text."""
    run_steps(loop, 1)
    own, plain = [], []
    for _ in range(rounds):
        plain.append(run_steps(vanilla, steps))
        own.append(run_steps(loop, steps))
    ratios = [a / b for a, b in zip(own, plain, strict=True)]
    return Row(statistics.median(ratios), min(ratios), max(ratios), 1000 * statistics.median(own))


class Operations(TorchDispatchMode):
    """Counts what reaches a kernel, by name (views do not), and the flops of matrix products by torch's formulas.

    torch's own ``FlopCounterMode`` also asks which module each product belongs to, and its hooks for that fail (torch
    2.11) where a step asks for the gradient of a leaf, as the search of weight mixup does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            self.names[func.overloadpacket.__name__] += 1
        if formula := flop_registry.get(func.overloadpacket):
            self.flops += formula(*args, **(kwargs or {}), out_val=result)
        return result


def counted_step(loop: Loop) -> Operations:
    """One step's operations that the host starts, with those of the backward pass and the update, and its flops."""
    with Operations() as found:
        run_steps(loop, 1)
    return found


@functools.cache
def peak_flops(device: str, precision: str) -> float:
    """Multiplications and additions a second of one large product: the best of ten."""
    kind = torch.device(device).type
    size = 8192 if kind == "cuda" else 1024
    matrix = torch.randn(size, size, device=device, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)
    before = torch.backends.cuda.matmul.allow_tf32
    multiply_in_tf32(precision == "tf32")
    try:
        seconds = []
        for _ in range(10):
            started = time.perf_counter()
            matrix @ matrix
            if kind == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - started)
    finally:
        multiply_in_tf32(before)
    return 2 * size**3 / min(seconds)


def waits_per_step(loop: Loop, steps: int = 3) -> float | None:
    """Waits of the host for CUDA in a step that logs nothing, as CUDA tells; None on a CPU."""
    run_steps(loop, 2)  # the second one is recorded, where steps are
    while loop.done.step % 10 == 0 or loop.done.step % 10 + steps > 10:
        run_steps(loop, 1)
    if loop.trainee.device.type != "cuda":
        return None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            take_steps(loop, steps)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    loop._flush()
    # Not the notice that this mode is a prototype, which comes with the first use of it in a process.
    return sum("called a synchronizing" in str(warning.message) for warning in caught) / steps


def multiply_in_tf32(wanted: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = wanted


class InTf32:
    """A loop whose own steps multiply in TF32; what the process does beside them is in fp32 as before."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        multiply_in_tf32(False)  # preparing the loop has set it for the whole process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def _step(self, rows: list[list[int]]) -> None:
        multiply_in_tf32(True)
        try:
            self._loop._step(rows)
        finally:
            multiply_in_tf32(False)
