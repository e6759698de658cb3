"""Read a project: links, warnings, shipped names, the store, an encoder on this disk, sets without files, folds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from regft_core import shipped
from regft_core.errors import ConfigError
from regft_core.schema.tasks import FoldsConfig
from regft_core.settings.project import LeftOut, Project
from regft_core.settings.yaml_paths import METHODS, project_root, read, store_path
from tests.errors import problems_of, raises_code
from tests.settings import conftest
from tests.settings.conftest import Failures, Load, edit, load_project

PARAMS, TASK = "params.yaml", "pipelines/tasks/opinions.yaml"
FILMS, SCORES = "pipelines/tasks/films.yaml", "pipelines/tasks/scores.yaml"


def test_a_regression_task(load: Load, files: dict[str, str], failures: Any) -> None:
    params = edit(files[PARAMS], "[opinions]", "[scores]")
    assert load({PARAMS: params}).tasks["scores"].range == (0.0, 5.0)
    for old, new, key in [
        ("metrics: [pearson]", "metrics: [pearson, f1]", "metrics[1]"),
        ("[0, 5]", "[5, 0]", "range"),
        ("range: [0, 5]", "labels: [a, b]", "labels"),
        ("range: [0, 5]", "ood: {films: {}}", "ood.films"),
        ("range: [0, 5]", "ood: {own: {source: {kind: files}, split: opinions/dev.csv, label_map: {a: b}}}", "ood.own"),
    ]:
        assert key in [p.key for p in failures({PARAMS: params, SCORES: edit(files[SCORES], old, new)})], new


def test_files_that_only_judge_need_no_training_file(load: Load, files: dict[str, str], failures: Any) -> None:
    changes = {TASK: files[TASK] + "ood: {films: {}}\n"}
    changes[FILMS] = edit(files[FILMS], "train: opinions/train.csv", "train: films/not_fetched.csv")
    assert set(load(changes).tasks) == {"opinions", "films"}
    changes[FILMS] = edit(files[FILMS], "dev: opinions/dev.csv", "dev: films/dev.csv")
    assert [(p.file, p.line, p.key) for p in failures(changes)] == [(FILMS, 2, "splits.dev")]


def test_a_link_out_of_data_is_refused_and_one_into_the_dvc_cache_is_not(
    build: Any, registry: dict[str, Any], tmp_path: Path
) -> None:
    root = build({"data/opinions/train.csv": None})
    link = root / "data/opinions/train.csv"
    (tmp_path / "outside.csv").write_text("sentence,label\n")
    link.symlink_to(tmp_path / "outside.csv")
    with raises_code(ConfigError, "outside-data", "opinions.yaml:2: splits.train"):
        load_project(root, registry)
    link.unlink()
    cached = root / ".dvc/cache/files/md5/ab/cd"
    cached.parent.mkdir(parents=True)
    cached.write_text("sentence,label\n")
    link.symlink_to(cached)
    load_project(root, registry)


def test_warnings(load: Load, files: dict[str, str]) -> None:
    params = edit(files[PARAMS], "[0, 1, 2, 3, 4, 5]", "[0, 1, 2]")
    params = "regft: 0.0.9\n" + edit(params, "{name: minilm}", "{name: org/encoder, revision: main}")
    params += "execution: {workers: 4}\n"
    params += "tuning: {selection: dev_as_published, split: 0.5, values: {training.epochs: [1, 2]}}\n"
    changes = {PARAMS: params, TASK: edit(files[TASK], "{kind: files}", "{kind: hub, id: org/set, revision: main}")}
    warnings = load(changes).warnings
    assert len(warnings) == 6
    for part in (
        "params.yaml:1: written for regft 0.0.9",
        "params.yaml:7: 3 seeds",
        "params.yaml:3: revision 'main' of org/encoder can move",
        f"{TASK}:1: revision 'main' of org/set can move",
        "params.yaml:17: 4 workers have nothing to do",
        "params.yaml:18: it has no effect with selection: dev_as_published",
    ):
        assert any(part in warning for warning in warnings), part


def test_a_name_in_both_is_an_error_unless_the_project_says_override(tmp_path: Path) -> None:
    """A project's own files come first, then those that the package ships."""
    calm = "description: shipped\n"
    theirs, own = (root / METHODS / "calm.yaml" for root in (shipped.FOLDER, tmp_path))
    for path, text in ((theirs, calm), (own, "description: own\n")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with raises_code(ConfigError, "name-taken", "pipelines/methods/calm.yaml", str(shipped.FOLDER), "override: true"):
        read(tmp_path, METHODS, "calm")
    own.write_text("override: true\ndescription: own\n")
    found = read(tmp_path, METHODS, "calm")
    assert found.data == {"description": "own"}  # the choice is no value of the method
    assert found.place(("description",)).line == 2
    own.write_text(calm)  # the same file is no clash, as where a project was copied
    assert read(tmp_path, METHODS, "calm") is not None


# ------------------------------------------------------------------------------------------- the store


def test_places_of_its_own_are_fine_and_a_link_into_another_is_not(
    load: Load, build: Any, failures: Any, tmp_path: Path
) -> None:
    for path in (".regft", "runs/store", "datax", str(tmp_path / "shared"), "../shared", "~/regft-runs"):
        load({"params.yaml": conftest.PARAMS + f"store: {{path: {path}}}\n"})
    root = build({})
    (root / "work").mkdir()
    (root / "link").symlink_to(root / "work", target_is_directory=True)
    (problem,) = failures({"params.yaml": conftest.PARAMS + "store: {path: link}\n"})
    assert problem.code == "store-in-folder-of-others"


def test_a_copy_below_dvc_tmp_uses_the_store_of_the_project(
    build: Any, registry: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DVC_ROOT", raising=False)
    project = build({})
    params = load_project(project, registry).params
    copy = project / ".dvc" / "tmp" / "exps" / "tmp1234"
    copy.mkdir(parents=True)
    monkeypatch.setenv("DVC_ROOT", str(project))
    assert store_path(copy, params) == store_path(project, params) == project / ".regft"
    # A project that a stage of another one runs is on its own.
    assert store_path(tmp_path / "other", params) == tmp_path / "other" / ".regft"
    (project / "params.yaml").unlink()
    assert project_root(copy) == copy  # DVC_ROOT is no project of regft


# ----------------------------------------------------------------------------------------- the encoder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A directory with everything that the validator looks at, without torch."""
    directory = tmp_path / "encoder"
    directory.mkdir()
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": 64}
    (directory / "config.json").write_text(json.dumps({"model_type": "bert", **sizes}))
    (directory / "model.safetensors").write_bytes(b"")
    (directory / "vocab.txt").write_text("[PAD]")
    return directory


def test_an_encoder_on_this_disk_is_looked_into(load: Load, failures: Failures, model: Path) -> None:
    def params(section: str) -> dict[str, str | None]:
        return {PARAMS: conftest.PARAMS.replace("{name: minilm}", section)}

    load(params(f"{{name: {model}, max_length: 64}}"))
    (problem,) = failures(params(f"\n  name: {model}\n  max_length: 65"))
    assert (problem.file, problem.line, problem.key) == ("params.yaml", 4, "model.max_length")
    assert problem.message.startswith("65 tokens, but")
    assert "position embeddings for 64 only" in problem.message
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    (model / "vocab.txt").unlink()
    found = failures(params(f"{{name: {model}, max_length: 65, revision: main}}"))
    assert [p.key for p in found] == ["model.revision", "model.max_length", "model.name", "model.name"]
    assert "pickle format" in found[2].message
    assert "no tokenizer" in found[3].message


# ----------------------------------------------------------------------- what trains and judges, sets left out, folds


@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
def test_one_file_under_two_names_cannot_train_and_judge(build: Any, registry: dict[str, Any], link: str) -> None:
    root = build({"data/opinions/dev.csv": None})
    getattr(root / "data/opinions/dev.csv", link)(root / "data/opinions/train.csv")
    (problem,) = problems_of(load_project, root, registry)
    assert (problem.code, problem.key, problem.line) == ("judged-on-training-rows", "splits.dev", 2)


def test_the_training_split_of_another_task_may_be_this_tasks_own(load: Load, failures: Failures) -> None:
    hub = edit(conftest.TASK, "{kind: files}", "{kind: hub, id: org/set, revision: main}")
    hub = edit(edit(hub, "opinions/train.csv", "train"), "opinions/dev.csv", "test")
    films = edit(edit(hub, "dev: test", "dev: train"), "main", "v2")
    (problem,) = failures({TASK: hub + "ood: {films: {}}\n", FILMS: films})
    assert (problem.file, problem.key) == (TASK, "ood.films")  # the split is films' own: the place is here
    assert "this set ('train') is the training split" in problem.message
    load({TASK: hub + "ood: {films: {}}\n", FILMS: edit(films, "org/set", "org/other")})


# ------------------------------------------------------------------------------ sets that are left out


SETS = """\
ood:
  films: {}
  tv: {if_present: true}
  own: {source: {kind: files}, split: own.csv, if_present: true}
"""


def with_sets(
    load: Load, ood: str = "all", tv: str | None = "tv/dev.csv", films: str | None = conftest.TASK
) -> Project:
    there = edit(conftest.TASK, "opinions/dev.csv", tv) if tv else None
    files = {TASK: conftest.TASK + SETS, FILMS: films, "pipelines/tasks/tv.yaml": there}
    return load({**files, "params.yaml": conftest.PARAMS + f"ood: {ood}\n"})


def test_sets_judge_without_an_edit_once_their_files_are_there(load: Load) -> None:
    without = with_sets(load)
    assert set(without.tasks["opinions"].ood) == {"films"}
    assert [text for text in without.warnings if "is left out" in text] == [
        "pipelines/tasks/opinions.yaml:9: 'tv' is left out: there is no file data/tv/dev.csv",
        "pipelines/tasks/opinions.yaml:10: 'own' is left out: there is no file data/own.csv",
    ]
    for name in ("tv/dev.csv", "own.csv"):
        (without.root / "data" / name).parent.mkdir(exist_ok=True)
        (without.root / "data" / name).write_text("sentence,label\nBad,0\n")
    there = with_sets(load)
    assert set(there.tasks["opinions"].ood) == {"films", "tv", "own"}
    assert not [text for text in there.warnings if "is left out" in text]
    assert "if_present" not in str(there.tasks["opinions"].model_dump(mode="json"))


def test_none_leaves_all_out_unread_and_a_list_names_those_that_judge(load: Load) -> None:
    project = with_sets(load, "none", films=None, tv=None)
    assert list(project.tasks) == ["opinions"]
    assert project.tasks["opinions"].ood == {}
    assert project.left_out["opinions"] == dict.fromkeys(("films", "tv", "own"), LeftOut("ood is none"))
    project = with_sets(load, "[films]")
    assert list(project.tasks["opinions"].ood) == ["films"]
    assert project.left_out["opinions"] == dict.fromkeys(("tv", "own"), LeftOut("not listed in ood"))


# ----------------------------------------------------------------------------------------------- folds


def folds(dev: str, seeds: str = "[0, 1, 2, 3, 4]", more: str = "") -> dict[str, Any]:
    task = edit(conftest.TASK, "dev: opinions/dev.csv", f"dev: {dev}")
    return {TASK: task, "params.yaml": edit(conftest.PARAMS, "[0, 1, 2, 3, 4, 5]", seeds) + more}


def test_folds_and_shares_are_read_and_incomplete_repeats_said(load: Load) -> None:
    whole = load(folds("{folds: 5, repeats: 2}"))
    assert whole.tasks["opinions"].splits.dev == FoldsConfig(folds=5, repeats=2)
    assert whole.tasks["opinions"].splits.judging == "opinions/train.csv"
    assert not [text for text in whole.warnings if "repeats" in text]
    (warning,) = [
        text for text in load(folds("{folds: 5, repeats: 2}", "[0, 1, 2, 3, 4, 5]")).warnings if "whole" in text
    ]
    assert warning.startswith("params.yaml:")
    assert "6 seeds of 5 folds" in warning
    assert warning.endswith("add seeds 6, 7, 8, 9")
    assert load(folds("0.25")).tasks["opinions"].splits.dev == 0.25


def test_every_seed_has_a_fold_and_no_value_is_chosen_by_rows_that_judge_other_folds(failures: Failures) -> None:
    (problem,) = failures(folds("{folds: 3, repeats: 2}", "[0, 5, 6]"))
    assert (problem.code, problem.key) == ("no-such-fold", "grid.seeds[2]")
    assert "0 to 5" in problem.message
    assert "repeats: 3" in problem.hint
    tuning = "tuning:\n  selection: dev_as_published\n  values: {training.learning_rate: [1.0e-5, 2.0e-5]}\n"
    (problem,) = failures(folds("{folds: 2}", "[0, 1]", tuning))
    assert (problem.code, problem.key) == ("chosen-by-judges", "tuning.selection")
