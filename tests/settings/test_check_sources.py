"""Files, columns, generated tasks and hub ids, sets that are left out, folds: checked before any stage starts."""

from __future__ import annotations

import gzip
import os
from typing import Any

import pytest

from regft_core.schema.tasks import FoldsConfig
from regft_core.settings.project import LeftOut, Project
from regft_core.settings.read_project import load_project
from tests.errors import problems_of
from tests.settings import conftest
from tests.settings.conftest import Failures, Load

PARAMS, TASK = "params.yaml", "pipelines/tasks/opinions.yaml"


# ------------------------------------------------------------------------------------ columns


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("a.jsonl", b"[1]", "not-an-object"),
        pytest.param("a.jsonl", b'{"a": ' + b"9" * 5000 + b"}", "not-json", id="digits"),
        pytest.param("a.jsonl", b"[" * 100_000, "not-json", id="deep"),
        ("a.csv.gz", gzip.compress(b"a,b\n" * 9, mtime=0)[:-4], "damaged-file"),
        ("a.parquet", b"PAR1", "damaged-file"),
    ],
)
def test_a_damaged_file_is_named_and_never_a_traceback(
    files: dict[str, str], build: Any, registry: dict[str, Any], name: str, content: bytes, code: str
) -> None:
    root = build({TASK: files[TASK].replace("opinions/dev.csv", f"opinions/{name}")})
    (root / "data" / "opinions" / name).write_bytes(content)
    (problem,) = problems_of(load_project, root, registry)
    assert (problem.file, problem.line, problem.key) == (TASK, 2, "splits.dev")
    assert f"data/opinions/{name}" in problem.message
    assert problem.code == code
    assert len(problem.message) < 250


# --------------------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    "kind", ["a directory", "neither a file nor a directory", "a link to nowhere.csv, which does not exist"]
)
def test_what_is_no_file_is_called_what_it_is(build: Any, registry: dict[str, Any], kind: str) -> None:
    root = build({"data/opinions/train.csv": None})
    path = root / "data/opinions/train.csv"
    if kind == "a directory":
        path.mkdir()
    elif "neither" in kind:
        os.mkfifo(path)
    else:
        path.symlink_to("nowhere.csv")
    (problem,) = problems_of(load_project, root, registry)
    assert problem.message == f"data/opinions/train.csv is {kind}, not a file"
    assert "did you mean" not in problem.hint


@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
def test_one_file_under_two_names_cannot_train_and_judge(build: Any, registry: dict[str, Any], link: str) -> None:
    root = build({"data/opinions/dev.csv": None})
    getattr(root / "data/opinions/dev.csv", link)(root / "data/opinions/train.csv")
    (problem,) = problems_of(load_project, root, registry)
    assert (problem.key, problem.line) == ("splits.dev", 2)
    assert "is the training split" in problem.message


def test_the_training_split_of_another_task_may_be_this_tasks_own(
    load: Load, files: dict[str, str], failures: Failures
) -> None:
    hub = "source: {kind: hub, id: org/set, revision: main}\nsplits: {train: train, dev: test}\n"
    rest = "\n".join(files[TASK].splitlines()[2:]) + "\n"
    films = {"pipelines/tasks/films.yaml": hub.replace("dev: test", "dev: train").replace("main", "v2") + rest}
    (problem,) = failures({TASK: hub + rest + "ood: {films: {}}\n", **films})
    assert (problem.file, problem.key) == (TASK, "ood.films")  # the split is films' own: the place is here
    assert "this set ('train') is the training split" in problem.message
    films = {"pipelines/tasks/films.yaml": films["pipelines/tasks/films.yaml"].replace("id: org/set", "id: org/other")}
    load({TASK: hub + rest + "ood: {films: {}}\n", **films})


# ------------------------------------------------------------------------------------ built-in

