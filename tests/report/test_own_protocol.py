"""Warnings name what weakens a conclusion."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from regft_core.report import write_report


@pytest.fixture
def changed(built: Any, tmp_path: Path) -> Any:
    """Change a JSON file of a copy and return the new report's warnings."""
    shutil.copytree(built.root / "work", tmp_path / "work")
    cells = [cell for cell in built.cells if cell.method in ("vanilla", "r_drop") and cell.task == "sst2"]

    def change(path: str, edit: Any) -> str:
        file = tmp_path / "work" / path
        value = json.loads(file.read_text())
        edit(value)
        file.write_text(json.dumps(value))
        return "\n".join(write_report(tmp_path, cells, built.seeds, built.config, built.methods).warnings)

    return change


def test_ordinary_grid_warns_of_degraded_runs_only(built: Any) -> None:
    assert list(built.report.warnings) == [
        "r_drop on sst2-300 ran degraded: bf16 <keeps> nothing",
        "r_drop on sick-300 ran degraded: bf16 <keeps> nothing",
    ]


def test_texts_shared_with_training(changed: Any) -> None:
    said = changed("datasets/sst2/task.json", lambda v: v["duplicates"].update(dev=7, train_within=2))
    assert "7 rows of dev have the text of a training row" in said
    assert "2 rows of the training split repeat" in said


def test_one_repeated_row_is_said_in_the_singular(changed: Any) -> None:
    said = changed("datasets/sst2/task.json", lambda v: v["duplicates"].update(train_within=1))
    assert "1 row of the training split repeats the text of another." in said


def test_dropped_rows_are_said_in_words(changed: Any, tmp_path: Path) -> None:
    changed("datasets/sst2/task.json", lambda v: v.update(dropped={"train": {"label -1": 3, "without text": 2}}))
    page = (tmp_path / "reports" / "report.html").read_text(encoding="utf-8")
    assert "<dt>Dropped</dt><dd>train label -1: 3, without text: 2</dd>" in page


def test_label_absent_from_a_draw(changed: Any) -> None:
    said = changed(
        "subsamples/sst2/300/manifest.json",
        lambda v: v["seeds"]["4"].update(label_counts={"negative": 300, "positive": 0}),
    )
    assert "sst2-300, seed 4: the training rows have no example of positive" in said


def test_mixed_versions(changed: Any) -> None:
    said = changed("finetune/r_drop/sst2/300/manifest.json", lambda v: v["versions"].update(torch="2.12.0"))
    assert "different versions of torch: 2.12.0 and 2.13.0" in said


def test_warnings_of_the_evaluation(changed: Any) -> None:
    def edit(value: Any) -> None:
        for run in value["runs"][:2]:
            run["sets"]["dev"]["warning"] = "labels look swapped"

    said = changed("evaluate/r_drop/sst2/300/result.json", edit)
    assert "r_drop on sst2-300, set dev, seeds 0, 1: labels look swapped" in said


def test_seeds_that_say_the_same_but_for_numbers_are_one_warning(changed: Any) -> None:
    def edit(value: Any) -> None:
        for run in value["runs"][:3]:
            run["sets"]["dev"]["warning"] = f"Pearson -0.{run['seed']}1 is negative"

    said = changed("evaluate/r_drop/sst2/300/result.json", edit)
    assert "r_drop on sst2-300, set dev, seeds 0, 1, 2; seed 0: Pearson -0.01 is negative" in said
    assert said.count("is negative") == 1


TABLE = """\
trained_on:
  ours:
    encoders: [MODEL]
    source: its card
    tasks: {sst2: Sentiment 2, imdb_cad: Films}
"""


def test_what_the_encoder_was_trained_on(changed: Any, built: Any, tmp_path: Path) -> None:
    manifest = json.loads((built.root / "work/finetune/vanilla/sst2/300/manifest.json").read_text())
    described = json.loads((built.root / "work/datasets/sst2/task.json").read_text())
    ood = next(name for name in described["sets"] if name != "dev")
    table = tmp_path / "pipelines" / "contamination.yaml"
    table.parent.mkdir()
    table.write_text(TABLE.replace("MODEL", manifest["model"]["name"]).replace("imdb_cad", ood))
    path = "finetune/r_drop/sst2/300/manifest.json"
    said = changed(path, lambda v: v)
    name = manifest["model"]["name"]
    assert f"{name} was trained on Sentiment 2 (its card): scores on sst2 are not those of few labels alone." in said
    assert f"for it the set {ood}, which judges sst2, is not out of distribution." in said
    # Arms that read no encoder are not concerned.
    changed("finetune/vanilla/sst2/300/manifest.json", lambda v: v.update(reads_encoder=False))
    assert "was trained on" not in changed(path, lambda v: v.update(reads_encoder=False))
