"""30: after fetching nothing asks the network, and no file outside a model's folder is opened through it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from regft_core.errors import RegftError
from tests.errors import raises_code
from tests.promises.kit import run_cells
from tests.small_project import REPOSITORY, build

#: A project from its run to its predictions in a Python in which every connection fails.
WHOLE = """
import runpy, socket, sys

def refuse(*arguments, **options):
    raise AssertionError(f"asked the network: {arguments}")


socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse

from regft_core.api import Project
project = Project.open(".")
project.run("vanilla", "reviews")
model = "exports/vanilla-reviews-16-seed-0"
for command in (["report"], ["export", "--method", "vanilla", "--seed", "0"],
                ["predict", "--model", model, "--data", "data/dev.csv", "--out", "o.csv"]):
    sys.argv = ["regft", *command]
    try:
        runpy.run_module("regft_core", run_name="__main__")
    except SystemExit as done:
        assert not done.code, (command, done.code)
"""


def test_a_project_runs_reports_and_predicts_without_a_network(tmp_path: Path) -> None:
    root = build(tmp_path / "project", grid={"seeds": [0]}, trackers=["mlflow"])
    # Whether the hub may be asked is read when its library is imported.
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "HF_HUB_OFFLINE": "", "TRANSFORMERS_OFFLINE": ""}
    command = [sys.executable, "-c", WHOLE]
    process = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    assert (root / "o.csv").is_file()


def test_a_model_that_leads_out_of_its_folder_or_brings_code_is_refused_or_its_code_not_run(tmp_path: Path) -> None:
    root = build(tmp_path / "project", grid={"seeds": [0]})
    model, weights = root / "models" / "tiny", "model.safetensors"
    shutil.move(model / weights, root / "models" / weights)
    index = {"weight_map": {"bert.embeddings.word_embeddings.weight": f"../{weights}"}}
    (model / f"{weights}.index.json").write_text(json.dumps(index))
    with raises_code(RegftError, "leads-elsewhere"):
        run_cells(root, ("vanilla", "reviews"))
    (model / f"{weights}.index.json").unlink()
    shutil.move(root / "models" / weights, model / weights)
    (model / "modeling_evil.py").write_text(
        "from pathlib import Path\nPath(__file__).with_name('ran').touch()\nclass Evil: pass\n"
    )
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "modeling_evil.Evil"}}))
    run_cells(root, ("vanilla", "reviews"))
    assert not (model / "ran").exists()
