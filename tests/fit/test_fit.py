"""`regft fit`: from one file to predictions; what is refused, and that a repeat is free."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import yaml

from regft_core.errors import ConfigError
from stages.fit import main
from tests.small_project import REPOSITORY, python, review, stage, write_csv
from tests.tiny import tiny_model_dir

#: Few methods and short trainings; one of them is tuned.
PRESET = """\
always: [majority, tfidf_logistic, linear_probe]
methods: [lp_ft_share, vanilla_no_dropout]
training: {epochs: 1, batch_size: 8, learning_rate: 1.0e-3}
tuning:
  folds: 2
  methods:
    lp_ft_share:
      - - {phases.train.training.learning_rate: 1.0e-3, phases.finetune.regularisers.wise_ft.alpha: 0.0}
        - {phases.train.training.learning_rate: 1.0e-3, phases.finetune.regularisers.wise_ft.alpha: 0.5}
    vanilla_no_dropout:
      - - {training.learning_rate: 1.0e-3}
"""
PARAMS = "execution: {executor: serial, device: cpu}\n"


def rows(count: int = 36) -> list[tuple[str, str, str]]:
    """Rows of two classes, and four of a third: too few for five folds."""
    found = [(f"{review(n)} {n}", ["bad", "good"][n % 2], f"product {n % 9}") for n in range(count)]
    return [*found, *((f"it was odd {n}", "odd", f"odd {n}") for n in range(4))]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a tiny encoder and a short preset, in which fit is called."""
    folder = tmp_path_factory.mktemp("fit") / "project"
    for name in ("dvc.yaml", ".dvcignore"):
        folder.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / name, folder / name)
    shutil.copytree(REPOSITORY / "pipelines", folder / "pipelines")
    (folder / "pipelines" / "own_data.yaml").write_text(PRESET)
    (folder / "params.yaml").write_text(PARAMS)
    shutil.copytree(tiny_model_dir(folder / "scratch", "bert"), folder / "tiny")
    write_csv(folder / "reviews.csv", [("review", "verdict", "product"), *rows()])
    return folder


def fit(root: Path, *arguments: str, file: str = "reviews.csv") -> subprocess.CompletedProcess[str]:
    return stage(root, "fit", file, "--model", "tiny", *arguments)


COLUMNS = ("--text", "review", "--label", "verdict")


def test_from_a_file_to_predictions(root: Path) -> None:
    done = fit(root, *COLUMNS, "--group", "product", "--minutes", "600")
    assert done.returncode == 0, done.stdout + done.stderr
    folder = root / "fits" / "reviews"
    params = yaml.safe_load((folder / "params.yaml").read_text())
    assert params["methods"] == ["majority", "tfidf_logistic", "linear_probe", "lp_ft_share", "vanilla_no_dropout"]
    assert params["grid"] == {"tasks": ["reviews"], "sizes": ["full"], "seeds": list(range(6))}
    assert list(params["tuning"]["methods"]) == [
        "majority",
        "tfidf_logistic",
        "linear_probe",
        "lp_ft_share",
        *params["methods"][4:],
    ]
    assert params["method_settings"] == {"vanilla_no_dropout": {"training": {"learning_rate": 1e-3}}}
    # The rows have under 16 tokens; new texts may have more.
    assert params["model"]["max_length"] == 128
    task = yaml.safe_load((folder / "pipelines" / "tasks" / "reviews.yaml").read_text())
    assert task["splits"] == {"train": "reviews.csv", "dev": {"folds": 3, "repeats": 2}}
    assert task["columns"] == {"text": "review", "label": "verdict", "group": "product"}
    assert task["labels"] == ["bad", "good", "odd"]
    assert task["primary"] == "f1_macro"
    assert "f1_macro, because 'odd' has under a fifth of the rows" in done.stdout
    # Values were chosen for every run, by its training rows.
    runs = json.loads((folder / "work/finetune/lp_ft_share/reviews/full/manifest.json").read_text())["runs"]
    assert [len(run["tuned"]["trials"]) for run in runs] == [2] * 6
    taken = re.search(r"^taken: (\S+)$", done.stdout, re.MULTILINE)
    assert taken is not None
    assert taken[1] in params["methods"]
    # The printed command predicts.
    command = done.stdout.strip().splitlines()[-1].split()
    assert command[:2] == ["regft", "predict"]
    write_csv(root / "new.csv", [("review",), ("a good film",), ("bad story",)])
    predicted = python(root, "-m", "regft_core", *command[1:])
    assert predicted.returncode == 0, predicted.stderr
    with (root / "predictions.csv").open(newline="") as file:
        assert {row["prediction"] for row in csv.DictReader(file)} <= {"bad", "good", "odd"}
    _a_repeat_trains_nothing(root, folder)
    _an_edit_is_kept(root, folder)


def _a_repeat_trains_nothing(root: Path, folder: Path) -> None:
    runs = sorted((folder / ".regft" / "runs").glob("*/*/result.json"))
    again = fit(root, *COLUMNS, "--group", "product", "--minutes", "600")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "going on with it" in again.stdout
    assert "Running stage 'finetune'" not in again.stdout
    assert sorted((folder / ".regft" / "runs").glob("*/*/result.json")) == runs


def _an_edit_is_kept(root: Path, folder: Path) -> None:
    params = folder / "params.yaml"
    params.write_text(params.read_text() + "# mine\n")
    other = fit(root, *COLUMNS, "--group", "product", "--minutes", "601")
    assert other.returncode == 2
    assert "params.yaml was edited, and this call differs from the first in minutes [edited]" in other.stderr
    assert params.read_text().endswith("# mine\n")


