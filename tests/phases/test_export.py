"""Exported models load in a fresh process, as plain transformers, with identical logits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from regft_core.errors import ConfigError, DataError, RunFailed
from regft_core.phases.cells import run_cell
from regft_core.phases.context import Context, Job
from regft_core.phases.evaluate import evaluate
from regft_core.phases.export import export
from regft_core.phases.finetune import finetune
from regft_core.phases.outputs import write_evaluation, write_training
from regft_core.phases.search import search
from tests.phases.conftest import DIVERGES, write_method

SCRIPT = """
import json, sys
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline
folder, text = sys.argv[1:]
assert "regft_core" not in sys.modules
model = AutoModelForSequenceClassification.from_pretrained(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)
inputs = tokenizer(text, truncation=True, max_length=32, return_tensors="pt")
scores = model(**inputs).logits.softmax(-1)[0].tolist()
named = pipeline("text-classification", model=folder)(text, truncation=True, max_length=32)[0]["label"]
print(json.dumps({"scores": scores, "label": named}))
"""


def test_export_of_a_mixed_model_in_a_fresh_process(project: Path) -> None:
    for stage, function, before in (
        ("search", search, None),
        ("finetune", finetune, "search"),
        ("evaluate", evaluate, "finetune"),
    ):
        context, records = run_cell(project, function, "weight_mixup", "cue_sentence", before=before)
        if stage == "evaluate":
            write_evaluation(context, records)
        else:
            write_training(context, stage, records)
    folder = export(Job(str(project), "weight_mixup", "cue_sentence", "24", 1))
    line = (project / "work/datasets/cue_sentence/dev.jsonl").read_text().splitlines()[0]
    text = json.loads(line)["text"]
    printed = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), text], capture_output=True, text=True, check=True, cwd=folder
    ).stdout
    found = json.loads(printed.splitlines()[-1])
    rows = project / "work/evaluate/weight_mixup/cue_sentence/24/predictions/seed-1/dev.jsonl"
    stored = json.loads(rows.read_text().splitlines()[0])
    assert found["scores"] == pytest.approx(stored["scores"], abs=1e-5)
    labels = Context(Job(str(project), "weight_mixup", "cue_sentence", "24", 1)).task["labels"]
    assert found["label"] == labels[stored["prediction"]]
    card = (folder / "README.md").read_text()
    assert "weight_mixup" in card
    assert "accuracy" in card


def test_a_run_that_has_no_model_says_why(project: Path) -> None:
    with pytest.raises(DataError, match="stage finetune@vanilla-cue_sentence"):
        export(Job(str(project), "vanilla", "cue_sentence", "24", 0))
    write_method(project, "breaks", regularisers=DIVERGES)
    context, records = run_cell(project, finetune, "breaks", "cue_sentence", before="search")
    write_training(context, "finetune", records)
    with pytest.raises(RunFailed, match="has no model: loss is"):
        export(Job(str(project), "breaks", "cue_sentence", "24", 0))


def test_what_is_not_in_the_grid_cannot_be_exported(project: Path) -> None:
    with pytest.raises(ConfigError, match=r"seed '7' is not listed"):
        export(Job(str(project), "vanilla", "cue_sentence", "24", 7))
