"""Trackers are files: those of examples/ work in a project's own folder, with stand-ins for their services."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from regft_core.errors import ConfigError, RegftError
from regft_core.runs.opened_project import open_project
from tests.errors import raises_code
from tests.promises.kit import change
from tests.small_project import build
from tests.tracking.tree import HYPE, Tree, sync

EXAMPLES = Path(__file__).parents[2] / "examples" / "trackers"


class Logged:
    """Values that a writer of TensorBoard, or a run of W&B, is given."""

    made: ClassVar[list[Logged]] = []

    def __init__(self, folder: str = "", **options: Any) -> None:
        self.folder, self.options, self.points = folder, options, list[tuple[str, float, int]]()
        self.summary = dict[str, float]()
        if folder:
            Path(folder).mkdir(parents=True)
        Logged.made.append(self)

    def add_scalar(self, name: str, value: float, step: int = 0, walltime: float = 0.0) -> None:
        self.points.append((name, value, step))

    def log(self, values: dict[str, float], step: int) -> None:
        self.points += [(name, value, step) for name, value in values.items()]

    def __enter__(self) -> Logged:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_tracker_of_the_project_gets_every_run(tree: Tree, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    board, service = ModuleType("torch.utils.tensorboard"), ModuleType("wandb")
    monkeypatch.setattr(board, "SummaryWriter", Logged, raising=False)
    monkeypatch.setattr(service, "init", Logged, raising=False)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
    monkeypatch.setitem(sys.modules, "wandb", service)
    monkeypatch.setattr(Logged, "made", [])
    from regft_core.catalogue import TRACKERS

    tree.cell(HYPE, [0, 1])
    with TRACKERS.also(EXAMPLES):
        said = sync(tree.root, [HYPE], [0, 1], trackers=[name])
        assert "2 runs" in said
        assert len(Logged.made) == 2
        for run in Logged.made:
            assert any(point.startswith("curves/loss") for point, _, _ in run.points)
            assert [step for _, _, step in run.points] == sorted(step for _, _, step in run.points) or name != "wandb"
        if name == "tensorboard":
            assert "0 runs logged, 2 as before" in sync(tree.root, [HYPE], [0, 1], trackers=[name])
            assert len(Logged.made) == 2
        else:
            ids = [run.options["id"] for run in Logged.made]
            sync(tree.root, [HYPE], [0, 1], trackers=[name])
            assert [run.options["id"] for run in Logged.made] == ids * 2
            assert Logged.made[0].options["config"]["method"] == HYPE.method


def test_a_tracker_that_is_none_or_fails_is_said(tree: Tree, tmp_path: Path) -> None:
    from regft_core.catalogue import TRACKERS

    root = build(tmp_path / "own")
    (root / "trackers").mkdir()
    for name, code, shown in (("mlflwo", "invalid-value", "mlflow"), ("own", "bad-tracker", "own.py")):
        (root / "trackers" / "own.py").write_text("def logg(): pass\n")
        change(root, trackers=[name])
        with raises_code(ConfigError, code, shown):
            open_project(root)
    (root / "trackers" / "own.py").write_text("def log(root, read):\n    raise OSError('no way')\n")
    open_project(root)
    with raises_code(RegftError, "tracker-failed", "'own'", "no way"):
        sync(tree.root, [HYPE], [0, 1], trackers=["own"])
    shutil.rmtree(root / "trackers")
    TRACKERS.own = None
