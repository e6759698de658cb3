"""A set out of distribution with other labels, from its YAML to the scores, the predictions and the evaluations."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import yaml

from regft_core.data.examples import read_jsonl
from tests.runs.conftest import SIZE, TASK, change, refresh
from tests.runs.test_evaluations import judge, train

#: The task has negative, positive; the set says it in other words and in the other order.
WORDS = {"negative": "bad", "positive": "good"}


def test_a_set_in_other_words_and_another_order_is_judged_like_the_same_rows_in_ours(project: Path) -> None:
    change(
        project,
        methods=["vanilla"],
        grid={"seeds": [0]},
        training={"epochs": 4, "learning_rate": 3e-3},
    )
    path = project / "pipelines" / "tasks" / f"{TASK}.yaml"
    declared = yaml.safe_load(path.read_text())
    own = tuple(declared["labels"])
    (project / "data" / "words").mkdir()
    with open(project / "data" / "words" / "dev.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        for row in read_jsonl(project / "work" / "datasets" / TASK / "ood" / "reversed.jsonl"):
            rows.writerow([row.text, WORDS[own[int(row.label)]]])
    declared["ood"]["words"] = {
        "source": {"kind": "files"},
        "split": "words/dev.csv",
        "columns": {"text": "text", "label": "label"},
        "labels": ["good", "bad"],
        "label_map": WORDS,
    }
    path.write_text(yaml.dump(declared, sort_keys=False))
    refresh(project)
    train(project, "vanilla")
    (record,) = judge(project, "vanilla")
    assert record["sets"]["words"]["metrics"] == record["sets"]["reversed"]["metrics"]
    assert 0 < record["sets"]["words"]["metrics"]["accuracy"] < 1
    assert record["sets"]["words"]["majority"] == record["sets"]["reversed"]["majority"]
    folder = project / "work" / "evaluate" / "vanilla" / TASK / SIZE / "predictions" / "seed-0"
    ours, theirs = (
        [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        for name in ("reversed", "words")
    )
    assert [(1 - row["label"], 1 - row["prediction"], row["scores"][::-1]) for row in theirs] == [
        (row["label"], row["prediction"], row["scores"]) for row in ours
    ]
