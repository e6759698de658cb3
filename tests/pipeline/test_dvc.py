"""The real pipeline under the real DVC: what runs again after which edit."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml

from tests.tiny import tiny_model_dir

REPOSITORY = Path(__file__).resolve().parents[2]
PARAMS = {
    "model": {"name": "models/tiny", "max_length": 32},
    "grid": {"tasks": ["cue_sentence"], "sizes": [16], "seeds": [0]},
    "protocols": {"finetune": ["vanilla"], "search_finetune": ["weight_mixup"]},
    "subsample": {"stratified": False},
    "training": {"epochs": 1, "batch_size": 8, "learning_rate": 1e-3},
    "execution": {"executor": "serial", "device": "cpu"},
    "report": {"reference": "vanilla", "bootstrap_samples": 200},
}


def dvc(root: Path, *arguments: str) -> str:
    """Run a dvc command in the project; returns what it printed."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "DVC_NO_ANALYTICS": "1",
        # Byte code appears in the watched folders, as on a user's machine.
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPATH": "",
    }
    done = subprocess.run(
        [sys.executable, "-m", "dvc", *arguments], cwd=root, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def ran(output: str) -> list[str]:
    """Names of the stages that ``dvc repro`` executed, without the file they are in."""
    return [name.rsplit(":", 1)[-1] for name in re.findall(r"Running stage '([^']+)'", output)]


def stale(root: Path) -> set[str]:
    return {name.rsplit(":", 1)[-1] for name in json.loads(dvc(root, "status", "--json").splitlines()[-1])}


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def example_method() -> str:
    """The method file that CONTRIBUTING.md shows."""
    blocks = re.findall(r"```python\n(.*?)```", (REPOSITORY / "CONTRIBUTING.md").read_text(), flags=re.DOTALL)
    return textwrap.dedent("   " + blocks[0].lstrip(" "))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pipeline") / "project"
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("regft_core", "stages", "pipelines", "data", "dvc.yaml"):
        source = REPOSITORY / name
        (shutil.copytree(source, root / name, ignore=ignore) if source.is_dir() else shutil.copy(source, root / name))
    for lock in root.rglob("dvc.lock"):
        lock.unlink()
    shutil.copytree(tiny_model_dir(tmp_path_factory.mktemp("model"), "bert"), root / "models" / "tiny")
    task = root / "pipelines" / "tasks" / "cue_sentence.yaml"
    text = re.sub(r"rows: \{[^}]*\}", "rows: {train: 60, dev: 40, no_cue: 40, reversed: 40}", task.read_text())
    task.write_text(text)
    (root / "params.yaml").write_text("# what to run\n" + yaml.dump(PARAMS, sort_keys=False))
    dvc(root, "init", "--no-scm", "-q")
    shutil.copy(REPOSITORY / ".dvcignore", root / ".dvcignore")
    return root


def test_the_pipeline_from_nothing_through_every_kind_of_edit(project: Path) -> None:
    first = dvc(project, "repro")
    assert set(ran(first)) == {
        "code",
        "dataset@cue_sentence",
        "subsample@cue_sentence-16",
        "finetune@vanilla-cue_sentence-16",
        "evaluate@vanilla-cue_sentence-16",
        "search@weight_mixup-cue_sentence-16",
        "finetune@weight_mixup-cue_sentence-16",
        "evaluate@weight_mixup-cue_sentence-16",
        "report",
    }
    for name in ("report.html", "metrics.json", "results.json", "plots/curves.csv", "plots/leaderboard.csv"):
        assert (project / "reports" / name).is_file()
    assert (project / "mlflow.db").is_file()
    shown = json.loads(dvc(project, "metrics", "show", "--json"))
    assert any("work/metrics/vanilla/cue_sentence-16.json" in str(entry) for entry in shown.values())

    # Nothing changed: nothing runs. Comments, and settings that cannot change results: neither.
    assert ran(dvc(project, "repro")) == []
    for name in ("params.yaml", "pipelines/methods/vanilla.yaml", "pipelines/tasks/cue_sentence.yaml"):
        path = project / name
        path.write_text("# another comment\n" + path.read_text())
    edit(project / "params.yaml", "executor: serial", "executor: serial  # one after the other")
    edit(project / "params.yaml", "device: cpu", "device: auto")
    assert stale(project) == set()

    # A hyper-parameter of one method: that method's phases and nothing else.
    method = project / "pipelines" / "methods" / "weight_mixup.yaml"
    edit(method, "epochs: 1", "epochs: 2")
    assert stale(project) == {"search@weight_mixup-cue_sentence-16"}
    edit(method, "epochs: 2", "epochs: 1")
    assert stale(project) == set()

    # Documentation in the code: only the fingerprints are taken again; a changed loss is another matter.
    loop = project / "regft_core" / "training" / "loop.py"
    loop.write_text("# a new comment\n" + loop.read_text().replace("The only training loop.", "Another docstring."))
    assert ran(dvc(project, "repro")) == ["code"]
    mixup = project / "regft_core" / "methods" / "weight_mixup.py"
    mixup.write_text(mixup.read_text() + "\nADDED = 1\n")
    dvc(project, "repro", "code")
    assert stale(project) == {"search@weight_mixup-cue_sentence-16", "finetune@weight_mixup-cue_sentence-16"}
    mixup.write_text(mixup.read_text().replace("\nADDED = 1\n", ""))
    dvc(project, "repro", "code")
    assert stale(project) == set()

    # A seed: cells are entered again, but the run store trains the new seed only.
    runs = len(list((project / ".regft" / "runs").glob("*/*/result.json")))
    edit(project / "params.yaml", "- 0\n", "- 0\n  - 1\n")
    output = dvc(project, "repro")
    assert "finetune@vanilla-cue_sentence-16" in ran(output)
    added = len(list((project / ".regft" / "runs").glob("*/*/result.json"))) - runs
    assert added == 2 + 2 + 3  # two fine-tunings, two evaluations, and a search of two parts

    # A method of one's own (the example of CONTRIBUTING.md): one file, one YAML, one line; its cells run.
    (project / "regft_core" / "methods" / "label_noise.py").write_text(example_method())
    own = {"description": "a test", "regularisers": [{"label_noise": {"scale": 0.1}}], "training": {}}
    (project / "pipelines" / "methods" / "label_noise.yaml").write_text(yaml.dump(own))
    edit(project / "params.yaml", "- vanilla\n", "- vanilla\n  - label_noise\n")
    output = ran(dvc(project, "repro"))
    assert set(output) == {
        "code",
        "finetune@label_noise-cue_sentence-16",
        "evaluate@label_noise-cue_sentence-16",
        "report",
    }

    # Taking it away again: the report alone.
    edit(project / "params.yaml", "- vanilla\n  - label_noise\n", "- vanilla\n")
    assert set(ran(dvc(project, "repro"))) - {"code"} == {"report"}
    assert "label_noise" not in json.loads((project / "reports" / "metrics.json").read_text())["cue_sentence-16"]

    # Deleted stage outputs come back from DVC's cache without training.
    shutil.rmtree(project / "work" / "finetune")
    assert not [name for name in ran(dvc(project, "repro")) if name.startswith(("search", "finetune"))]


def test_a_typo_stops_everything_before_any_stage_trains(project: Path) -> None:
    before = (project / "params.yaml").read_text()
    edit(project / "params.yaml", "learning_rate", "learning_rat")
    done = subprocess.run(
        [sys.executable, "-m", "regft_core.config"], cwd=project, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert re.search(r"params.yaml:\d+", done.stderr)
    assert "learning_rate" in done.stderr
    (project / "params.yaml").write_text(before)
