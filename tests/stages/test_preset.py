"""`regft preset`: a preset runs beside the user's own project and leaves it alone."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
import yaml

from regft_core.runs.records import MARK
from tests.small_project import PARAMS, build, python, stage


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = build(tmp_path_factory.mktemp("preset") / "project")
    preset = PARAMS | {"execution": {"device": "cpu"}, "trackers": ["mlflow"]}
    (root / "pipelines" / "presets" / "small.yaml").write_text(yaml.dump(preset))
    (root / "work").mkdir()
    (root / "work" / "mine").write_text("kept")
    return root


def files(root: Path) -> dict[str, bytes]:
    own = [path for path in root.rglob("*") if path.is_file() and "presets/small" not in path.as_posix()]
    return {path.as_posix(): path.read_bytes() for path in own if ".regft" not in path.parts}


def test_a_preset_at_small_scale_runs_in_its_own_folder_and_is_marked_everywhere(project: Path) -> None:
    before = files(project)
    planned = stage(project, "plan", "--preset", "small")
    assert planned.returncode == 0, planned.stderr
    assert "2 of 2 runs to train" in planned.stdout
    assert "assumed speed" in planned.stdout
    changes = ["--set", "grid.seeds=[0]", "--set", "ood=none", "--set", "model.name=models/tiny"]
    command = ["-m", "regft_core", "preset", "small", "--scale", "small", *changes, "--set", "model.max_length=16"]
    done = python(project, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Running stage 'finetune'" in done.stdout
    assert files(project) == before
    assert list((project / ".regft" / "runs").glob("*/*/result.json"))
    folder = project / "presets" / "small.small"
    assert yaml.safe_load((folder / "params.yaml").read_text())["grid"]["seeds"] == [0]
    first = "Not the paper's experiment: preset small at small scale."
    results = json.loads((folder / "reports" / "results.json").read_text())
    mark = results[MARK]
    assert mark.startswith(first)
    assert results["reviews-32"]["vanilla"]
    assert done.stdout.count(first) >= 2  # before it runs, above the table
    page = (folder / "reports" / "report.html").read_text()
    head = page[: page.index("<main>")]
    assert "not the paper's experiment" in head
    assert first.replace("'", "&#39;") in head
    with sqlite3.connect(folder / "mlflow.db") as database:
        tags = database.execute("select distinct value from tags where key = ?", (MARK,)).fetchall()
    assert tags == [(mark,)]
    exported = stage(folder, "export", "--method", "vanilla", "--task", "reviews", "--size", "32", "--seed", "0")
    assert exported.returncode == 0, exported.stderr
    card = next((folder / "exports").glob("*/README.md")).read_text()
    assert f"> **{mark}**" in card
    planned = stage(project, "preset", "small", "--scale", "small", *changes, "--plan")
    assert planned.stdout.startswith(first), planned.stderr


def test_mistakes_name_the_presets_own_lines(project: Path) -> None:
    wrong = yaml.dump(PARAMS).replace("epochs: 1", "epochz: 1")
    (project / "pipelines" / "presets" / "wrong.yaml").write_text(wrong)
    line = next(number for number, text in enumerate(wrong.splitlines(), 1) if "epochz" in text)
    done = stage(project, "preset", "wrong")
    assert done.returncode == 2
    assert f"pipelines/presets/wrong.yaml:{line}: training.epochz" in done.stderr
    assert not (project / "presets" / "wrong").exists()
    preset = project / "pipelines" / "presets" / "hype.yaml"
    preset.write_text(yaml.dump(PARAMS | {"methods": ["vanilla", "hype_n"]}))
    added = stage(project, "controls", "--preset", "hype", "--write")
    assert "added to pipelines/presets/hype.yaml" in added.stdout, added.stderr
    assert "hype_n_no_noise" in yaml.safe_load(preset.read_text())["methods"]
    changed = stage(project, "preset", "hype", "--set", "training.epochz=2")
    assert changed.returncode == 2
    assert "--set training.epochz=2: training.epochz: unknown key" in changed.stderr
    assert "did you mean 'epochs'" in changed.stderr
