"""All figures of a step on a GPU in one command; writes a table.

    python benchmarks/gpu.py                # one GPU, about 20 minutes; writes benchmarks/gpu.md
    python benchmarks/gpu.py --part steps   # the tables of steps only; --part cells: that of workers only
    python benchmarks/gpu.py --smoke --out OUT.md    # all of it on a CPU with a tiny encoder: no figures, a test

- time of a step against plain fine-tuning (interleaved, as ``benchmarks/cost.py``), peak memory of the arm alone, how
  often the host waits for the device in a step, told by CUDA itself (``torch.cuda.set_sync_debug_mode``), how many
  operations the host starts in a step (one on a list of tensors counts as one), and the model FLOPs utilisation (MFU):
  multiplications and additions of a step's matrix products (counted by torch) a second, as a share of those of one
  large product in the same precision on the same device, measured in the same run;
- the same for recorded steps (``execution.cuda_graphs``; recorded before they are timed, and their memory is that of
  recording them) and TF32 of plain fine-tuning (its steps only, those beside it are fp32), and for arms in bf16:
  plain fine-tuning against its steps in fp32, the others against plain fine-tuning in bf16;
- rows per second of an evaluation in bf16, beside fp32;
- cells per hour of 1 to n workers on the device, against one process per cell, one at a time, and against the Hugging
  Face Trainer in one process per cell (``pip install accelerate``; without it the row says so).

Random weights and tokens. A wait is counted in steps that log nothing; a step logs every tenth time. The table is
written after every row, and what cannot be measured gets a row that says why: a slip costs its own figure only. The
command then ends with code 1.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import gc
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cost

from regft_core.data.batches import Padding
from regft_core.grid.executors import run_all
from regft_core.grid.method_table import shipped_methods
from regft_core.models.devices import free_memory, take_device
from regft_core.runs.training_run import PhaseInputs
from regft_core.training.loop import Loop

#: A row of the table of cells.
TRAINER = "the Trainer, one process per cell, one at a time"
#: What is timed: the five methods and the optimisers that they stand on.
METHODS = ("vanilla", "adamax", "hype_n", "pats", "mask_tuning", "tdt", "weight_mixup", "weight_mixup_released")
#: What is timed in bf16, too: beside plain fine-tuning a method of several views and one of many small tensors.
HALF = ("vanilla", "tdt", "pats")


class Sizes(NamedTuple):
    """How much is measured: shapes (encoder, rows, tokens; the last is that of the cells, too), rows of an evaluation,
    rounds, steps of an arm in a round, cells, their steps, and the workers beside each other."""

    device: str = "cuda:0"
    shapes: tuple[tuple[str, int, int], ...] = (("bert-large", 16, 128), ("bert-base", 16, 32), ("bert-base", 16, 64))
    methods: tuple[str, ...] = METHODS
    evaluated: int = 4096
    rounds: int = 5
    steps: int = 5
    cells: int = 24
    cell_steps: int = 60
    workers: tuple[int, ...] = (1, 2, 4, 8)


SMOKE = Sizes("cpu", (("tiny", 8, 32),), ("vanilla", "pats"), 5, steps=1, cells=2, cell_steps=1, workers=(2,))


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run of plain fine-tuning, as a worker gets it."""

    name: str
    folder: str
    rows: int
    length: int
    steps: int


class Table:
    """The lines of the result; written whenever one is added, so that what is measured is not lost."""

    def __init__(self, path: Path, lines: list[str]) -> None:
        self.path, self.lines, self.failed = path, lines, 0

    def add(self, *lines: str) -> None:
        self.lines += lines
        self.path.write_text("\n".join(self.lines) + "\n", encoding="utf-8")
        print(lines[-1], flush=True)

    def attempt(self, name: str, measure: Callable[[], None]) -> None:
        """Run one measurement, which adds its rows; one that fails gets a row with the reason, and the next is made."""
        try:
            measure()
        except Exception as error:
            traceback.print_exc()
            self.failed += 1
            first = next(iter(str(error).splitlines()), "").replace("|", "/")
            self.add(f"| {name} | not measured: {type(error).__name__}: {first} |")


def run_cell(cell: Cell, *, device: str) -> float:
    """Train one cell and predict its rows; seconds of the work itself. Reads the model from disk, as runs do."""
    from regft_core.evaluate.logits import predict
    from regft_core.runs.training_run import train

    started = time.perf_counter()
    bench = cost.Bench(cost.source_of(Path(cell.folder)), cost.tokens(cell.rows * 8, cell.length), cell.rows, device)
    inputs = plain(bench, steps=cell.steps)
    trained = train(inputs)
    predict(trained.trainee.model, inputs.encoded, device=device, padding=Padding(0))
    return time.perf_counter() - started


