"""21: ``regft fit`` leads from a file of rows, of each of six shapes, to a model that predicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.promises.kit import done, fit_folder
from tests.small_project import python, read_csv, review, write_csv

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
    "numbers": (("text", "label"), lambda n: (f"{review(n)} {n}", 1000 * (n % 6) + n / 8), ()),
    "grades": (("text", "label"), lambda n: (f"{review(n)} {n}", 1 + n % 4), ("--kind", "ordinal")),
    "several labels": (
        ("text", "label"),
        lambda n: (f"{review(n)} {n}", ("bad", "good", "bad;film", "good;film")[n % 4]),
        (),
    ),
}


#: The same in Python, as a script without a main guard; columns and options are filled in.
PYTHON = """
import json, sys
from pathlib import Path
import pandas as pd
from regft_core.api import fit
store = Path(".regft/runs")
before = len([*store.rglob("result.json")])
options = {options}
more = dict(zip((name.lstrip("-") for name in options[::2]), options[1::2]))
rows = pd.read_csv("rows.csv")
fitted = fit(rows, text="text", label="label", model="tiny", minutes=10, project="python/rows", quiet=True, **more)
new = pd.read_csv("new.csv")
found = {{"predictions": fitted.predict(new).tolist(), "trained": len([*store.rglob("result.json")]) - before}}
if fitted.model.classes_.tolist() != ["value"]:
    found["probabilities"] = fitted.predict_proba(new[{columns!r}[0]] if len(new.columns) == 1 else new).tolist()
assert fitted.leaderboard()["method"].isin([fitted.method]).any()
print(json.dumps(found))
"""


QUICK, *OTHERS = SHAPES


@pytest.mark.parametrize("shape", [QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_a_file_of_rows_becomes_a_model_that_predicts(tmp_path: Path, shape: str) -> None:
    columns, row, options = SHAPES[shape]
    fit_folder(tmp_path, PRESET)
    write_csv(tmp_path / "rows.csv", [columns, *map(row, range(48))])
    call = ("fit", "rows.csv", "--text", "text", "--label", "label", "--model", "tiny", "--minutes", "10", *options)
    printed = done(tmp_path, *call)
    command = next(line for line in reversed(printed.splitlines()) if "regft predict " in line).split()
    out = command[command.index("--out") + 1]
    write_csv(tmp_path / "new.csv", [columns[:-1], *(row(n)[:-1] for n in range(5))])
    done(tmp_path, *command[command.index("regft") + 1 :])
    lines = read_csv(tmp_path / out)
    answers = [line["prediction"] for line in lines]
    assert len(answers) == 5
    (tmp_path / "call.py").write_text(PYTHON.format(columns=columns[:-1], options=options))
    called = python(tmp_path, "call.py")
    assert called.returncode == 0, called.stderr
    found = json.loads(called.stdout.splitlines()[-1])
    given = [";".join(one) if isinstance(one, list) else one for one in found["predictions"]]
    assert given == [float(one) if shape == "numbers" else one for one in answers]
    if shape != "numbers":
        shown = [[float(value) for value in [*line.values()][2:]] for line in lines]  # row, prediction, ...
        assert np.allclose(found["probabilities"], shown, atol=1e-6)
    assert found["trained"] == 0  # the same bits: every run of the command was found
    if shape == "numbers":
        assert all(-2000 < float(answer) < 9000 for answer in answers)
    else:
        known = {str(part) for n in range(48) for part in str(row(n)[-1]).split(";")} | {""}
        assert {part for answer in answers for part in answer.replace("|", ";").split(";")} <= known
