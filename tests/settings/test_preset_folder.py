"""A preset's folder; what the project ships is valid; the file that reproduces a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from regft_core import __version__
from regft_core.errors import ConfigError
from regft_core.grid.cell_keys import cell_keys
from regft_core.grid.data import prepare
from regft_core.runs.opened_project import open_project
from regft_core.settings.preset import lay_out
from regft_core.settings.project import Cell, Project
from regft_core.settings.run_config import lay_out_config, run_config
from tests.errors import raises_code
from tests.promises.kit import change, write_method
from tests.settings.conftest import PARAMS, Build
from tests.small_project import TASK, build

PRESET = PARAMS.replace("epochs: 2", "epochs: 7").replace("name: minilm", "name: models/own")


@pytest.fixture
def root(build: Build) -> Path:
    own = PARAMS + "execution: {workers: 3}\nstore: {path: runs, budget_gb: 5}\n"
    found = build({"params.yaml": own, "pipelines/presets/table_one.yaml": PRESET})
    (found / "models" / "own").mkdir(parents=True)
    return found


def test_the_folder_shares_all_but_params_and_results(root: Path) -> None:
    before = (root / "params.yaml").read_bytes()
    folder = lay_out(root, "table_one")
    assert folder == root / "presets" / "table_one"
    params = yaml.safe_load((folder / "params.yaml").read_text())
    assert params["training"]["epochs"] == 7
    assert params["execution"] == {"workers": 3}  # of this machine, where the preset says nothing
    assert params["store"] == {"path": "../../runs", "budget_gb": 5}
    assert params["model"]["name"] == "../../models/own"
    assert (folder / "pipelines" / "tasks").resolve() == root / "pipelines" / "tasks"
    assert (folder / "data" / "opinions" / "train.csv").is_file()
    assert (folder / "dvc.yaml").read_text() == (root / "dvc.yaml").read_text()
    assert not (folder / "dvc.yaml").is_symlink()
    assert (root / "params.yaml").read_bytes() == before


def test_a_second_call_touches_nothing_that_stayed_the_same(root: Path) -> None:
    folder = lay_out(root, "table_one")
    os.utime(folder / "params.yaml", (1, 1))
    lay_out(root, "table_one")
    assert (folder / "params.yaml").stat().st_mtime == 1
    lay_out(root, "table_one", ["training.epochs=9"])
    assert yaml.safe_load((folder / "params.yaml").read_text())["training"]["epochs"] == 9


def params_of(root: Path, name: str, changes: list[str] | None = None) -> Any:
    return yaml.safe_load((lay_out(root, name, changes or ()) / "params.yaml").read_text())


def test_values_of_the_command_line(root: Path) -> None:
    changes = ["grid.seeds=[3, 4]", "model.name=minilm", "training.learning_rate=1e-4", "report.confidence=0.9"]
    params = params_of(root, "table_one", changes)
    assert params["grid"]["seeds"] == [3, 4]
    assert params["grid"]["tasks"] == ["opinions"]
    assert params["model"] == {"name": "minilm"}
    assert params["training"] == {"epochs": 7, "learning_rate": 1e-4}
    assert params["report"] == {"confidence": 0.9}


@pytest.mark.parametrize("reverse", [False, True])
def test_another_encoder_takes_the_old_revision_away(root: Path, reverse: bool) -> None:
    pinned = PRESET.replace("name: models/own", f"name: someone/encoder, revision: {'a' * 40}")
    (root / "pipelines" / "presets" / "pinned.yaml").write_text(pinned)
    assert params_of(root, "pinned")["model"]["revision"] == "a" * 40
    assert params_of(root, "pinned", ["model.name=minilm"])["model"] == {"name": "minilm"}
    both = ["model.name=someone/other", f"model.revision={'b' * 40}"]
    model = params_of(root, "pinned", both[::-1] if reverse else both)["model"]
    assert model == {"name": "someone/other", "revision": "b" * 40}


@pytest.mark.parametrize(
    ("name", "change", "message", "hint"),
    [
        ("table_on", "", "unknown preset 'table_on'", "table_one"),
        ("table_one", "grid.seeds", "not KEY=VALUE", "--set"),
        ("table_one", "grid.seeds=[1", "not valid YAML", ""),
        ("table_one", "methods.a=1", "'methods' is not a mapping", ""),
        ("table_one", ".=1", "not KEY=VALUE", ""),
    ],
)
def test_what_is_refused(root: Path, name: str, change: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        lay_out(root, name, [change] if change else [])
    assert message in str(caught.value)
    assert hint in str(caught.value)
    assert not (root / "presets").exists()


# ------------------------------------------------------------------------------------- what is shipped


ROOT = Path(__file__).resolve().parents[2]


#: For tasks that ask how alike two texts are; refused on others.
FOR_VALUES_ALONE = {"zero_shot_similarity"}
FOR_PAIRS = {"pair_cosine"}
#: For tasks whose rows have several labels, of which none is shipped.
FOR_SEVERAL_LABELS = {"label_thresholds"}


def listing(methods: list[str], tasks: list[str]) -> Project:
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["methods"], params["grid"]["tasks"] = methods, tasks
    if params["report"]["reference"] not in methods:
        params["report"]["reference"] = methods[0]
    return open_project(ROOT, params_text=yaml.safe_dump(params, sort_keys=False))


def test_methods_for_some_tasks_alone_can_be_listed() -> None:
    assert listing(["vanilla", *FOR_PAIRS], ["cue_pair"])
    assert listing(["vanilla", "majority", *FOR_VALUES_ALONE], ["cue_regression"])


def test_every_shipped_method_can_be_listed() -> None:
    """All methods at once, on a task of each kind that needs no hub; refusals must be reasons, not crashes."""
    every = {path.stem for path in (ROOT / "pipelines" / "methods").glob("*.yaml")}
    project = listing(sorted(every - FOR_VALUES_ALONE - FOR_PAIRS - FOR_SEVERAL_LABELS), ["cue_sentence", "cue_pair"])
    assert len(project.methods) > 30


def test_the_repository_and_new_projects_are_written_for_this_version() -> None:
    for file in (ROOT / "params.yaml", ROOT / "regft_core" / "shipped" / "project" / "params.yaml.txt"):
        assert yaml.safe_load(file.read_text())["regft"] == __version__


# ----------------------------------------------------------------------------------- the file of a run


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
CHAIN = {"far": {"data": {"task": "other"}, "training": {"max_steps": 2}}, "finetune": {}}
PUPIL = {"one": {"method": "hype_strong"}, "two": {"method": "weight_mixup_soup"}, "finetune": {"start": "one"}}


def keys(project: Project, cell: Cell) -> Any:
    return cell_keys(project.snapshot(), cell)["finetune"]["runs"]


def test_a_config_reproduces_the_keys_of_its_run(tmp_path: Path) -> None:
    root = build(tmp_path / "project", tasks={"reviews": TASK, "other": TASK}, **SETTINGS)
    write_method(root, "chain", phases=CHAIN)
    write_method(root, "pupil", phases=PUPIL)
    project = open_project(root)
    prepare(project)
    cells = [Cell(method, "reviews", 16) for method in METHODS]
    before = {cell.method: keys(project, cell) for cell in cells}
    configs = {cell.method: run_config(project, cell) for cell in cells}
    assert len({str(one) for one in before.values()}) == len(METHODS)

    change(root, training={"learning_rate": 0.1, "epochs": 9, "batch_size": 4})
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
