"""A table's rows are matched with runs by what their encoder is, not by how it is spelt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.report.synthetic import Arm
from tests.report.test_published import beside, cell, ran

LARGE, TUNED = "FacebookAI/roberta-large", "FacebookAI/roberta-large-mnli"
TABLE: dict[str, Any] = {
    "paper": "A paper",
    "table": "1",
    "what": "two tasks",
    "statistic": "mean",
    "columns": {"sst2": {"metric": "accuracy"}, "rte": {"metric": "accuracy"}},
    "encoders": {"R": {"model": LARGE, "instead": {"rte": TUNED}, "source": "the paper"}},
    "rows": [
        {"method": name, "arm": arm, "encoder": "R", "size": 300, "scores": {"sst2": 70.0, "rte": 60.0}}
        for name, arm in (("Plain", "vanilla"), ("Good", "good"))
    ],
}
CONFIG = {"_name_or_path": "roberta-large"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # ``first`` has the regularisers of plain fine-tuning.
    arms = {"vanilla": Arm(0.72), "good": Arm(0.8), "first": Arm(0.76, control_for="good")}
    return ran(tmp_path_factory.mktemp("encoders"), arms, seeds=3)


def report(root: Path, model: dict[str, Any], phases: dict[str, Any] | None = None, **encoder: Any) -> Any:
    """A report of runs whose manifests say ``model`` and ``encoder``; those of ``first`` have ``phases``."""
    for path in (root / "work" / "finetune").rglob("manifest.json"):
        manifest = json.loads(path.read_text())
        manifest["settings"]["model"] |= {"sha256": "a" * 64, "revision": None, **model}
        manifest["encoder"] = encoder
        if "first" in path.parts:
            changed, last = (
                phases or {"finetune": {}},
                manifest["settings"]["phases"]["finetune"] | {"start": "checkpoint"},
            )
            manifest["phases"] = list(changed)
            manifest["settings"]["phases"] = {name: {**last, **phase} for name, phase in changed.items()}
        path.write_text(json.dumps(manifest))
    return beside(root, TABLE, ["vanilla", "good", *(["first"] if phases else [])], 3)


def test_a_folder_that_is_the_encoder(root: Path) -> None:
    found = report(root, {"name": "/models/r"}, **CONFIG)
    assert cell(found, "Good", "sst2").difference is not None
    # RTE starts from another checkpoint in the paper.
    said = ("another encoder: roberta-large here, roberta-large, tuned on mnli in the paper",)
    assert cell(found, "Good", "rte").otherwise == said


def test_a_checkpoint_of_another_task_fits_the_columns_that_start_from_it(root: Path) -> None:
    found = report(root, {"name": TUNED, "revision": "2a8f12d"})
    assert cell(found, "Good", "rte").difference is not None
    assert cell(found, "Good", "sst2").difference is None
    assert "roberta-large, tuned on mnli here, roberta-large in the paper" in cell(found, "Good", "sst2").otherwise[0]


def test_a_phase_on_the_other_task_is_such_a_checkpoint(root: Path) -> None:
    phases = {"intermediate": {"data": {"task": "mnli", "labels": True}}, "finetune": {"start": "intermediate"}}
    found = report(root, {"name": LARGE, "revision": "722cf37"}, phases)
    rte = next(block for block in found.blocks if block.task == "rte")
    own = cell(found, "Plain", "rte")
    assert own.difference is not None
    assert own.ours.value == pytest.approx(100 * rte.row("first").scores["dev"]["accuracy"].estimate.mean)
    # Where the paper starts from the encoder itself, so does plain fine-tuning here.
    sst2 = next(block for block in found.blocks if block.task == "sst2")
    plain = sst2.row("vanilla").scores["dev"]["accuracy"].estimate
    assert cell(found, "Plain", "sst2").ours.value == pytest.approx(100 * plain.mean)
    # No method is ``good`` after that phase.
    assert cell(found, "Good", "rte").otherwise
