"""Only the grid is read, and whatever is missing or contradictory names the stage to run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regft_core.errors import DataError
from regft_core.report.read_grid import Inputs, read_grid
from regft_core.schema.report import ReportConfig
from regft_core.settings.grid import Cell
from tests.errors import raises_code

CELLS = [Cell("vanilla", "sst2", 300), Cell("weight_mixup", "sst2", 300)]
PLACE = "work/evaluate/vanilla/sst2/300"


def read(root: Path, seeds: Any = range(6)) -> Any:
    methods: Any = {"vanilla": SimpleNamespace(earlier=()), "weight_mixup": SimpleNamespace(earlier=("search",))}
    return read_grid(Inputs(root, CELLS, list(seeds), ReportConfig(), methods))


@pytest.fixture
def copy(built: Any, tmp_path: Path) -> Path:
    shutil.copytree(built.root / "work", tmp_path / "work")
    return tmp_path


def test_reads_what_the_grid_names(copy: Path) -> None:
    (block,) = read(copy, [5, 0])
    assert list(block.cells) == ["vanilla", "weight_mixup"]
    assert [run.seed for run in block.cells["vanilla"].runs] == [5, 0]
    assert {p.seed for p in block.cells["vanilla"].curves} == {0, 5}
    assert {p.phase for p in block.cells["weight_mixup"].curves} == {"finetune", "search-0"}
    assert block.gold["dev"].shape == (300,)
    assert block.positive == {"dev": 1, "contrast": 1}


def test_stale_files_are_never_opened(copy: Path) -> None:
    for folder in ("evaluate/old/sst2/300", "evaluate/vanilla/sst2/100", "finetune/old/sst2/300", "datasets/old"):
        (copy / "work" / folder).mkdir(parents=True)
        (copy / "work" / folder / "result.json").write_text("{broken")
    (copy / PLACE / "predictions" / "seed-4" / "dev.jsonl").write_text("broken")
    shutil.rmtree(copy / "work" / "evaluate" / "r_drop")
    (block,) = read(copy, [0, 1])
    assert set(block.cells) == {"vanilla", "weight_mixup"}


@pytest.mark.parametrize(
    ("path", "stage"),
    [
        ("work/datasets/sst2/task.json", "subsample"),
        ("work/subsamples/sst2/300/manifest.json", "subsample"),
        ("work/evaluate/vanilla/sst2/300/result.json", "evaluate"),
        ("work/finetune/vanilla/sst2/300/manifest.json", "finetune"),
        ("work/search/weight_mixup/sst2/300/manifest.json", "search"),
        ("work/evaluate/vanilla/sst2/300/predictions/seed-2/contrast.jsonl", "evaluate"),
    ],
)
def test_missing_or_broken_file_names_the_stage(copy: Path, path: str, stage: str) -> None:
    (copy / path).unlink() if stage == "evaluate" else (copy / path).write_text("{not json\n")
    with pytest.raises(DataError) as caught:
        read(copy)
    assert caught.value.code in ("file-missing", "damaged-json", "damaged-output")
    assert f"(stage {stage})" in str(caught.value)
    assert Path(path).name in str(caught.value)


def test_seed_that_was_not_run(copy: Path) -> None:
    path = copy / PLACE / "result.json"
    result = json.loads(path.read_text())
    del result["runs"][4]
    path.write_text(json.dumps(result))
    with raises_code(DataError, "run-missing", "[4]", "(stage evaluate)"):
        read(copy)


def test_seed_that_was_not_drawn(copy: Path) -> None:
    path = copy / "work/subsamples/sst2/300/manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["seeds"]["5"]
    path.write_text(json.dumps(manifest))
    with raises_code(DataError, "rows-missing", "[5]", "sst2"):
        read(copy)
    (block,) = read(copy, [0])
    assert list(block.subsample.seeds) == ["0"]
    assert [run.seed for run in block.cells["vanilla"].finetune.runs] == [0]


def test_evaluation_of_other_runs_is_refused(copy: Path) -> None:
    path = copy / PLACE / "result.json"
    result = json.loads(path.read_text())
    result["runs"][2]["key"] = "f" * 64
    path.write_text(json.dumps(result))
    with raises_code(DataError, "outdated-evaluation", "[2]"):
        read(copy)


def test_runs_judged_on_other_examples_are_refused(copy: Path) -> None:
    path = copy / PLACE / "predictions" / "seed-3" / "dev.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[0]["label"] = 1 - rows[0]["label"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with raises_code(DataError, "rows-differ"):
        read(copy)


def test_positive_label_goes_through_the_label_map(copy: Path) -> None:
    path = copy / "work" / "datasets" / "sst2" / "task.json"
    described = json.loads(path.read_text())
    described["sets"]["contrast"] |= {"labels": ["good", "bad"], "label_map": {"positive": "good", "negative": "bad"}}
    path.write_text(json.dumps(described))
    (block,) = read(copy)
    assert block.positive == {"dev": 1, "contrast": 0}
