"""Only the grid is read, and whatever is missing or contradictory names the stage to run."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regft_core.errors import DataError
from regft_core.report.read_grid import Inputs, read_grid
from regft_core.schema.params import ReportConfig
from regft_core.settings.project import Cell
from tests.errors import raises_code
from tests.report.synthetic import edited

CELLS = [Cell("vanilla", "sst2", 300), Cell("weight_mixup", "sst2", 300)]
PLACE = "work/evaluate/vanilla/sst2/300"


def read(root: Path, seeds: Any = range(6)) -> Any:
    methods: Any = {"vanilla": SimpleNamespace(earlier=()), "weight_mixup": SimpleNamespace(earlier=("search",))}
    return read_grid(Inputs(root, CELLS, list(seeds), ReportConfig(), methods))


@pytest.fixture
def copy(built: Any, tmp_path: Path) -> Path:
    shutil.copytree(built.root / "work", tmp_path / "work")
    return tmp_path


def test_stale_files_are_never_opened(copy: Path) -> None:
    for folder in ("evaluate/old/sst2/300", "evaluate/vanilla/sst2/100", "finetune/old/sst2/300", "datasets/old"):
        (copy / "work" / folder).mkdir(parents=True)
        (copy / "work" / folder / "result.json").write_text("{broken")
    (copy / PLACE / "predictions" / "seed-4" / "dev.jsonl").write_text("broken")
    shutil.rmtree(copy / "work" / "evaluate" / "r_drop")
    (block,) = read(copy, [0, 1])
    assert set(block.cells) == {"vanilla", "weight_mixup"}


def without_run(result: Any) -> None:
    del result["runs"][4]


def without_seed(manifest: Any) -> None:
    del manifest["seeds"]["5"]


@pytest.mark.parametrize(
    ("path", "edit", "code", "stage"),
    [
        ("work/datasets/sst2/task.json", None, "damaged-json", "subsample"),
        ("work/finetune/vanilla/sst2/300/manifest.json", None, "damaged-json", "finetune"),
        ("work/search/weight_mixup/sst2/300/manifest.json", None, "damaged-json", "search"),
        (f"{PLACE}/predictions/seed-2/contrast.jsonl", None, "damaged-output", "evaluate"),
        (f"{PLACE}/result.json", without_run, "outdated-evaluation", "evaluate"),
        ("work/subsamples/sst2/300/manifest.json", without_seed, "rows-missing", "subsample"),
        (f"{PLACE}/result.json", lambda v: v["runs"][2].update(key="f" * 64), "outdated-evaluation", "evaluate"),
    ],
)
def test_what_contradicts_names_the_stage(copy: Path, path: str, edit: Any, code: str, stage: str) -> None:
    file = copy / path
    if edit is None:
        file.write_text("{not json\n")
    else:
        with edited(file) as value:
            edit(value)
    with raises_code(DataError, code, f"(stage {stage})", file.name):
        read(copy)


def test_runs_judged_on_other_examples_are_refused(copy: Path) -> None:
    with edited(copy / PLACE / "predictions" / "seed-3" / "dev.jsonl") as rows:
        rows[0]["label"] = 1 - rows[0]["label"]
    with raises_code(DataError, "rows-differ"):
        read(copy)


def test_positive_label_goes_through_the_label_map(copy: Path) -> None:
    renamed = {"labels": ["good", "bad"], "label_map": {"positive": "good", "negative": "bad"}}
    with edited(copy / "work" / "datasets" / "sst2" / "task.json") as described:
        described["sets"]["contrast"] |= renamed
    (block,) = read(copy)
    assert block.positive == {"dev": 1, "contrast": 0}
