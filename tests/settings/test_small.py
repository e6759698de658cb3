"""What is laid out beside a project: presets at small scale, and the sets that a preset lacks."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from regft_core.disk.reading import read_json
from regft_core.errors import ConfigError, DataError
from regft_core.grid.data import prepare
from regft_core.grid.missing_files import require_named_sets
from regft_core.runs.opened_project import open_project
from regft_core.schema.method import optimiser_steps
from regft_core.schema.training import EncoderConfig
from regft_core.settings import small
from regft_core.settings.grid import Cell
from regft_core.settings.run_config import lay_out_config, run_config
from regft_core.settings.small import lay_out_small
from tests.errors import raises_code
from tests.presets.miniature import ROWS, fetch_generated, project


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project(tmp_path_factory.mktemp("small"), "pats_table3", "hype_table18")


def test_the_grid_the_encoder_and_the_rows_are_cut_and_it_is_said(root: Path) -> None:
    changes = ["grid.tasks=[rte]", "report.averages={}", "ood=all"]
    folder = lay_out_small(root, "pats_table3", changes)
    found = open_project(folder)
    fetch_generated(root, found)
    assert folder == root / "presets" / "pats_table3.small"
    assert (found.params.grid.sizes, list(found.params.grid.seeds)) == ((small.ROWS,), small.SEEDS)
    assert found.params.model.name == small.ENCODER
    mark = found.params.small_scale.mark if found.params.small_scale else ""
    assert mark.startswith("Not the paper's experiment: preset pats_table3 at small scale. Encoder minilm in every")
    assert "2 seeds (the preset: 5 seeds)" in mark
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and not path.is_symlink()}
    lay_out_small(root, "pats_table3", changes)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    prepare(found)
    counts = read_json(folder / "work" / "datasets" / "rte" / "task.json")["counts"]
    assert {"train", "dev", "hans"} <= set(counts)
    assert set(counts.values()) == {small.ROWS}
    assert small.ROWS < ROWS


def test_changes_win_over_the_cuts_and_reproduce_a_run(root: Path, tmp_path: Path) -> None:
    changes = ["grid.seeds=[7]", "grid.tasks=[rte]", "ood=[hans]", "training.epochs=2", "report.averages={}"]
    changes += ["task_settings={}", "method_settings.pats.training.epochs=3"]
    found = open_project(lay_out_small(root, "pats_table3", changes))
    assert (found.params.grid.tasks, found.params.grid.seeds) == (("rte",), (7,))
    assert found.params.training.epochs == 2
    assert list(found.tasks["rte"].ood) == ["hans"]
    (tmp_path / "config.yaml").write_text(run_config(found, Cell("pats", "rte", small.ROWS)))
    again = open_project(lay_out_config(root, tmp_path / "config.yaml"))
    assert again.methods["pats"].training.epochs == found.methods["pats"].training.epochs == 3


@pytest.mark.parametrize("changes", [[], ["model.name=minilm"]])
def test_layers_are_those_of_the_encoder(root: Path, changes: list[str]) -> None:
    found = open_project(lay_out_small(root, "hype_table18", changes))
    layers = {
        name: dict(method.finetune.regularisers)["hype"] for name, method in found.methods.items() if "er_" in name
    }
    assert layers["hype_n_lower_6"].layers == (0, 1)  # type: ignore[attr-defined]
    assert layers["hype_n_higher_12"].layers == (3, 4, 5)  # type: ignore[attr-defined]
    config = yaml.safe_load(run_config(found, Cell("hype_n_lower_6", found.params.grid.tasks[0], small.ROWS)))
    assert config["methods"]["hype_n_lower_6"]["regularisers"]["hype"]["layers"] == [0, 1]
    assert config["params"]["small_scale"]["cut"], "what is scaled is not scaled again"


def test_an_encoder_that_is_not_on_this_disk_is_refused(root: Path) -> None:
    with raises_code(ConfigError, "model-missing", "FacebookAI/roberta-base"):
        lay_out_small(root, "hype_table18", ["model.name=FacebookAI/roberta-base", f"model.revision={'a' * 40}"])


def test_trials_are_two_and_windows_fit_into_the_smaller_length() -> None:
    tuning = {"values": {"a": [1, 2, 3], "b": [1, 2]}, "methods": {"m": [{"a": 1}, {"a": 2}, {"a": 3}]}}
    model = {"name": "x", "revision": "main", "pooling": "mean", "max_length": 256, "windows": 4, "stride": 100}
    cut = small.shrunk(
        {"model": model, "grid": {"sizes": [300, 500, 1000], "tasks": ["t"]}, "tuning": tuning}, 0.25, "y"
    )
    assert cut["tuning"] == {"values": {"a": [1, 2], "b": [1]}, "methods": {"m": [{"a": 1}, {"a": 2}]}}
    assert cut["grid"]["sizes"] == [small.ROWS // 2, small.ROWS]
    found = EncoderConfig.model_validate(cut["model"])
    assert (found.max_length, found.windows, found.stride, found.revision) == (64, 2, 16, None)


@pytest.mark.parametrize("name", ["weight_mixup_table10", "mask_tuning_table1", "tdt_table1"])
def test_methods_own_files_are_cut_too(name: str, tmp_path: Path) -> None:
    """The mark promises an epoch at most, whoever says how many there are; matched compute is a factor of that."""
    found = open_project(lay_out_small(project(tmp_path, name), name))
    free = [method for method in found.methods if not method.endswith("_matched_compute")]
    phases = [
        phase for task in found.params.grid.tasks for method in free for phase in found.method(method, task).phases
    ]
    steps = [optimiser_steps(phase.training, small.ROWS) or 0 for phase in phases]
    assert max(steps) <= small.CAPS["max_steps"] == small.ROWS / small.CAPS["batch_size"]
    assert max(phase.members for phase in phases) <= small.CAPS["times"]


# --------------------------------------------------------------------------- files that a preset lacks


WANTED = (
    "imdb_contrast (judges sst2): there is no file data/imdb_contrast/test_contrast.tsv; it is IMDb/data/test_contrast",
    "paws_qqp (judges qqp): there is no file data/paws_qqp/dev_and_test.tsv; qqp_generate_data.py of github.com/",
)


@pytest.mark.parametrize("name", ["mask_tuning_table1", "mask_tuning_table1_roberta", "mask_tuning_table3"])
def test_every_missing_file_is_named_with_where_it_can_be_had(tmp_path: Path, name: str) -> None:
    root = project(tmp_path, name)
    opened = open_project(root, f"pipelines/presets/{name}.yaml")
    with raises_code(DataError, "file-missing", *WANTED):
        prepare(opened)
    assert not (root / "work").exists()
    (root / "data" / "imdb_contrast").mkdir(parents=True)
    (root / "data" / "imdb_contrast" / "test_contrast.tsv").write_text("Sentiment\tText\nNegative\tbad\n")
    with raises_code(DataError, "file-missing", WANTED[1]) as raised:
        require_named_sets(open_project(root, f"pipelines/presets/{name}.yaml"))
    assert "imdb_contrast" not in str(raised.value)


def test_sets_that_nobody_named_are_left_out(tmp_path: Path) -> None:
    root = project(tmp_path, "mask_tuning_table2")
    path = root / "pipelines" / "presets" / "mask_tuning_table2.yaml"
    for choice in ("all", "none", "[mnli_mm]"):
        text = path.read_text(encoding="utf-8")
        (root / "params.yaml").write_text(text.replace("ood: [mnli_mm]", f"ood: {choice}"), encoding="utf-8")
        require_named_sets(open_project(root))


def test_a_phase_that_names_an_encoder_gets_the_one_that_all_have() -> None:
    method = {"phases": {"teacher": {"model": {"name": "big", "revision": "main", "max_length": 256}, "training": {}}}}
    teacher = small.capped(method, 1.0, encoder="minilm")["phases"]["teacher"]
    assert teacher == {"model": {"name": "minilm", "max_length": 64}, "training": {}}