def trainer_cell(cell: Cell, *, device: str) -> float:
    """The same cell by the Hugging Face Trainer; seconds as ``run_cell``."""
    from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

    started = time.perf_counter()
    encoded = cost.tokens(cell.rows * 8, cell.length)
    rows = [
        {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": label}
        for ids, label in zip(encoded.input_ids, encoded.labels, strict=True)
    ]
    arguments = TrainingArguments(
        output_dir=cell.folder,
        max_steps=cell.steps,
        per_device_train_batch_size=cell.rows,
        per_device_eval_batch_size=8 * cell.rows,
        learning_rate=2e-5,
        use_cpu=not device.startswith("cuda"),
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    model = AutoModelForSequenceClassification.from_pretrained(cell.folder)
    trainer = Trainer(model=model, args=arguments, train_dataset=rows)
    trainer.train()
    trainer.predict(rows)
    return time.perf_counter() - started


def plain(bench: cost.Bench, steps: int | None = None, **changes: Any) -> PhaseInputs:
    """Plain fine-tuning on ``bench``, endless or of so many steps."""
    _, inputs = next(iter(bench.phases(shipped_methods(cost.ROOT).methods["vanilla"])))
    training = inputs.setting.training.model_copy(update={"max_steps": steps})
    return dataclasses.replace(cost.with_training(inputs, training), **changes)


def step_table(shape: str, rows: int, length: int, options: Sizes, table: Table) -> None:
    """Adds the rows of one shape."""
    table.add(
        f"## {shape}, {rows} x {length} tokens",
        "",
        "| arm | ratio to vanilla (median) | lowest, highest | target | ms per step | peak GiB | waits per step | "
        "operations per step | MFU |",
        "|---|---|---|---|---|---|---|---|---|",
    )
    device = torch.device(options.device)
    with tempfile.TemporaryDirectory() as folder:
        bench = cost.Bench(cost.checkpoint(shape, Path(folder)), cost.tokens(rows * 8, length), rows, options.device)
        vanilla = bench.loop(plain(bench))
        assert vanilla is not None
        cost.run_steps(vanilla, 2)
        plain_flops = cost.counted_step(vanilla).flops

        def add(name: str, inputs: PhaseInputs, beside: Loop = vanilla) -> None:
            gc.collect()  # whatever the arm before has left, cycles that free_memory takes for what stays included
            free_memory(device.type)
            held = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
            prepared = bench.loop(inputs)
            if prepared is None:
                return
            loop: Any = cost.InTf32(prepared) if inputs.tf32 else prepared
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
            waits, counted = cost.waits_per_step(loop), cost.counted_step(loop)
            # Of a recorded step the host starts nothing that could be counted.
            flops = plain_flops if name.startswith("vanilla") else counted.flops
            # Of the first steps: recording one takes more than repeating it.
            peak = torch.cuda.max_memory_allocated(device) - held if device.type == "cuda" else None
            row = cost.measure(loop, beside, options.rounds, options.steps)
            precision = "tf32" if inputs.tf32 else inputs.setting.training.precision
            utilisation = 1000 * flops / row.milliseconds / cost.peak_flops(options.device, precision)
            memory, blocked = f"{peak / 2**30:.2f}" if peak else "-", "-" if waits is None else f"{waits:.1f}"
            ratio, target = f"{row.ratio:.2f} | {row.low:.2f}, {row.high:.2f}", cost.TARGETS.get(name, "-")
            numbers = (memory, blocked, counted.names.total(), f"{utilisation:.3f}")
            table.add(f"| {' | '.join(map(str, (name, ratio, target, f'{row.milliseconds:.1f}', *numbers)))} |")

        def phases_of(name: str) -> None:
            for phase, inputs in bench.phases(methods[name]):
                label = name if phase.name == "finetune" else f"{name} ({phase.name})"
                attempt(label, functools.partial(add, label, inputs))

        @functools.cache
        def plain_half() -> Loop | None:
            loop = bench.loop(in_bf16(plain(bench)))
            if loop is not None:
                cost.run_steps(loop, 2)
            return loop

        def half_of(name: str) -> None:
            _, inputs = next(iter(bench.phases(methods[name])))
            beside = None if name == "vanilla" else plain_half()
            add(f"{name}, bf16", in_bf16(inputs), beside or vanilla)

        def attempt(name: str, measure: Callable[[], None]) -> None:
            table.attempt(name, measure)
            free_memory(options.device)

        methods = shipped_methods(cost.ROOT).methods
        for name in options.methods:
            attempt(name, functools.partial(phases_of, name))
        if device.type == "cuda":
            for label, changes in (("cuda_graphs", {"cuda_graphs": True}), ("tf32", {"tf32": True})):
                inputs = plain(bench, **changes)
                attempt(f"vanilla, {label}", functools.partial(add, f"vanilla, {label}", inputs))
            cost.multiply_in_tf32(False)
        for name in HALF:
            attempt(f"{name}, bf16", functools.partial(half_of, name))
        attempt("evaluation", functools.partial(evaluation, vanilla.trainee.model, length, options, table))
    table.add("")


def in_bf16(inputs: PhaseInputs) -> PhaseInputs:
    """The same phase in bf16, also where the method's smallest effect is lost: only its time is of interest."""
    training = inputs.setting.training.model_copy(update={"precision": "bf16", "allow_precision_loss": True})
    return cost.with_training(inputs, training)


def evaluation(model: torch.nn.Module, length: int, options: Sizes, table: Table) -> None:
    """Adds the rows per second of a whole evaluation (batches made, sent, and logits read back), interleaved."""
    from regft_core.evaluate.logits import predict

    encoded = cost.tokens(options.evaluated, length)
    seconds: dict[str, list[float]] = {"fp32": [], "bf16": []}
    for _ in range(options.rounds + 1):
        for precision, taken in seconds.items():
            started = time.perf_counter()
            predict(model, encoded, device=options.device, precision=precision, padding=Padding(0))
            taken.append(time.perf_counter() - started)
    table.add("", f"| evaluation of {options.evaluated} rows | rows per second | times fp32 |", "|---|---|---|")
    middle = {precision: statistics.median(taken[1:]) for precision, taken in seconds.items()}  # the first warms up
    for precision, taken in middle.items():
        table.add(f"| {precision} | {options.evaluated / taken:.0f} | {middle['fp32'] / taken:.2f} |")


def worker_table(options: Sizes, table: Table) -> None:
    """Cells per hour; the first row starts a process for every cell, one after the other."""
    free_memory(options.device)  # of the steps before: the workers have the GPU to themselves
    shape, rows, length = options.shapes[-1]
    table.add(
        f"## Cells per hour ({shape}, {rows} x {length} tokens, {options.cell_steps} steps and an evaluation each)",
        "",
        "| way | cells per hour | times one process per cell |",
        "|---|---|---|",
    )
    with tempfile.TemporaryDirectory() as folder:
        cost.checkpoint(shape, Path(folder))
        cells = [Cell(f"cell {i}", folder, rows, length, options.cell_steps) for i in range(options.cells)]
        run = functools.partial(run_all, executor="processes", devices=[options.device], threads=1)
        some = cells[: max(1, options.cells // 4)]

        def one_by_one(function: Callable[..., float]) -> float:
            started = time.perf_counter()
            for cell in some:
                run([cell], function)
            return (time.perf_counter() - started) / len(some)

        alone = one_by_one(run_cell)
        table.add(f"| one process per cell, one at a time | {3600 / alone:.0f} | 1.00 |")

        def trainer() -> None:
            each = one_by_one(trainer_cell)
            table.add(f"| {TRAINER} | {3600 / each:.0f} | {alone / each:.2f} |")

        if find_spec("accelerate") is None:
            table.add(f"| {TRAINER} | not measured: it needs accelerate, which is not installed |")
        else:
            table.attempt(TRAINER, trainer)

        def beside(workers: int) -> None:
            started = time.perf_counter()
            run(cells, run_cell, per_device=workers)
            each = (time.perf_counter() - started) / len(cells)
            table.add(f"| {workers} worker(s) | {3600 / each:.0f} | {alone / each:.2f} |")

        for workers in options.workers:
            table.attempt(f"{workers} worker(s)", functools.partial(beside, workers))
    table.add("")


def hardware(device: str) -> str:
    if not device.startswith("cuda"):
        return f"{device} (a smoke test: no figure here is of a GPU)"
    mps = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")).exists()
    return f"{torch.cuda.get_device_name(device)}, {'with' if mps else 'without'} an MPS server"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="on a CPU with a tiny encoder, without figures")
    parser.add_argument("--part", choices=("all", "steps", "cells"), default="all", help="what is measured")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("gpu.md"))
    asked = parser.parse_args()
    options = (SMOKE if asked.smoke else Sizes())._replace(rounds=asked.rounds)
    os.environ.update(cost.WORKSPACE)
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("there is no CUDA device here; --smoke runs a test without figures")
    torch.set_num_threads(1)
    take_device(options.device)
    table = Table(
        asked.out,
        [
            "# Steps on a GPU",
            "",
            f"{hardware(options.device)}; torch {torch.__version__}. Made by `python benchmarks/gpu.py`.",
            "",
        ],
    )
    for shape, rows, length in () if asked.part == "cells" else options.shapes:
        table.attempt(f"{shape}, {rows} x {length}", functools.partial(step_table, shape, rows, length, options, table))
    if asked.part != "steps":
        table.attempt("cells per hour", functools.partial(worker_table, options, table))
    print(f"written: {asked.out}")
    if table.failed:
        sys.exit(f"{table.failed} measurement(s) failed; the rows say which")


if __name__ == "__main__":
    import gpu  # workers look their functions up in a module; they do not run this script again

    gpu.main()
