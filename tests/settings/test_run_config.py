"""The file with which ``regft run --config`` reproduces a run, after everything that it came from was edited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from regft_core.errors import ConfigError
from regft_core.grid.data import prepare
from regft_core.grid.keys import cell_keys
from regft_core.runs.project import open_project
from regft_core.settings.grid import Cell
from regft_core.settings.project import Project
from regft_core.settings.run_config import lay_out_config, run_config
from tests.errors import raises_code
from tests.small_project import TASK, build

#: A file's own, a layer over it, an arm without a file, controls of two kinds, phases with another task, a tuned one,
#: phases of others.
METHODS = [
    "vanilla",
    "weight_mixup",
    "hype_n",
    "hype_strong",
    "weight_mixup_soup",
    "weight_mixup_matched_compute",
    "chain",
    "pupil",
]
SETTINGS: dict[str, Any] = {
    "methods": METHODS,
    "method_settings": {
        "weight_mixup": {"phases": {"search": {"repeat": {"times": 3}, "data": {"split": 0.5}}}},
        "hype_strong": {"base": "hype_n", "regularisers": {"hype": {"scale": 0.1}}},
    },
    "task_settings": {"reviews": {"training": {"epochs": 2}, "methods": {"hype_n": {"training": {"epochs": 3}}}}},
    "tuning": {"selection": "split", "values": {}, "methods": {"chain": {"training.learning_rate": [1e-3, 1e-4]}}},
}
CHAIN = {"phases": {"far": {"data": {"task": "other"}, "training": {"max_steps": 2}}, "finetune": {}}}
PUPIL = {
    "phases": {"one": {"method": "hype_strong"}, "two": {"method": "weight_mixup_soup"}, "finetune": {"start": "one"}}
}


def keys(project: Project, cell: Cell) -> Any:
    return cell_keys(project.snapshot(), cell)["finetune"]["runs"]


def test_a_config_reproduces_the_keys_of_its_run(tmp_path: Path) -> None:
    root = build(tmp_path / "project", tasks={"reviews": TASK, "other": TASK}, **SETTINGS)
    (root / "pipelines/methods/chain.yaml").write_text(yaml.dump(CHAIN))
    (root / "pipelines/methods/pupil.yaml").write_text(yaml.dump(PUPIL, sort_keys=False))
    project = open_project(root)
    prepare(project)
    cells = [Cell(method, "reviews", 16) for method in METHODS]
    before = {cell.method: keys(project, cell) for cell in cells}
    configs = {cell.method: run_config(project, cell) for cell in cells}
    assert len({str(one) for one in before.values()}) == len(METHODS)

    params = {"learning_rate": 0.1, "epochs": 9, "batch_size": 4}
    (root / "params.yaml").write_text(
        yaml.dump(yaml.safe_load((root / "params.yaml").read_text()) | {"training": params})
    )
    (root / "pipelines/methods/chain.yaml").write_text(yaml.dump({"regularisers": {}}))
    (root / "pipelines/tasks/reviews.yaml").write_text(yaml.dump(TASK | {"training": {"max_steps": 7}}))
    for method, text in configs.items():
        file = tmp_path / "config.yaml"
        file.write_text(text)
        folder = lay_out_config(root, file)
        again = open_project(folder)
        prepare(again)
        assert keys(again, Cell(method, "reviews", 16)) == before[method], method
    assert folder.parent == root / "presets"


@pytest.mark.parametrize(
    ("text", "code"),
    [("method: vanilla", "unknown-key"), ("{params: {}, methods: {../up: {}}, tasks: {}}", "bad-name")],
)
def test_another_file_is_refused(tmp_path: Path, text: str, code: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with raises_code(ConfigError, code, "config.yaml:1: "):
        lay_out_config(tmp_path, tmp_path / "config.yaml")
