"""26: a method, a metric, a kind, a family, an evaluation or an executor of one's own is one file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModel, ErnieConfig

from tests.promises.kit import change, change_task, done, regft, with_own_method, write_method
from tests.small_project import REPOSITORY, TASK, build, review, stage, write_csv

METRIC = """
KINDS = ("classification", "tags")
LOWER_IS_BETTER = NEEDS_POSITIVE_LABEL = False
RANGE = (0.0, 1.0)


def score(gold, predicted, positive):
    return float((gold == predicted).mean())
"""
FAMILY = """
from dataclasses import replace

from regft_core.models.families import SHIPPED

FAMILY = replace(SHIPPED["bert"].FAMILY, name="ernie")
"""
EXECUTOR = """
from regft_core.grid.executors.serial import run
"""
TAGS = REPOSITORY / "tests" / "kinds" / "more" / "tags.py"


def tags(number: int) -> str:
    """The words of a text that are labels."""
    words = review(number).split()
    return "|".join(word for word in ("bad", "good", "film") if word in words)


def test_a_kind_that_no_training_works_with_is_refused_with_its_line(tmp_path: Path) -> None:
    root = build(tmp_path / "project", tasks={"tagged": TASK}, grid={"tasks": ["tagged"], "seeds": [0]})
    change_task(root, "tagged", kind="tags", labels=["bad", "good"], metrics=["hits"], primary="hits", ood={})
    right = TAGS.read_text()
    for folder, name, text in (("metrics", "hits", METRIC), ("kinds", "tags", right)):
        (root / folder).mkdir()
        (root / folder / f"{name}.py").write_text(text)
    assert regft(root, "check").returncode == 0
    for method, old, new in (
        ("read_label", "return sum(1 << labels.index(tag) for tag in set(given))", "return [given]"),
        ("predictions", "np.bitwise_or.reduce((logits > 0) * (1 << to_set), axis=1)", "logits[:, :, 0]"),
        ("scores", "np.zeros((len(logits), width))", "np.zeros((len(logits), width + 1))"),
    ):
        assert old in right
        (root / "kinds/tags.py").write_text(right.replace(old, new))
        line = next(number for number, text in enumerate(right.splitlines(), 1) if f"def {method}(" in text)
        refused = regft(root, "check")
        assert refused.returncode == 2
        assert f"kinds/tags.py:{line}: Tags.{method}: " in refused.stderr
        assert "[kind-not-possible]" in refused.stderr


def test_all_of_them_are_found_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = build(tmp_path / "project", tasks={"tagged": TASK}, grid={"tasks": ["tagged"], "seeds": [0]})
    trained = with_own_method(root)
    monkeypatch.setenv("REGFT_TEST_TRAINED", str(trained))
    for folder, name, text in (
        ("metrics", "hits", METRIC),
        ("families", "ernie", FAMILY),
        ("executors", "in_turn", EXECUTOR),
        ("kinds", "tags", TAGS.read_text()),
    ):
        (root / folder).mkdir()
        (root / folder / f"{name}.py").write_text(text)
    change(root, execution={"executor": "in_turn"})
    change_task(root, "tagged", kind="tags", labels=["bad", "good", "film"], metrics=["hits"], primary="hits", ood={})
    for name in ("train", "dev"):
        write_csv(root / "data" / f"{name}.csv", [("review", "verdict"), *((review(n), tags(n)) for n in range(24))])
    encoder = root / "models" / "tiny"
    kept = ("size", "layers", "heads", "token_id")
    sizes = {name: n for name, n in json.loads((encoder / "config.json").read_text()).items() if name.endswith(kept)}
    AutoModel.from_config(ErnieConfig(**sizes)).save_pretrained(encoder)
    for name in ("check", "subsample", "search", "finetune", "evaluate", "report"):
        done(root, name)
    results = json.loads((root / "reports" / "results.json").read_text())["tagged-16"]
    assert {name: list(scores["dev"]) for name, scores in results.items()} == {
        "vanilla": ["hits"],
        "stretched": ["hits"],
    }
    assert len(trained.read_text().split()) == 1
    done(root, "export", "--method", "vanilla", "--task", "tagged", "--size", "16", "--seed", "0")
    model, rows, out = "exports/vanilla-tagged-16-seed-0", str(root / "data" / "dev.csv"), str(tmp_path / "answers.csv")
    done(root, "predict", "--model", model, "--data", rows, "--out", out)
    assert len(Path(out).read_text().splitlines()) == 25
    refused = regft(tmp_path, "predict", "--model", str(root / model), "--data", rows, "--out", out, "--overwrite")
    assert refused.returncode == 4
    assert "kinds/tags.py" in refused.stderr.split("[unknown-kind]")[1]


#: Folder -> the section of ``params.yaml``, or the key of a task, that uses its file ``broken``.
USES: dict[str, dict[str, Any]] = {
    "methods": {},
    "kinds": {"kind": "broken"},
    "metrics": {"metrics": ["accuracy", "broken"]},
    "evaluations": {"evaluations": {"broken": {}}},
    "executors": {"execution": {"executor": "broken"}},
}
RAISES = "x = 1\nraise ValueError('no')\n"


@pytest.mark.parametrize(
    ("folder", "text", "code"),
    [*((folder, RAISES, "cannot-import") for folder in USES), ("executors", "run = 3\n", "bad-executor")],
)
def test_a_broken_file_is_an_error_with_its_line_only_where_it_is_used(
    tmp_path: Path, folder: str, text: str, code: str
) -> None:
    root = build(tmp_path / "project")
    (root / folder).mkdir()
    (root / folder / "broken.py").write_text(text)
    assert stage(root, "check").returncode == 0
    if folder == "methods":
        write_method(root, "uses", regularisers={"broken": {}})
    elif folder in ("kinds", "metrics"):
        change_task(root, "reviews", **USES[folder])
    else:
        change(root, **USES[folder])
    process = stage(root, "check")
    shutil.rmtree(root)
    assert process.returncode == 2
    assert f"{folder}/broken.py{':2' * (text == RAISES)}: " in process.stderr
    assert f"[{code}]" in process.stderr
    assert "Traceback" not in process.stderr
