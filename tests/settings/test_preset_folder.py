"""A preset's folder: what is in it, what it shares with the project, what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from regft_core.errors import ConfigError
from regft_core.settings.preset import lay_out, preset_text
from tests.settings.conftest import PARAMS, Build

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


def test_values_of_the_command_line(root: Path) -> None:
    changes = ["grid.seeds=[3, 4]", "model.name=minilm", "training.learning_rate=1e-4", "report.confidence=0.9"]
    params = yaml.safe_load(preset_text(root, "table_one", changes))
    assert params["grid"]["seeds"] == [3, 4]
    assert params["grid"]["tasks"] == ["opinions"]
    assert params["model"] == {"name": "minilm"}
    assert params["training"] == {"epochs": 7, "learning_rate": 1e-4}
    assert params["report"] == {"confidence": 0.9}


@pytest.mark.parametrize("reverse", [False, True])
def test_another_encoder_takes_the_old_revision_away(root: Path, reverse: bool) -> None:
    pinned = PRESET.replace("name: models/own", f"name: someone/encoder, revision: {'a' * 40}")
    (root / "pipelines" / "presets" / "pinned.yaml").write_text(pinned)
    assert yaml.safe_load(preset_text(root, "pinned"))["model"]["revision"] == "a" * 40
    assert yaml.safe_load(preset_text(root, "pinned", ["model.name=minilm"]))["model"] == {"name": "minilm"}
    both = ["model.name=someone/other", f"model.revision={'b' * 40}"]
    model = yaml.safe_load(preset_text(root, "pinned", both[::-1] if reverse else both))["model"]
    assert model == {"name": "someone/other", "revision": "b" * 40}


@pytest.mark.parametrize(
    ("name", "change", "message", "hint"),
    [
        ("table_on", "", "unknown preset 'table_on'", "table_one"),
        ("table_one", "grid.seeds", "not KEY=VALUE", "--set"),
        ("table_one", "grid.seeds=[1", "not YAML", ""),
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
