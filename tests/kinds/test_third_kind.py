"""A kind is one file: with it and a metric a task of the kind is prepared, trained, scored, reported and served."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.runs.code_copy import python, run, with_code
from tests.small_project import SCORES, TASK, build, review, write_csv

MORE = Path(__file__).parent / "more"
EXACT = '''\
"""The share of examples with exactly the right tags."""

from regft_core.lazy import np

KINDS = ("tags",)
LOWER_IS_BETTER = NEEDS_POSITIVE_LABEL = False
RANGE = (0.0, 1.0)


def score(gold, predicted, positive):
    return float(np.mean(gold == predicted))
'''
TAGGED: dict[str, Any] = {
    **TASK,
    "kind": "tags",
    "splits": {"train": "tags.csv", "dev": "tags-dev.csv"},
    "labels": ["bad", "good", "film"],
    "metrics": ["exact"],
    "primary": "exact",
    "submission": {"format": "glue", "files": {"T.tsv": "tags-dev.csv"}},
    "ood": {
        "mood": {
            "source": {"kind": "files"},
            "split": "mood.csv",
            "labels": ["good", "bad", "about"],
            "label_map": {"bad": "bad", "good": "good", "film": "about"},
        }
    },
}
RUN = """
import json
from pathlib import Path
import regft_core
from regft_core.api import load
assert Path(regft_core.__file__).is_relative_to(Path.cwd())
project = load(Path.cwd())
project.run("vanilla", "tagged")
project.run("r_drop", "tagged")
print(project.results()[["method", "set", "metric", "seed 0"]].to_json(orient="values"))
"""
KEYS = """
import json
from pathlib import Path
from regft_core.data.prepare import prepare_dataset
from regft_core.data.subsample import write_subsamples
from regft_core.runs.context import Context
from regft_core.runs.job import Job
from regft_core.runs.evaluate import evaluation_key
from regft_core.runs.project import open_project
project, found = open_project(Path.cwd()), {}
for task in ("reviews", "scores"):
    prepare_dataset(Path.cwd(), task, project.tasks)
    write_subsamples(Path.cwd(), task, [16], [0])
    context = Context(Job(".", "vanilla", task, "16", 0), project=project)
    found[task] = [context.keys.of("finetune"), evaluation_key(context, context.keys.of("finetune"))]
print(json.dumps(found))
"""


def tags_of(number: int) -> str:
    words = review(number).split()
    return "|".join(word for word in ("bad", "good", "film") if word in words)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    tasks = {"reviews": TASK, "scores": SCORES, "tagged": TAGGED}
    root = build(tmp_path / "project", tasks=tasks, grid={"tasks": ["reviews", "scores"]})
    for name, about, words in (("tags", "film", 6), ("tags-dev", "film", 4), ("mood", "about", 5)):
        rows = ((review(n, words), tags_of(n).replace("film", about)) for n in range(24))
        write_csv(root / f"data/{name}.csv", [("review", "verdict"), *rows])
    return with_code(root)


def add_the_kind(root: Path) -> None:
    shutil.copy(MORE / "tags.py", root / "regft_core" / "kinds")
    (root / "regft_core" / "metrics" / "exact.py").write_text(EXACT)


def test_it_is_used_from_its_yaml_to_predictions(project: Path) -> None:
    add_the_kind(project)
    params = yaml.safe_load((project / "params.yaml").read_text())
    params |= {"grid": {"tasks": ["tagged"], "sizes": [16], "seeds": [0]}, "methods": ["vanilla", "r_drop"]}
    params["subsample"] = {"stratified": True}
    params["evaluations"] = {"robustness": {"rates": [0.5]}}
    (project / "params.yaml").write_text(yaml.dump(params))
    scores = json.loads(python(project, RUN).splitlines()[-1])
    assert {(method, name, metric) for method, name, metric, _ in scores} == {
        (method, name, "exact") for method in ("vanilla", "r_drop") for name in ("dev", "mood")
    }
    folder = project / "work/evaluate/vanilla/tagged/16"
    (found,) = json.loads((folder / "result.json").read_text())["runs"]
    assert found["status"] == "ok"
    assert [file.name for file in (folder / "evaluations").iterdir()] == ["robustness.json"]
    assert json.loads((project / "work/datasets/tagged/task.json").read_text())["kind"] == "tags"
    counts = json.loads((project / "work/subsamples/tagged/16/manifest.json").read_text())["seeds"]["0"]["label_counts"]
    assert counts["bad"] + counts["good"] == 16

    cell = ["--method", "vanilla", "--task", "tagged", "--size", "16", "--seed", "0"]
    python(project, "-m stages.export", *cell)
    python(project, "-m stages.submission", *cell)
    model, out = "exports/vanilla-tagged-16-seed-0", project / "out.csv"
    python(project, "-m stages.predict", "--model", model, "--data", "data/tags-dev.csv", "--out", str(out))
    with out.open(newline="") as file:
        served = list(csv.DictReader(file))
    submitted = (project / "submissions/vanilla-tagged-16-seed-0/T.tsv").read_text().splitlines()[1:]
    assert [row["prediction"] for row in served] == [line.split("\t")[1] for line in submitted]
    assert list(served[0]) == ["row", "prediction", "probability_bad", "probability_good", "probability_film"]
    for row in served:
        sure = [name for name in TAGGED["labels"] if float(row[f"probability_{name}"]) > 0.5]
        assert row["prediction"] == "|".join(sure)


def test_without_its_file_the_task_is_refused(project: Path) -> None:
    params = yaml.safe_load((project / "params.yaml").read_text())
    params["grid"]["tasks"] = ["tagged"]
    (project / "params.yaml").write_text(yaml.dump(params))
    done = run(project, RUN)
    assert done.returncode != 0
    assert "unknown kind of task 'tags'; allowed: classification, multi_label, ordinal, regression" in done.stderr


def test_its_file_is_in_no_key_of_another_kind(project: Path) -> None:
    before = json.loads(python(project, KEYS))
    add_the_kind(project)
    assert json.loads(python(project, KEYS)) == before
    file = project / "regft_core/kinds/regression.py"
    file.write_text(file.read_text().replace("functional.mse_loss", "functional.l1_loss"))
    after = json.loads(python(project, KEYS))
    assert after["reviews"] == before["reviews"]
    assert not set(after["scores"]) & set(before["scores"])
