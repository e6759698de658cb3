"""The GPU benchmark runs to its end on a CPU, so that minutes on a GPU are not lost to a slip in it."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
HERE = os.environ | {"PYTHONPATH": str(ROOT)}


@pytest.mark.slow
def test_the_whole_command_runs_on_a_cpu(tmp_path: Path) -> None:
    out = tmp_path / "gpu.md"
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--device", "cpu", "--shape", "tiny"]
    command += ["--batch", "8", "--length", "32", "--rounds", "1", "--steps", "1", "--methods", "vanilla", "pats"]
    command += ["--cells", "2", "--cell-steps", "1", "--workers", "2", "--evaluated", "5", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, env=HERE, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    text = out.read_text(encoding="utf-8")
    assert "a smoke test: no figure here is of a GPU" in text
    assert "| pats |" in text
    for name in ("vanilla", "tdt", "pats"):
        assert f"| {name}, bf16 |" in text
    (columns,) = [line for line in text.splitlines() if line.startswith("| evaluation of 5 rows |")]
    assert columns.endswith("| rows per second | times fp32 |")
    assert re.search(r"^\| fp32 \| \d+ \| 1\.00 \|$", text, re.MULTILINE)
    assert re.search(r"^\| bf16 \| \d+ \| \d+\.\d\d \|$", text, re.MULTILINE)
    assert "| one process per cell, one at a time |" in text
    (trainer,) = [line for line in text.splitlines() if line.startswith("| the Trainer, one process per cell")]
    assert re.search(r"\| \d+ \| \d+\.\d\d \|$|needs accelerate", trainer)
    for name in ("vanilla", "pats", "pats, bf16"):
        (row,) = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
        assert float(row.rstrip("| ").rpartition("| ")[2]) > 0  # the share of a large product's speed
    assert "| 2 worker(s) |" in text


@pytest.mark.slow
def test_a_measurement_that_fails_costs_its_own_row_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    gpu = importlib.import_module("gpu")
    original = gpu.cost.measure

    def failing(name: str, *rest: Any) -> Any:
        if name == "vanilla":
            raise RuntimeError("CUDA error: a slip\nand its details")
        return original(name, *rest)

    monkeypatch.setattr(gpu.cost, "measure", failing)
    out = tmp_path / "gpu.md"
    options = ["--device", "cpu", "--shape", "tiny", "--batch", "2", "--length", "8", "--rounds", "1", "--steps", "1"]
    options += ["--methods", "vanilla", "nothing", "adamax", "--cells", "0", "--evaluated", "2", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["gpu.py", *options])
    with pytest.raises(SystemExit, match=r"2 measurement\(s\) failed"):
        gpu.main()
    text = out.read_text(encoding="utf-8")
    assert "| vanilla | not measured: RuntimeError: CUDA error: a slip |" in text
    assert "| nothing | not measured: KeyError: 'nothing' |" in text
    (adamax,) = [line for line in text.splitlines() if line.startswith("| adamax |")]
    assert int(adamax.split("|")[-3]) > 100  # operations of a step
    assert "| vanilla, bf16 |" in text
    assert "| evaluation of 2 rows |" in text
    assert "a slip" in capsys.readouterr().err


def test_products_of_a_step_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Forward once, backward twice (to the input and to the weight), of the linear layers and of attention."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    gpu = importlib.import_module("gpu")
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 64}
    monkeypatch.setitem(gpu.cost.SHAPES, "one layer", shape)
    bench = gpu.cost.Bench(gpu.cost.checkpoint("one layer", tmp_path), gpu.cost.tokens(16, 8), 2, "cpu")
    layer = 2 * 16 * (4 * 32 * 32 + 2 * 32 * 64)  # 16 tokens
    attention = 2 * 2 * (2 * 8 * 8 * 32)  # two texts; scores and the mean of values
    head = 2 * 2 * (32 * 32 + 32 * 2)  # the pooler and two classes
    products = gpu.cost.counted_step(bench.loop(gpu.plain(bench))).flops
    assert products == pytest.approx(3 * (layer + attention + head), rel=0.02)


class _Loop:
    """As much of a loop as is timed; notes whether the process multiplied in TF32 at each of its steps."""

    def __init__(self) -> None:
        self.tf32: list[bool] = []
        self.trainee = SimpleNamespace(device=torch.device("cpu"))
        self.stream = SimpleNamespace(steps=lambda epoch, accumulation: [[[0]]])
        self.steps_per_epoch = 1
        self.done = SimpleNamespace(step=0, batches=1, forward_passes=1.0, backward_passes=1.0)

    def _step(self, rows: list[list[int]]) -> None:
        self.tf32.append(torch.backends.cuda.matmul.allow_tf32)

    def _flush(self) -> None:
        pass


def test_only_the_arm_multiplies_in_tf32_and_not_what_it_is_compared_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    cost = importlib.import_module("cost")
    arm, vanilla = _Loop(), _Loop()
    cost.multiply_in_tf32(True)  # as preparing the arm leaves it
    cost.measure("vanilla, tf32", cost.InTf32(arm), vanilla, rounds=2, steps=3)
    assert arm.tf32 == [True] * 7
    assert vanilla.tf32 == [False] * 6
    assert not torch.backends.cudnn.allow_tf32


def test_the_peak_of_an_arm_is_without_what_was_there_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's counts of a GPU are stand-ins."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    cost = importlib.import_module("cost")
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 700)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 1000)
    device = torch.device("cuda")
    assert cost.peak_above(cost.memory_held(device), device) == 300
    assert cost.memory_held(torch.device("cpu")) == 0
    assert cost.peak_above(0, torch.device("cpu")) is None
