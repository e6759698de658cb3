"""ARCHITECTURE.md tells the way of one run's data; the files that it names are those that the code names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
STAGES = ["plan", "search", "finetune", "evaluate", "report"]


def pipeline() -> dict[str, dict[str, object]]:
    return dict(yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"])


def test_the_stages_are_told_in_the_order_in_which_dvc_runs_them() -> None:
    stages = pipeline()
    assert set(stages) == set(STAGES)
    told = [name for name in re.findall(r"Stage `([a-z]+)", TEXT) if name in STAGES]
    assert told == STAGES
    outputs = {name: [_path(out) for out in [*s.get("outs", []), *s.get("metrics", [])]] for name, s in stages.items()}
    for index, name in enumerate(STAGES):
        for dependency in stages[name].get("deps", []):
            folder = "/".join(_path(dependency).split("/")[:2])
            makers = [maker for maker, outs in outputs.items() if any(out.startswith(folder) for out in outs)]
            assert makers, f"nothing makes {dependency} of {name}"
            assert all(STAGES.index(maker) < index for maker in makers)


def _path(entry: object) -> str:
    return str(next(iter(entry)) if isinstance(entry, dict) else entry)


@pytest.mark.parametrize("folder", sorted(set(re.findall(r"`?(work/[a-z]+)", TEXT))))
def test_every_folder_is_one_that_a_stage_writes(folder: str) -> None:
    outs = [_path(out) for s in pipeline().values() for out in [*s.get("outs", []), *s.get("metrics", [])]]
    assert any(out.startswith(folder) for out in outs)


@pytest.mark.parametrize("file", sorted(set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", TEXT))))
def test_every_module_is_there(file: str) -> None:
    assert (ROOT / file).is_file() or (ROOT / "regft_core" / file).is_file()


def test_the_table_of_parts_is_that_of_the_test() -> None:
    source = (ROOT / "tests" / "structure" / "test_imports.py").read_text(encoding="utf-8")
    layers = re.search(r"^LAYERS.*?^\)", source, re.DOTALL | re.MULTILINE)
    assert layers is not None
    kept = [re.findall(r'"([a-z_]+)"', line) for line in layers[0].splitlines() if '"' in line]
    told = [re.findall(r"`([a-z_]+)`", row.split("|")[2]) for row in TEXT.splitlines() if re.match(r"\| \d+ \|", row)]
    assert told == kept
