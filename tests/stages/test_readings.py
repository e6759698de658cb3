"""Embedders, an instruction, windows and prompts in a project: from params.yaml to the predictions of an export."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from regft_core.api import Project
from regft_core.errors import ConfigError
from regft_core.evaluate.analysis_result import Unfit
from regft_core.evaluate.hidden import editable
from regft_core.models.export_record import read_served
from regft_core.runs.context import Context, Job
from regft_core.runs.finished_model import FinishedModel
from regft_core.serve.export import export
from regft_core.serve.model import load_served
from regft_core.serve.predict import predict_file
from tests.errors import problems_of
from tests.promises.kit import done
from tests.small_project import PAIRS, TASK, build, predictions, python, read_csv, read_jsonl, review, stage, write_csv
from tests.tiny import EMBEDDERS

#: Two windows of 8 tokens and a rest that is cut, behind an instruction.
READING = {"prompt": "see the film : ", "windows": 2, "stride": 2, "max_length": 16}


@pytest.fixture(scope="module", params=EMBEDDERS)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every way to train on an embedder, and one evaluation that looks into rows."""
    root = tmp_path_factory.mktemp(request.param) / "project"
    methods = ["vanilla", "lp_ft", "lora"]
    build(
        root,
        tasks={"reviews": TASK, "pairs": PAIRS},
        words=14,
        encoder=request.param,
        methods=methods,
        grid={"tasks": ["reviews", "pairs"], "seeds": [0]},
        model={"pooling": EMBEDDERS[request.param], **READING},
    )
    rows = [(review(n, 3 + n), ("bad", "good")[n % 2]) for n in range(32)]
    write_csv(root / "data" / "dev.csv", [("review", "verdict"), *rows])
    done = Project.open(root)
    for method in methods[1:]:
        for task in ("reviews", "pairs"):
            done.run(method, task)
    return root


@pytest.mark.parametrize("task", ["reviews", "pairs"])
@pytest.mark.parametrize("method", ["lp_ft", "lora"])
def test_an_export_gives_the_scores_of_the_evaluation(project: Path, tmp_path: Path, method: str, task: str) -> None:
    directory = export(Job(str(project), method, task, "16", 0), tmp_path / "model")
    served = read_served(directory)
    assert (served.instruction, served.windows, served.stride) == ("see the film : ", 2, 2)
    model = load_served(directory, "cpu")
    file = "dev" if task == "reviews" else "pairs-dev"
    counted = predict_file(model, project / "data" / f"{file}.csv", tmp_path / "out.csv")
    found = read_csv(tmp_path / "out.csv")
    assert len(found) == 32
    for row, one in zip(found, predictions(project, method, task, seed=0), strict=True):
        scores = [float(row["probability_bad"]), float(row["probability_good"])]
        assert scores == pytest.approx(one["scores"], abs=2e-6)
    if task == "reviews":
        assert 0 < counted.cut < 32
        card = (directory / "README.md").read_text()
        assert "up to 2 windows that share 2 tokens" in card
        assert "classifier('see the film : a text')" in card


def test_how_texts_are_read_is_in_the_key_and_what_cannot_read_windows_says_so(project: Path) -> None:
    context = Context(Job(str(project), "lora", "reviews", "16", 0))
    trained, phase = FinishedModel(context), context.phase("finetune")
    for look in (trained.batches, editable):
        with pytest.raises(Unfit, match=r"model\.windows"):
            list(look(trained.encode(phase.rows.examples)))
    identity = phase.identity()
    wanted = {"prompt": "see the film : ", "windows": 2, "stride": 2}
    assert {name: identity["model"][name] for name in wanted} == wanted
    lengths = json.loads((project / "work" / "lengths" / "reviews.json").read_text())
    assert lengths["windows"] == 2
    assert 0 < lengths["sets"]["dev"]["cut"] < 1


def test_methods_that_cannot_read_windows_are_refused_by_name(project: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(project, copy, ignore=shutil.ignore_patterns("work", ".regft"))
    params = (copy / "params.yaml").read_text().replace("- lora", "- freelb")
    (copy / "params.yaml").write_text(params)
    done = stage(copy, "check")
    assert done.returncode != 0
    assert "'freelb' does not run with model.windows" in done.stderr + done.stdout


# ------------------------------------------------------------------------------------------------------------ prompts


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
    answered = python(folder, "-c", SCRIPT, str(folder), text)
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
