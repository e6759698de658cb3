"""A task of several labels, from its YAML and a table to scores, an export and predictions, as a user does it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.grid.conftest import reproduce
from tests.small_project import TASK, build, python, review, stage, write_csv

NAMES = ["bad", "good", "film"]
MULTI: dict[str, Any] = {
    **TASK,
    "kind": "multi_label",
    "labels": NAMES,
    "metrics": ["f1_micro", "f1_macro", "accuracy"],
    "primary": "f1_macro",
}
CELLS: dict[str, Any] = {
    **MULTI,
    "splits": {"train": "cells.csv", "dev": "cells-dev.csv"},
    "columns": {"text": "review", "label": "tags", "label_delimiter": "|"},
    "ood": {
        "mood": {
            "source": {"kind": "files"},
            "split": "mood.csv",
            "labels": ["good", "bad", "about"],
            "label_map": {"bad": "bad", "good": "good", "film": "about"},
        }
    },
}
FLAGS: dict[str, Any] = {
    **MULTI,
    "splits": {"train": "flags.csv", "dev": "flags-dev.csv"},
    "columns": {"text": "review", "labels": NAMES},
    "ood": {},
}
METHODS = ["vanilla", "label_thresholds", "linear_probe", "tfidf_logistic", "majority"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    changes: dict[str, Any] = {"grid": {"tasks": ["cells", "flags"], "seeds": [0]}, "methods": METHODS}
    changes |= {"subsample": {"stratified": True}, "training": {"class_weights": "balanced"}}
    root = build(tmp_path_factory.mktemp("labels") / "project", tasks={"cells": CELLS, "flags": FLAGS}, **changes)
    params = yaml.safe_load((root / "params.yaml").read_text())
    params |= {"methods": METHODS, "evaluations": {"per_class": {}, "mistakes": {"k": 2}, "calibration": {}}}
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    for name, words in (("", 6), ("-dev", 4)):
        rows = [(review(n, words), [w for w in NAMES if w in review(n, words).split()]) for n in range(24)]
        write_csv(root / f"data/cells{name}.csv", [("review", "tags"), *((text, "|".join(own)) for text, own in rows)])
        flags = ((text, *(int(label in own) for label in NAMES)) for text, own in rows)
        write_csv(root / f"data/flags{name}.csv", [("review", *NAMES), *flags])
    moods = ((text, "|".join(own).replace("film", "about")) for text, own in rows)
    write_csv(root / "data/mood.csv", [("review", "tags"), *moods])
    return root


def run(root: Path, name: str, *arguments: str) -> str:
    done = stage(root, name, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_from_a_table_to_predictions(root: Path) -> None:
    refused = stage(root, "check")
    assert refused.returncode == 2
    assert "'calibration' is for classification tasks, and there is none in the grid" in refused.stderr
    params = yaml.safe_load((root / "params.yaml").read_text())
    del params["evaluations"]["calibration"]
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    run(root, "subsample")
    cells, flags = ((root / f"work/datasets/{task}/train.jsonl").read_text() for task in ("cells", "flags"))
    assert cells == flags
    params["grid"]["tasks"] = ["cells"]
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    assert reproduce(root) == {}
    run(root, "report")
    for method in METHODS:
        folder = root / f"work/evaluate/{method}/cells/16"
        (found,) = json.loads((folder / "result.json").read_text())["runs"]
        assert found["status"] == "ok"
        assert set(found["sets"]) == {"dev", "mood"}
        assert set(found["sets"]["dev"]["metrics"]) == set(MULTI["metrics"])
        assert {file.stem for file in (folder / "evaluations").iterdir()} == {"per_class", "mistakes"}
        scores = found["sets"]["dev"]["metrics"]
        assert scores["f1_macro"] == 1.0 or method in ("vanilla", "label_thresholds", "majority")
    results = json.loads((root / "reports/results.json").read_text())
    assert "f1_macro" in json.dumps(results)

    cell = ["--method", "linear_probe", "--task", "cells", "--size", "16", "--seed", "0"]
    assert "registered as version 1 of 'cells'" in run(root, "export", *cell, "--register")
    model, out = root / "exports/linear_probe-cells-16-seed-0", root / "out.csv"
    run(root, "predict", "--model", str(model), "--data", "data/cells-dev.csv", "--out", str(out), "--keep", "tags")
    with out.open(newline="") as file:
        served = list(csv.DictReader(file))
    assert list(served[0]) == ["row", "tags", "prediction", *(f"probability_{name}" for name in NAMES)]
    for row in served:
        assert row["prediction"] == row["tags"].replace("|", ";")
        sure = [name for name in NAMES if float(row[f"probability_{name}"]) > 0.5]
        assert row["prediction"] == ";".join(sure)
    card = (model / "README.md").read_text()
    program = card.split("```python\n")[1].split("```")[0].replace("path/to/this/directory", str(model))
    program = program.replace("classifier('a text')", f"found = classifier({review(0, 4)!r})")
    program += "\nprint(';'.join(sorted(one['label'] for one in found[0] if one['score'] > 0.5)))"
    shown = python(root, "-c", program)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.strip() == ";".join(sorted(served[0]["prediction"].split(";")))
