"""Prompt-based fine-tuning in all stages: trained, evaluated out of distribution, reported, exported, predicted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from regft_core.api import Project
from regft_core.errors import ConfigError
from regft_core.runs.opened_project import Job
from regft_core.serve.export import export
from tests import warm
from tests.errors import problems_of
from tests.promises.kit import done
from tests.small_project import TASK, build, predictions, read_csv, read_jsonl, write_csv

PROMPT = {"template": "{text} it was [MASK] .", "words": {"bad": "sad", "good": "happy"}}
#: Out of distribution, labels have other names and another order.
OTHER = {
    "source": {"kind": "files"},
    "split": "shop.csv",
    "labels": ["up", "down"],
    "label_map": {"bad": "down", "good": "up"},
}
REVIEWS: dict[str, Any] = {**TASK, "prompt": PROMPT, "ood": {"shop": OTHER}}
METHODS = ["vanilla", "prompt_fine_tuning", "prompt_fine_tuning_drawn", "prompt_fine_tuning_demonstrations"]

SCRIPT = """
import json, sys
from transformers import pipeline
serve = pipeline("text-classification", model=sys.argv[1], trust_remote_code=True, top_k=None)
found = {row["label"]: row["score"] for row in serve([f"{sys.argv[2]} it was [MASK] ."])[0]}
print(json.dumps([found["bad"], found["good"]]))
try:
    serve([sys.argv[2]])
except ValueError as error:
    assert "template" in str(error)
else:
    raise SystemExit("answered a text outside of the template")
assert "regft_core" not in sys.modules
"""


def prepared(root: Path, *, task: dict[str, Any] = REVIEWS, **changes: Any) -> Path:
    build(root, tasks={"reviews": task}, **{"methods": METHODS, "encoder": "bert-mlm", **changes})
    rows, names = read_csv(root / "data" / "shop.csv"), {"bad": "down", "good": "up"}
    write_csv(root / "data" / "shop.csv", [[*rows[0]], *((row["review"], names[row["verdict"]]) for row in rows)])
    return root


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = prepared(tmp_path_factory.mktemp("prompts") / "project", model={"max_length": 64}, grid={"seeds": [1]})
    project = Project.open(root)
    for method in METHODS:
        project.run(method, "reviews")
    done(root, "report")
    return root


@pytest.mark.parametrize(
    "method", ["prompt_fine_tuning", "prompt_fine_tuning_drawn", "prompt_fine_tuning_demonstrations"]
)
def test_an_export_predicts_what_was_scored(trained: Path, method: str, tmp_path: Path) -> None:
    folder = export(Job(str(trained), method, "reviews", "16", 1), tmp_path / "model")
    done(trained, "predict", "--model", str(folder), "--data", "data/dev.csv", "--out", str(tmp_path / "found.jsonl"))
    found = read_jsonl(tmp_path / "found.jsonl")
    known = predictions(trained, method, "reviews")
    assert len(found) == len(known)
    for one, other in zip(found, known, strict=True):
        assert [one["probability_bad"], one["probability_good"]] == pytest.approx(other["scores"], abs=1e-6)


def test_an_export_answers_in_the_pipeline_and_refuses_other_texts(trained: Path, tmp_path: Path) -> None:
    folder = export(Job(str(trained), "prompt_fine_tuning", "reviews", "16", 1), tmp_path / "model")
    text = read_csv(trained / "data" / "dev.csv")[0]["review"]
    answered = warm.run(folder, "-c", SCRIPT, str(folder), text, environment=dict(os.environ))
    assert answered.returncode == 0, answered.stderr
    evaluated = predictions(trained, "prompt_fine_tuning", "reviews")[0]["scores"]
    assert json.loads(answered.stdout) == pytest.approx(evaluated, abs=1e-5)
    card = (folder / "README.md").read_text()
    assert "classifier('a text it was [MASK] .')" in card


def test_a_checkpoint_without_a_head_has_one_trained_and_is_marked(tmp_path: Path) -> None:
    root = prepared(tmp_path / "project", encoder="bert", methods=METHODS[:2], grid={"seeds": [1]})
    Project.open(root).run("prompt_fine_tuning", "reviews")
    manifest = (root / "work" / "finetune" / "prompt_fine_tuning" / "reviews" / "16" / "manifest.json").read_text()
    assert "masked-LM head was trained on the task's training text, the checkpoint has none" in manifest


# ---------------------------------------------------------------------------------- refusals


def test_a_word_of_several_tokens_is_refused(tmp_path: Path) -> None:
    words = {"bad": "terrible", "good": "happy"}
    root = prepared(tmp_path / "project", task={**REVIEWS, "prompt": {**PROMPT, "words": words}}, methods=METHODS[:2])
    with pytest.raises(ConfigError) as caught:
        Project.open(root).run("prompt_fine_tuning", "reviews")
    assert "pipelines/tasks/reviews.yaml:" in str(caught.value)
    assert "'terrible' is not one token of this tokenizer but 't', '##e'" in str(caught.value)


def test_the_method_its_pooling_and_a_prompt_need_each_other(tmp_path: Path) -> None:
    task = {**TASK, "ood": {}}
    root = prepared(tmp_path / "project", task=task, methods=["vanilla", "prompt_fine_tuning", "alone", "pooled"])
    (root / "pipelines/methods/alone.yaml").write_text("regularisers: {verbaliser: {}}\n")
    (root / "pipelines/methods/pooled.yaml").write_text("model: {pooling: mask}\n")
    files = {problem.file for problem in problems_of(Project.open, root) if problem.code == "bad-composition"}
    assert files == {f"pipelines/methods/{name}.yaml" for name in ("prompt_fine_tuning", "alone", "pooled")}