CUE = """\
source: &source {kind: builtin, generator: cue_pair}
splits: {train: train, dev: dev}
columns: {text: text, text_pair: text_pair}
labels: [different, same]
metrics: [accuracy]
primary: accuracy
"""


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("[different, same]", "[same, different]", "labels"),
        ("primary: accuracy", "primary: accuracy\nood: {x: {source: *source, split: train}}", "ood.x.split"),
        (
            "primary: accuracy",
            "primary: accuracy\nood: {x: {source: {kind: builtin, generator: cue_sentence}, split: dev}}",
            "ood.x.labels",
        ),
        (
            "primary: accuracy",
            "primary: accuracy\nood: {x: {source: *source, split: no_cue, labels: [same, different]}}",
            "ood.x.labels",
        ),
    ],
)
def test_a_yaml_cannot_change_what_generated_rows_mean(failures: Failures, old: str, new: str, key: str) -> None:
    assert old in CUE
    assert key in [problem.key for problem in failures({TASK: CUE.replace(old, new)})]


# ------------------------------------------------------------------------------ sets that are left out


FILES = {
    "pipelines/tasks/opinions.yaml": conftest.TASK
    + """\
ood:
  films: {}
  tv: {if_present: true}
  own: {source: {kind: files}, split: own.csv, if_present: true}
""",
    "pipelines/tasks/tv.yaml": conftest.TASK.replace("opinions/dev.csv", "tv/dev.csv"),
}


def with_sets(load: Load, ood: str = "all", **files: str | None) -> Project:
    changes = {f"pipelines/tasks/{name}.yaml": text for name, text in files.items()}
    return load({**FILES, **changes, "params.yaml": conftest.PARAMS + f"ood: {ood}\n"})


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


OPINIONS = "pipelines/tasks/opinions.yaml"


def task(dev: str, columns: str = "{text: sentence}") -> dict[str, str | None]:
    text = conftest.TASK.replace("dev: opinions/dev.csv", f"dev: {dev}")
    return {OPINIONS: text.replace("{text: sentence}", columns)}


def grid(seeds: str) -> dict[str, str | None]:
    lines = [
        f"  seeds: {seeds}" if line.strip().startswith("seeds:") else line for line in conftest.PARAMS.splitlines()
    ]
    return {"params.yaml": "\n".join(lines) + "\n"}


def test_folds_and_shares_are_read_and_incomplete_repeats_said(load: Load) -> None:
    found = load(task("{folds: 5, repeats: 2}") | grid("[0, 1, 2, 3, 4]"))
    assert found.tasks["opinions"].splits.dev == FoldsConfig(folds=5, repeats=2)
    assert found.tasks["opinions"].splits.judging == "opinions/train.csv"
    assert not [text for text in found.warnings if "repeats" in text]
    found = load(task("{folds: 5, repeats: 2}") | grid("[0, 1, 2, 3, 4, 5]"))
    (warning,) = [text for text in found.warnings if "whole repeats" in text]
    assert warning.startswith("params.yaml:")
    assert "6 seeds of 5 folds" in warning
    assert warning.endswith("add seeds 6, 7, 8, 9")
    found = load(task("0.25"))
    assert found.tasks["opinions"].splits.dev == 0.25


def test_every_seed_has_a_fold(failures: Failures) -> None:
    (problem,) = failures(task("{folds: 3, repeats: 2}") | grid("[0, 5, 6]"))
    assert (problem.code, problem.key) == ("no-such-fold", "grid.seeds[2]")
    assert "0 to 5" in problem.message
    assert "repeats: 3" in problem.hint


def test_no_value_is_chosen_by_rows_that_judge_other_folds(failures: Failures) -> None:
    tuning = "tuning:\n  selection: dev_as_published\n  values: {training.learning_rate: [1.0e-5, 2.0e-5]}\n"
    params = {"params.yaml": (grid("[0, 1]")["params.yaml"] or "") + tuning}
    (problem,) = failures(task("{folds: 2}") | params)
    assert (problem.code, problem.key) == ("chosen-by-judges", "tuning.selection")