WRONG = [
    ({"file": "reviws.csv"}, ["file-missing", "did you mean 'reviews.csv'?"]),
    ({"text": "reviw", "label": "verdikt"}, ["column-missing", "did you mean 'review'?", "did you mean 'verdict'?"]),
    ({"label": "review"}, ["same-column", "'review' is also --text"]),
    ({"pair": "review"}, ["same-column", "'review' is also --text"]),
    ({"group": "verdict"}, ["same-column", "one group"]),
    ({"file": "one-class.csv"}, ["one-class", "all 12 rows have the label 'good'"]),
    ({"file": "one-row.csv"}, ["too-few-rows", "1 row with text and label"]),
    ({"file": "unlabelled.csv"}, ["too-few-rows", "0 rows with text and label (8 without a label)"]),
    ({"file": "nan.csv"}, ["missing-label", "4 rows with the label 'NaN'", "empty these cells"]),
    ({"file": "one-text.csv"}, ["one-text", "1 different text in 12 rows"]),
    ({"file": "latin.csv"}, ["not-utf8", "line 2, byte 0xe9", "--encoding"]),
    ({"encoding": "latin-eins"}, ["unknown-encoding", "'latin-eins' is not a text encoding"]),
    ({"file": "notes"}, ["unknown-format", ".csv"]),
    ({"file": "folder.csv"}, ["not-a-file", "is a directory, not a file"]),
    ({"file": "open.csv"}, ["csv-syntax", "the row that begins on line 3"]),
    ({"file": "cut.jsonl"}, ["not-json", "line 2 is not JSON", "correct that line"]),
    ({"file": "halves.csv", "group": "half"}, ["too-few-groups", "column 'half' has 2 groups"]),
    ({"file": "rare.csv"}, ["rare-label", "'odd' has 1 row"]),
    ({"file": "ids.csv"}, ["too-many-labels", "12 different labels in 12 rows"]),
    ({"kind": "regression"}, ["not-a-number", "'bad'"]),
    ({"minutes": 0.0}, ["wrong-minutes"]),
    ({"minutes": 0.01}, ["too-few-minutes", "give --minutes 1 or more"]),
    ({"model": "tiny/none"}, ["--model"]),
    ({"out": "taken"}, ["in-the-way", "regft fit did not make it"]),
    ({"out": "taken", "text": "reviw", "minutes": -1.0}, ["column-missing", "in-the-way", "wrong-minutes"]),
]


def files(root: Path) -> list[str]:
    """What lies there, but for what is fetched."""
    return sorted(path.as_posix() for path in root.rglob("*") if path.name not in (".models", ".datasets"))


@pytest.mark.parametrize(("given", "said"), WRONG, ids=[said[0] for _, said in WRONG])
def test_a_wrong_use_is_refused_before_anything_is_written(
    root: Path, given: dict[str, Any], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    head = ("review", "verdict")
    write_csv(root / "one-class.csv", [head, *((review(n), "good") for n in range(12))])
    write_csv(root / "one-row.csv", [head, (review(1), "good")])
    write_csv(root / "rare.csv", [head, *((text, label) for text, label, _ in rows(12)[:12]), ("x", "odd")])
    write_csv(root / "ids.csv", [head, *((review(n), f"id {n}") for n in range(12))])
    write_csv(root / "unlabelled.csv", [head, *((review(n), "") for n in range(8))])
    write_csv(root / "nan.csv", [head, *((review(n), ["good", "bad", "NaN"][n % 3]) for n in range(12))])
    write_csv(root / "one-text.csv", [head, *(("the same", ["good", "bad"][n % 2]) for n in range(12))])
    write_csv(
        root / "halves.csv", [(*head, "half"), *((review(n), ["good", "bad"][n % 2], n % 4 // 2) for n in range(12))]
    )
    (root / "latin.csv").write_bytes("review,verdict\ndéjà,good\n".encode("latin-1"))
    (root / "open.csv").write_text('review,verdict\nfine,good\n"poor,bad\nodd,bad\n')
    (root / "cut.jsonl").write_text('{"review": "a", "verdict": "good"}\n{"review": "b"\n')
    (root / "notes").write_text("review\n")
    (root / "folder.csv").mkdir(exist_ok=True)
    (root / "taken").mkdir(exist_ok=True)
    (root / "taken" / "mine.txt").write_text("mine")
    before = files(root)
    usual = {
        "file": "reviews.csv",
        "text": "review",
        "label": "verdict",
        "pair": None,
        "group": None,
        "kind": None,
        "encoding": None,
    }
    usual |= {"minutes": 600.0, "out": "other/place", "model": "tiny", "seed": 0}
    monkeypatch.chdir(root)
    with pytest.raises(ConfigError) as error:
        main(Path(), Namespace(**(usual | given)))
    for part in said:
        assert part in str(error.value)
    assert files(root) == before


def test_an_empty_folder_takes_the_methods_of_the_code(tmp_path: Path) -> None:
    write_csv(tmp_path / "rows.csv", [("review", "verdict"), *((text, label) for text, label, _ in rows())])
    done = stage(tmp_path, "fit", "rows.csv", "--text", "reviews", "--label", "verdict", "--model", "nothing")
    assert done.returncode == 2
    assert "no column 'reviews'" in done.stderr
    assert "--model: nothing" in done.stderr  # both in one message
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]
