"""What is laid out beside a project: presets, also at small scale, what they lack, the file that reproduces a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from regft_core import __version__
from regft_core.disk.reading import read_json
from regft_core.errors import ConfigError, DataError
from regft_core.grid.cell_keys import cell_keys
from regft_core.grid.data import prepare
from regft_core.grid.missing_files import require_named_sets
from regft_core.schema.method import optimiser_steps
from regft_core.schema.training import EncoderConfig
from regft_core.settings import preset
from regft_core.settings.preset import lay_out, lay_out_small
from regft_core.settings.project import Cell, Project
from regft_core.settings.read_project import open_project
from regft_core.settings.run_config import lay_out_config, run_config
from regft_core.settings.yaml_paths import names
from tests.errors import raises_code
from tests.presets.test_presets import ROWS, fetch_generated, project
from tests.promises.kit import change, write_method
from tests.settings.conftest import PARAMS, Build
from tests.small_project import REPOSITORY, TASK, build

PRESET = PARAMS.replace("epochs: 2", "epochs: 7").replace("name: minilm", "name: models/own")


def params_of(root: Path, name: str, changes: list[str] | None = None) -> Any:
    return yaml.safe_load((lay_out(root, name, changes or ()) / "params.yaml").read_text())


@pytest.fixture
def root(build: Build) -> Path:
    own = PARAMS + "execution: {executor: processes, workers: 3}\nstore: {path: runs, budget_gb: 5}\n"
    found = build({"params.yaml": own, "pipelines/presets/table_one.yaml": PRESET})
    (found / "models" / "own").mkdir(parents=True)
    return found


def test_the_folder_shares_all_but_params_and_results(root: Path) -> None:
    before = (root / "params.yaml").read_bytes()
    folder = lay_out(root, "table_one")
    assert folder == root / "presets" / "table_one"
    params = yaml.safe_load((folder / "params.yaml").read_text())
    assert params["training"]["epochs"] == 7
    assert params["execution"] == {
        "executor": "processes",
        "workers": 3,
    }  # of this machine, where the preset says nothing
    assert params["store"] == {"path": "../../runs", "budget_gb": 5}
    assert params["model"]["name"] == "../../models/own"
    assert (folder / "pipelines" / "tasks").resolve() == root / "pipelines" / "tasks"
    assert (folder / "data" / "opinions" / "train.csv").is_file()
    assert (folder / "dvc.yaml").read_text() == (root / "dvc.yaml").read_text()
    assert not (folder / "dvc.yaml").is_symlink()
    assert (root / "params.yaml").read_bytes() == before
    os.utime(folder / "params.yaml", (1, 1))
    lay_out(root, "table_one")
    assert (folder / "params.yaml").stat().st_mtime == 1, "what stays the same is not touched"


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


#: For tasks that ask how alike two texts are, for pairs, for one text, and for several labels.
FOR_SOME_TASKS = {"zero_shot_similarity", "pair_cosine", "contrastive_combination", "label_thresholds"}


@pytest.mark.parametrize(
    ("methods", "tasks"),
    [
        (["vanilla", "pair_cosine"], ["mrpc"]),
        (["vanilla", "contrastive_combination"], ["sst2"]),
        (["vanilla", "majority", "zero_shot_similarity"], ["stsb"]),
        # All methods at once, on tasks of one text and of two; refusals must be reasons, not crashes.
        (sorted({*names(REPOSITORY, "pipelines/methods")} - FOR_SOME_TASKS), ["sst2", "mrpc"]),
    ],
    ids=["pairs", "one text", "values", "every"],
)
def test_every_shipped_method_can_be_listed(methods: list[str], tasks: list[str]) -> None:
    params = yaml.safe_load((REPOSITORY / "params.yaml").read_text())
    params["methods"], params["grid"]["tasks"], params["report"]["reference"] = methods, tasks, "vanilla"
    project = open_project(REPOSITORY, params_text=yaml.safe_dump(params, sort_keys=False))
    assert list(project.methods) == methods


def test_the_repository_and_new_projects_are_written_for_this_version() -> None:
    for file in (REPOSITORY / "params.yaml", REPOSITORY / "regft_core" / "shipped" / "project" / "params.yaml.txt"):
        assert yaml.safe_load(file.read_text())["regft"] == __version__


# ----------------------------------------------------------------------------------- the file of a run


#: A file's own, a layer over it, an arm without a file, controls of two kinds, phases with another task, a tuned one,
#: phases of others, the compute of another.
METHODS = [
    *("vanilla", "weight_mixup", "hype_n", "hype_strong", "weight_mixup_soup", "weight_mixup_matched_compute"),
    *("chain", "pupil", "matcher", "r_drop", "r_drop_plain"),
]
SETTINGS: dict[str, Any] = {
    "grid": {"tasks": ["reviews", "other"]},
    "methods": METHODS,
    "method_settings": {
        "weight_mixup": {"phases": {"search": {"repeat": {"times": 3}, "data": {"split": 0.5}}}},
        "hype_strong": {"base": "hype_n", "regularisers": {"hype": {"scale": 0.1}}},
        "r_drop": {"training": {"weight_decay": 0.1}},
    },
    "task_settings": {
        "reviews": {"training": {"epochs": 2}, "methods": {"hype_n": {"training": {"epochs": 3}}}},
        "other": {"training": {"learning_rate": 0.01}},
    },
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
    write_method(root, "matcher", training={"steps_factor": {"match": "pupil"}})
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
        (file := tmp_path / "config.yaml").write_text(text)
        again = open_project(folder := lay_out_config(root, file))
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


# ----------------------------------------------------------------------------------------------------- at small scale


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project(tmp_path_factory.mktemp("small"), "pats_table3", "hype_table18")


def test_the_grid_the_encoder_and_the_rows_are_cut_and_it_is_said(home: Path) -> None:
    changes = ["grid.tasks=[rte]", "report.averages={}", "ood=all"]
    folder = lay_out_small(home, "pats_table3", changes)
    found = open_project(folder)
    fetch_generated(home, found)
    assert folder == home / "presets" / "pats_table3.small"
    assert (found.params.grid.sizes, list(found.params.grid.seeds)) == ((preset.ROWS,), preset.SEEDS)
    assert found.params.model.name == preset.ENCODER
    mark = found.params.small_scale.mark if found.params.small_scale else ""
    assert mark.startswith("Not the paper's experiment: preset pats_table3 at small scale. Encoder minilm in every")
    assert "2 seeds (the preset: 5 seeds)" in mark
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and not path.is_symlink()}
    lay_out_small(home, "pats_table3", changes)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    prepare(found)
    counts = read_json(folder / "work" / "datasets" / "rte" / "task.json")["counts"]
    assert {"train", "dev", "hans"} <= set(counts)
    assert set(counts.values()) == {preset.ROWS}
    assert preset.ROWS < ROWS


def test_changes_win_over_the_cuts_and_reproduce_a_run(home: Path, tmp_path: Path) -> None:
    changes = ["grid.seeds=[7]", "grid.tasks=[rte]", "ood=[hans]", "training.epochs=2", "report.averages={}"]
    changes += ["task_settings={}", "method_settings.pats.training.epochs=3"]
    found = open_project(lay_out_small(home, "pats_table3", changes))
    assert (found.params.grid.tasks, found.params.grid.seeds) == (("rte",), (7,))
    assert found.params.training.epochs == 2
    (_, cuts) = found.params.small_scale.changes
    assert "at most 2 epochs of each phase (longer in controls of matched compute)" in cuts
    assert list(found.tasks["rte"].ood) == ["hans"]
    (tmp_path / "config.yaml").write_text(run_config(found, Cell("pats", "rte", preset.ROWS)))
    again = open_project(lay_out_config(home, tmp_path / "config.yaml"))
    assert again.methods["pats"].training.epochs == found.methods["pats"].training.epochs == 3


@pytest.mark.parametrize("changes", [[], ["model.name=minilm"]])
def test_layers_are_those_of_the_encoder(home: Path, changes: list[str]) -> None:
    found = open_project(lay_out_small(home, "hype_table18", changes))
    layers = {
        name: dict(method.finetune.regularisers)["hype"] for name, method in found.methods.items() if "er_" in name
    }
    assert layers["hype_n_lower_6"].layers == (0, 1)  # type: ignore[attr-defined]
    assert layers["hype_n_higher_12"].layers == (3, 4, 5)  # type: ignore[attr-defined]
    config = yaml.safe_load(run_config(found, Cell("hype_n_lower_6", found.params.grid.tasks[0], preset.ROWS)))
    assert config["methods"]["hype_n_lower_6"]["regularisers"]["hype"]["layers"] == [0, 1]
    assert config["params"]["small_scale"]["cut"], "what is scaled is not scaled again"


def test_an_encoder_that_is_not_on_this_disk_is_refused(home: Path) -> None:
    with raises_code(ConfigError, "model-missing", "FacebookAI/roberta-base"):
        lay_out_small(home, "hype_table18", ["model.name=FacebookAI/roberta-base", f"model.revision={'a' * 40}"])


def test_trials_are_two_and_windows_fit_into_the_smaller_length() -> None:
    tuning = {"values": {"a": [1, 2, 3], "b": [1, 2]}, "methods": {"m": [{"a": 1}, {"a": 2}, {"a": 3}]}}
    model = {"name": "x", "revision": "main", "pooling": "mean", "max_length": 256, "windows": 4, "stride": 100}
    cut = preset.shrunk(
        {"model": model, "grid": {"sizes": [300, 500, 1000], "tasks": ["t"]}, "tuning": tuning}, 0.25, "y"
    )
    assert cut["tuning"] == {"values": {"a": [1, 2], "b": [1]}, "methods": {"m": [{"a": 1}, {"a": 2}]}}
    assert cut["grid"]["sizes"] == [preset.ROWS // 2, preset.ROWS]
    found = EncoderConfig.model_validate(cut["model"])
    assert (found.max_length, found.windows, found.stride, found.revision) == (64, 2, 16, None)


@pytest.mark.parametrize("name", ["weight_mixup_table10", "mask_tuning_table1", "tdt_table1"])
def test_methods_own_files_are_cut_too(name: str, tmp_path: Path) -> None:
    """The mark promises an epoch at most, whoever says how many there are, but for controls of matched compute."""
    found = open_project(lay_out_small(project(tmp_path, name), name))
    free = [method for method in found.methods if not method.endswith("_matched_compute")]
    phases = [
        phase for task in found.params.grid.tasks for method in free for phase in found.method(method, task).phases
    ]
    steps = [optimiser_steps(phase.training, preset.ROWS) or 0 for phase in phases]
    assert max(steps) <= preset.CAPS["max_steps"] == preset.ROWS / preset.CAPS["batch_size"]
    assert max(phase.members for phase in phases) <= preset.CAPS["times"]


# --------------------------------------------------------------------------- files that a preset lacks


WANTED = (
    "imdb_contrast (judges sst2): there is no file data/imdb_contrast/test_contrast.tsv; it is IMDb/data/test_contrast",
    "paws_qqp (judges qqp): there is no file data/paws_qqp/dev_and_test.tsv; qqp_generate_data.py of github.com/",
)


def test_every_missing_file_is_named_with_where_it_can_be_had(tmp_path: Path) -> None:
    home, name = project(tmp_path, "mask_tuning_table1"), "pipelines/presets/mask_tuning_table1.yaml"
    with raises_code(DataError, "file-missing", *WANTED):
        prepare(open_project(home, name))
    assert not (home / "work").exists()
    (home / "data" / "imdb_contrast").mkdir(parents=True)
    (home / "data" / "imdb_contrast" / "test_contrast.tsv").write_text("Sentiment\tText\nNegative\tbad\n")
    with raises_code(DataError, "file-missing", WANTED[1]) as raised:
        require_named_sets(open_project(home, name))
    assert "imdb_contrast" not in str(raised.value)


def test_sets_that_nobody_named_are_left_out(tmp_path: Path) -> None:
    home = project(tmp_path, "mask_tuning_table2")
    path = home / "pipelines" / "presets" / "mask_tuning_table2.yaml"
    for choice in ("all", "none", "[mnli_mm]"):
        text = path.read_text(encoding="utf-8")
        (home / "params.yaml").write_text(text.replace("ood: [mnli_mm]", f"ood: {choice}"), encoding="utf-8")
        require_named_sets(open_project(home))


def test_a_phase_that_names_an_encoder_gets_the_one_that_all_have() -> None:
    method = {"phases": {"teacher": {"model": {"name": "big", "revision": "main", "max_length": 256}, "training": {}}}}
    teacher = preset.capped(method, 1.0, encoder="minilm")["phases"]["teacher"]
    assert teacher == {"model": {"name": "minilm", "max_length": 64}, "training": {}}
