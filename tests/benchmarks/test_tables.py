from __future__ import annotations

import ast
import hashlib
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.documents.test_typed import ROOT, blocks

BENCHMARKS = ROOT / "benchmarks"
PAGES = [ROOT / "README.md", *sorted(BENCHMARKS.glob("*.md"))]
#: Pages that a command writes whole, and one whose every row is a test of tests/official.
WRITTEN = {"gpu.md", "official_code.md"}
#: Sections whose tables are counted by a command that needs no stored file.
COUNTED = {"The house"}


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("table")


def test_tables_are_those_of_the_stored_results(table: Any) -> None:
    for page in table.PAGES:
        text = page.read_text(encoding="utf-8")
        assert len(table.MARK.findall(text)) == text.count("<!-- end -->") > 0
        assert table.filled(text) == text, f"python benchmarks/table.py write: {page.name}"


def test_a_stored_mean_is_that_of_its_seeds(table: Any) -> None:
    for path in table.RESULTS.glob("*.json"):
        for task in json.loads(path.read_text(encoding="utf-8")).get("tasks", {}).values():
            for found in task["methods"].values():
                seeds = list(found["seeds"].values())
                assert found["score"]["mean"] == pytest.approx(sum(seeds) / len(seeds), abs=1e-9)


def test_no_table_of_the_benchmarks_is_written_by_hand(table: Any) -> None:
    for page in PAGES[1:]:
        section, text = "", re.sub(r"<!-- \w.*?<!-- end -->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for line in text.splitlines():
            section = line.removeprefix("## ") if line.startswith("## ") else section
            assert not line.startswith("|") or page.name in WRITTEN or section in COUNTED, f"{page.name}: {line}"


def options(script: Path) -> set[str]:
    """The options that a script's parser knows."""
    calls = [node for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    added = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"]
    return {arg.value for call in added for arg in call.args if isinstance(arg, ast.Constant)}


def test_a_command_of_the_benchmarks_can_be_typed() -> None:
    seen = 0
    for page in PAGES:
        for _, block in blocks(page.relative_to(ROOT).as_posix(), "sh"):
            for script, rest in re.findall(r"python (?:BENCHMARKS|benchmarks)/(\w+\.py)([^\n&|)>]*)", block):
                words = [word for word in shlex.split(rest, comments=True) if word.startswith("--")]
                assert set(words) <= options(BENCHMARKS / script), f"{page.name}: {script}{rest}"
                seen += 1
    assert seen > 5


def test_pictures_show_the_stored_scores() -> None:
    """They were taken, all by docs/pictures.py, from the job whose scores are stored."""
    record = json.loads((ROOT / "docs" / "pictures.json").read_text(encoding="utf-8"))

    def digest(path: Path) -> str:
        return hashlib.sha256(path.read_bytes()).hexdigest()

    assert record["scores"] == digest(BENCHMARKS / "results" / "main_job.json")
    assert record["pictures"] == {path.name: digest(path) for path in (ROOT / "docs").glob("*.png")}


# ----------------------------------------------------------------------------------- the GPU benchmark


HERE = os.environ | {"PYTHONPATH": str(ROOT)}


@pytest.mark.slow
def test_the_whole_command_runs_on_a_cpu(tmp_path: Path) -> None:
    out = tmp_path / "gpu.md"
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--smoke", "--rounds", "1", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, env=HERE, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    text = out.read_text(encoding="utf-8")
    assert "a smoke test: no figure here is of a GPU" in text
    (columns,) = [line for line in text.splitlines() if line.startswith("| evaluation of 5 rows |")]
    assert columns.endswith("| rows per second | times fp32 |")
    assert re.search(r"^\| fp32 \| \d+ \| 1\.00 \|$", text, re.MULTILINE)
    assert re.search(r"^\| bf16 \| \d+ \| \d+\.\d\d \|$", text, re.MULTILINE)
    for name in ("vanilla", "pats", "pats, bf16"):
        (row,) = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
        assert float(row.rstrip("| ").rpartition("| ")[2]) > 0  # the share of a large product's speed
    assert "| 2 worker(s) |" in text


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
