"""`regft preset` runs a preset beside the user's project, which it leaves alone; `regft fetch`, with a hub here."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml

from regft_core.runs.records import MARK
from tests.hub_double import Hub, Repository, serving
from tests.small_project import PARAMS, REPOSITORY, TASK, build, python, review, stage
from tests.tiny import tiny_model_dir


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
    preset.write_text(yaml.dump(PARAMS | {"methods": ["vanilla", "hype_n"]}))
    assert "`regft controls --preset hype --write`" in stage(project, "controls", "--preset", "hype").stdout
    preset.rename(shipped := project.parent / "shipped.yaml")  # a shipped file is every project's
    with patch("stages.methods.preset_file", lambda root, name: str(shipped)):
        refused = stage(project, "controls", "--preset", "hype", "--write")
    assert (refused.returncode, "[shipped-preset]" in refused.stderr) == (2, True)
    assert "hype_n_no_noise" not in shipped.read_text()
    shipped.rename(preset)
    changed = stage(project, "preset", "hype", "--set", "training.epochz=2")
    assert changed.returncode == 2
    assert "--set training.epochz=2: training.epochz: unknown key" in changed.stderr
    assert "did you mean 'epochs'" in changed.stderr


# ------------------------------------------------------------------------------------------------- fetched from a hub


COMMIT, ENCODER_COMMIT, WRONG = "a" * 40, "b" * 40, "c" * 40
HUB_TASK = TASK | {
    "source": {"kind": "hub", "id": "someone/reviews", "revision": COMMIT},
    "splits": {"train": "train", "dev": "validation"},
    "ood": {
        "shop": {"source": {"kind": "hub", "id": "someone/shop", "revision": "main"}, "split": "test"},
        "placed": {"source": {"kind": "files"}, "split": "placed.csv", "if_present": True},
    },
}


def table(rows: int) -> bytes:
    lines = [f"{review(n)},{('bad', 'good')[n % 2]}" for n in range(rows)]
    return "\n".join(["review,verdict", *lines, ""]).encode()


def bin_only(folder: Path) -> dict[str, bytes]:
    """The files of a tiny encoder whose weights are pickled, two names sharing one tensor."""
    import torch
    from safetensors.torch import load_file

    model = tiny_model_dir(folder, "bert")
    tensors = load_file(model / "model.safetensors")
    name = next(iter(tensors))
    tensors["tied"] = tensors[name]
    out = io.BytesIO()
    torch.save(tensors, out)
    files = {file.name: file.read_bytes() for file in model.iterdir() if file.suffix != ".safetensors"}
    return files | {"pytorch_model.bin": out.getvalue()}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return bin_only(tmp_path_factory.mktemp("encoder"))


@pytest.fixture
def hub(encoder: dict[str, bytes]) -> Iterator[Hub]:
    reviews = Repository("datasets", "someone/reviews", COMMIT, {"train.csv": table(30), "validation.csv": table(12)})
    shop = Repository("datasets", "someone/shop", WRONG, {"test.csv": table(8)})
    with serving(reviews, shop, Repository("models", "someone/encoder", ENCODER_COMMIT, encoder)) as served:
        yield served


@pytest.fixture
def root(tmp_path: Path) -> Path:
    model = {"name": "someone/encoder", "revision": ENCODER_COMMIT, "max_length": 32}
    root = build(tmp_path / "project", tasks={"reviews": HUB_TASK})
    (root / "pipelines" / "presets" / "hubbed.yaml").write_text(yaml.dump(PARAMS | {"model": model}))
    return root


def command(
    root: Path, hub_url: str, name: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    own = {"HF_ENDPOINT": hub_url, "HF_HOME": str(root.parent / "hf"), "PYTHONPATH": str(REPOSITORY)}
    own |= {"HF_HUB_OFFLINE": "0", "HF_DATASETS_OFFLINE": "0"}
    called = [sys.executable, "-m", "regft_core", name, *arguments]
    every = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", **own, **environment}
    return subprocess.run(called, cwd=root, env=every, capture_output=True, text=True, check=False)


def fetched(root: Path) -> list[str]:
    return sorted(path.parent.name for path in (root / ".datasets").rglob("source.json"))


def test_a_preset_is_planned_and_fetched_once(root: Path, hub: Hub) -> None:
    planned = command(root, hub.url, "preset", "hubbed", "--plan")
    assert planned.returncode == 0, planned.stderr
    assert "MISSING  someone/encoder at bbbbbbbbbbbb" in planned.stdout
    assert f"MISSING  reviews: someone/reviews at {COMMIT[:12]}, split train" in planned.stdout
    assert "shop (judges reviews): someone/shop at main (moving: no commit is pinned), split test" in planned.stdout
    assert "placed (judges reviews): there is no file data/placed.csv" in planned.stdout
    assert "-> regft fetch --preset hubbed" in planned.stdout
    assert not hub.asked  # a plan asks nobody
    done = command(root, hub.url, "fetch", "--preset", "hubbed")
    assert done.returncode == 0, done.stderr
    assert "by hand: placed (judges reviews): there is no file data/placed.csv" in done.stdout
    assert fetched(root) == ["test", "train", "validation"]
    shop = next((root / ".datasets" / "someone--shop").rglob("source.json"))
    assert json.loads(shop.read_text())["commit"] == WRONG  # what a moving revision was
    asked = len(hub.asked)
    again = command(root, hub.url, "fetch", "--preset", "hubbed")
    assert "fetched 0 things" in again.stdout
    assert len(hub.asked) == asked


def test_without_a_network_there_is_one_error_and_what_is_there_stays(root: Path, hub: Hub) -> None:
    url = hub.url
    hub.repositories = hub.repositories[:1]  # the other set is not found, the encoder neither
    first = command(root, url, "fetch", "--preset", "hubbed")
    assert first.returncode == 5
    assert "2 things could not be fetched" in first.stderr
    assert fetched(root) == ["train", "validation"]
    nobody = command(root, "http://127.0.0.1:9", "fetch", "--preset", "hubbed", HF_HUB_OFFLINE="1")
    assert nobody.returncode == 3
    assert nobody.stderr.count("regft:") == 1
    assert "hub-unreachable" in nobody.stderr
    assert "by hand: placed (judges reviews): there is no file data/placed.csv" in nobody.stdout
    assert "Traceback" not in nobody.stderr
    assert fetched(root) == ["train", "validation"]


@pytest.mark.slow
def test_a_download_that_is_cut_off_goes_on(root: Path, hub: Hub) -> None:
    hub.broken_after = 50
    cut = command(root, hub.url, "fetch", "--preset", "hubbed")
    assert cut.returncode != 0
    assert cut.stderr.count("regft:") == 1
    assert "Traceback" not in cut.stderr
    assert fetched(root) == ["test", "train", "validation"]
    assert not list((root / ".models").rglob("*.safetensors"))
    planned = command(root, hub.url, "preset", "hubbed", "--plan")
    assert "MISSING  someone/encoder" in planned.stdout
    hub.broken_after = None
    rows = [line for line in hub.asked if "/datasets/" in line]
    done = command(root, hub.url, "fetch", "--preset", "hubbed")
    assert done.returncode == 0, done.stderr
    assert "fetched 1 thing;" in done.stdout
    assert [line for line in hub.asked if "/datasets/" in line] == rows
    assert list((root / ".models").rglob("model.safetensors"))
