"""``--scale small``: what is cut, which rows are taken, and what the folder says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from regft_core.grid.fetch import rows_needed
from regft_core.grid.small import lay_out_small
from regft_core.runs.project import open_project
from regft_core.schema.encoder import EncoderConfig
from regft_core.settings import small
from regft_core.settings.cost import optimiser_steps
from regft_core.settings.preset import preset_file
from tests.presets.miniature import project
from tests.small_project import write_csv


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with two presets; RTE reads its own files, nothing else is on this disk."""
    root = project(tmp_path_factory.mktemp("small"), "pats_table3", "hype_table18", "hype_figure3")
    rows = [(f"premise {n}", f"hypothesis {n}", n % 2) for n in range(100)]
    for split in ("train", "dev"):
        write_csv(root / "data" / "rte" / f"{split}.csv", [("sentence1", "sentence2", "label"), *rows])
    path = root / "pipelines" / "tasks" / "rte.yaml"
    task = yaml.safe_load(path.read_text())
    task |= {"source": {"kind": "files"}, "splits": {"train": "rte/train.csv", "dev": "rte/dev.csv"}, "override": True}
    path.write_text(yaml.dump(task, sort_keys=False))
    return root


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_real_rows_keep_their_name_and_generated_ones_are_called_stand_ins(root: Path) -> None:
    folder = lay_out_small(root, "pats_table3", ["ood=all"])
    found = open_project(folder)
    grid = found.params.grid
    assert folder == root / "presets" / "pats_table3.small"
    assert grid.tasks == ("cola_standin", "mrpc_standin", "rte")
    assert (grid.sizes, list(grid.seeds)) == ((small.TRAIN_ROWS,), small.SEEDS)
    assert found.params.model.name == small.ENCODER
    train = lines(folder / "data" / "rte" / "train.jsonl")
    assert len(train) == small.TRAIN_ROWS
    assert all(row["text"].startswith("premise") for row in train)
    assert {row["label"] for row in train} == {"entailment", "not_entailment"}
    assert list(found.tasks["rte"].ood) == ["hans_standin", "scitail_standin", "advglue_rte_standin"]
    assert found.tasks["rte"].ood["hans_standin"].label_map["not_entailment"] == "non-entailment"
    hans = lines(folder / "data" / "rte" / "ood-hans_standin.jsonl")
    assert {row["label"] for row in hans} == {"entailment", "non-entailment"}
    mark = found.params.small_scale.mark
    assert mark.startswith("Not the paper's experiment: preset pats_table3 at small scale. Encoder minilm in place of")
    assert "not on this disk: cola; mrpc, judged by qqp; hans, scitail, advglue_rte of rte. Real" in mark
    assert "Real rows, a few of each: rte." in mark
    assert "Left out: paws_qqp of mrpc." in mark


def test_changes_win_over_the_cuts_and_say_which_rows(root: Path) -> None:
    changes = ["grid.seeds=[7]", "grid.tasks=[rte]", "ood=[hans]", "training.epochs=2", "report.averages={}"]
    changes.append("task_settings={}")
    found = open_project(lay_out_small(root, "pats_table3", changes))
    assert found.params.grid.tasks == ("rte",)
    assert found.params.grid.seeds == (7,)
    assert found.params.training.epochs == 2
    assert list(found.tasks["rte"].ood) == ["hans_standin"]
    assert "Left out: scitail, advglue_rte of rte." in found.params.small_scale.mark
    assert "1 seed (the preset: 5 seeds)" in found.params.small_scale.mark


def test_layers_are_those_of_the_encoder(root: Path) -> None:
    folder = lay_out_small(root, "hype_table18")
    settings = yaml.safe_load((folder / "params.yaml").read_text())["method_settings"]
    assert settings["hype_n_lower_6"]["regularisers"]["hype"]["layers"] == [0, 1]
    assert settings["hype_n_higher_12"]["regularisers"]["hype"]["layers"] == [3, 4, 5]
    open_project(folder)


def test_layers_follow_the_presets_own_encoder_when_another_is_given(root: Path) -> None:
    folder = lay_out_small(root, "hype_table18", ["model.name=minilm"])
    settings = yaml.safe_load((folder / "params.yaml").read_text())["method_settings"]
    assert settings["hype_n_higher_12"]["regularisers"]["hype"]["layers"] == [3, 4, 5]


def test_tasks_that_an_evaluation_reads_are_small_too(root: Path) -> None:
    folder = lay_out_small(root, "hype_figure3")
    tasks = yaml.safe_load((folder / "params.yaml").read_text())["evaluations"]["layer_probes"]["tasks"]
    assert tasks == ["mrpc_standin", "stsb_standin", "rte", "cola_standin"]
    assert {row.source.kind for row in rows_needed(open_project(folder))} == {"files"}
    read = {name for row in rows_needed(open_project(root, preset_file(root, "hype_figure3"))) for name in row.used}
    assert {"mrpc", "stsb", "rte", "cola"} <= read


def test_trials_are_two() -> None:
    tuning = {"values": {"a": [1, 2, 3], "b": [1, 2]}, "methods": {"m": [{"a": 1}, {"a": 2}, {"a": 3}]}}
    data = {"model": {"name": "x-large"}, "grid": {"sizes": [300, 500, 1000], "tasks": ["t"]}, "tuning": tuning}
    cut = small.shrunk(data, 6, of="x-large")
    assert cut["tuning"]["values"] == {"a": [1, 2], "b": [1]}
    assert cut["tuning"]["methods"] == {"m": [{"a": 1}, {"a": 2}]}
    assert cut["grid"]["sizes"] == [small.TRAIN_ROWS // 2, small.TRAIN_ROWS]


def test_windows_still_fit_into_the_smaller_length() -> None:
    model = {"name": "x", "pooling": "mean", "max_length": 256, "windows": 4, "stride": 100}
    found = EncoderConfig.model_validate(small.shrunk({"model": model}, 6, of="x")["model"])
    assert (found.max_length, found.windows, found.stride) == (64, 2, 16)


@pytest.mark.parametrize("name", ["weight_mixup_table10", "weight_mixup_table1", "mask_tuning_table1", "tdt_table1"])
def test_methods_own_files_are_cut_too(name: str, tmp_path: Path) -> None:
    """The mark promises an epoch at most, whoever says how many there are; matched compute is a factor of that."""
    found = open_project(lay_out_small(project(tmp_path, name), name))
    free = [method for method in found.methods if not method.endswith("_matched_compute")]
    phases = [
        phase for task in found.params.grid.tasks for method in free for phase in found.method(method, task).phases
    ]
    steps = [optimiser_steps(phase.training, small.TRAIN_ROWS) or 0 for phase in phases]
    assert max(steps) <= small.CAPS["max_steps"] == small.TRAIN_ROWS / small.CAPS["batch_size"]
    assert max(phase.members for phase in phases) <= small.CAPS["times"]


def test_what_a_preset_sets_of_a_method_stands_over_its_file() -> None:
    assert small.over({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}, "d": 4}) == {"a": {"b": 3, "c": 2}, "d": 4}
    method = {"training": {"epochs": 3, "learning_rate": 0.1}, "phases": {"search": {"repeat": {"times": 5}}}}
    assert small.cuts(method, 6, "base") == {"training": {"epochs": 1}, "phases": {"search": {"repeat": {"times": 2}}}}
    assert small.cuts({"training": {"epochs": 1}, "description": "x"}, 6, "base") == {}
