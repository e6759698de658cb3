"""21: ``regft fit`` leads from a file of rows, of each of six shapes, to a model that predicts."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.promises.kit import done, regft
from tests.small_project import REPOSITORY, review, write_csv
from tests.tiny import tiny_model_dir

PRESET = """\
always: [majority, tfidf_logistic, linear_probe]
methods: [vanilla_no_dropout]
training: {epochs: 1, batch_size: 8, learning_rate: 1.0e-3}
tuning: {folds: 2, methods: {}}
"""
NAMES = ("bad", "good")
#: Shape -> columns, a row for a number, more options.
SHAPES: dict[str, tuple[tuple[str, ...], Any, tuple[str, ...]]] = {
    "two classes": (("text", "label"), lambda n: (f"{review(n)} {n}", NAMES[n % 2]), ()),
    "pairs": (
        ("text", "other", "label"),
        lambda n: (f"{review(n)} {n}", f"{review(n + n % 3)} {n}", NAMES[n % 2]),
        ("--pair", "other"),
    ),
    "groups": (
        ("text", "product", "label"),
        lambda n: (f"{review(n)} {n}", f"product {n % 9}", NAMES[n % 2]),
        ("--group", "product"),
    ),
    "numbers": (("text", "label"), lambda n: (f"{review(n)} {n}", 1000 * (n % 7) + n / 8), ()),
    "grades": (("text", "label"), lambda n: (f"{review(n)} {n}", 1 + n % 4), ("--kind", "ordinal")),
    "several labels": (
        ("text", "label"),
        lambda n: (f"{review(n)} {n}", ("bad", "good", "bad;film", "good;film")[n % 4]),
        (),
    ),
}


QUICK, *OTHERS = SHAPES


@pytest.mark.parametrize("shape", [QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_a_file_of_rows_becomes_a_model_that_predicts(tmp_path: Path, shape: str) -> None:
    columns, row, options = SHAPES[shape]
    for name in ("dvc.yaml", ".dvcignore"):
        shutil.copy(REPOSITORY / name, tmp_path / name)
    shutil.copytree(REPOSITORY / "pipelines", tmp_path / "pipelines")
    (tmp_path / "pipelines" / "own_data.yaml").write_text(PRESET)
    (tmp_path / "params.yaml").write_text("execution: {executor: serial, device: cpu}\n")
    shutil.copytree(tiny_model_dir(tmp_path / "scratch", "bert"), tmp_path / "tiny")
    write_csv(tmp_path / "rows.csv", [columns, *map(row, range(48))])
    call = ("fit", "rows.csv", "--text", "text", "--label", "label", "--model", "tiny", "--minutes", "1.5", *options)
    printed = done(tmp_path, *call)
    command = next(line for line in reversed(printed.splitlines()) if "regft predict " in line).split()
    out = command[command.index("--out") + 1]
    write_csv(tmp_path / "new.csv", [columns[:-1], *(row(n)[:-1] for n in range(5))])
    done(tmp_path, *command[command.index("regft") + 1 :])
    with (tmp_path / out).open(newline="") as file:
        answers = [line["prediction"] for line in csv.DictReader(file)]
    assert len(answers) == 5
    if shape == "numbers":
        assert all(-2000 < float(answer) < 9000 for answer in answers)
    else:
        known = {str(part) for n in range(48) for part in str(row(n)[-1]).split(";")} | {""}
        assert {part for answer in answers for part in answer.replace("|", ";").split(";")} <= known
    again = regft(tmp_path, *call)
    assert again.returncode == 0, again.stderr
    assert "Running stage 'finetune'" not in again.stdout
