"""``regft store verify``: what is damaged, and what does not come out the same again."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from regft_core.errors import DataError, StoreError
from regft_core.grid.failures import torch_threads
from regft_core.io.canonical import canonical_json, sha256_file, sha256_text
from regft_core.io.tensors import read_tensors, write_tensors
from regft_core.runs.context import project_store
from regft_core.runs.project import open_project
from regft_core.runs.recompute import differences, expected, jobs_of, recompute
from regft_core.runs.store.run_store import RunStore
from regft_core.runs.store.stored_run import run_key
from stages.store import _prune
from tests.errors import raises_code
from tests.small_project import stage


@pytest.fixture
def project(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "project"))


def store_of(root: Path) -> RunStore:
    return project_store(open_project(root))


def resealed(path: Path, file: str) -> None:
    """Write the file's hash into the run's manifest, as if it had been stored so."""
    manifest = json.loads((path / "manifest.json").read_text())
    entry = {"bytes": (path / file).stat().st_size, "sha256": sha256_file(path / file)}
    manifest["files"][file] = manifest["files"][file] | entry
    (path / "manifest.json").write_text(json.dumps(manifest))


def test_a_store_is_hashed_and_some_of_it_computed_again(project: Path) -> None:
    done = stage(project, "store", "verify", "--recompute", "3")
    assert done.returncode == 0, done.stderr
    assert ", 0 damaged" in done.stdout
    assert "computed again: 3, of which 3 with all bits as they were stored" in done.stdout
    assert done.stdout.count("  same: ") == 3


def test_damage_ends_with_what_to_delete(project: Path) -> None:
    store = store_of(project)
    key = next(key for key in list(store.keys()) if "weights" in store.get(key).tensor_names)  # type: ignore[union-attr]
    (store.directory(key) / "weights.safetensors").write_bytes(b"0" * 8)
    done = stage(project, "store", "verify")
    assert done.returncode == 6
    assert f"  {store.directory(key)}: " in done.stderr
    assert "weights.safetensors" in done.stderr
    assert "delete the folders that are named" in done.stderr


def test_what_is_stored_under_the_key_of_something_else_is_found(project: Path) -> None:
    """Intact by its own hashes: only computing it again tells."""
    opened, store = open_project(project), store_of(project)
    known = expected(opened, jobs_of(opened))
    weights = next(k for k in sorted(known) if "weights" in store.get(k).tensor_names)  # type: ignore[union-attr]
    folder = store.directory(weights)
    tensors = read_tensors(folder / "weights.safetensors")
    first = min(tensors)
    write_tensors(folder / "weights.safetensors", tensors | {first: tensors[first] * 1.0001})
    resealed(folder, "weights.safetensors")
    scores = next(key for key in sorted(known) if known[key].phase == "evaluate" and known[key].job.seed == 1)
    prediction = next(file for file in store.get(scores).files if file.startswith("predictions/"))  # type: ignore[union-attr]
    (store.directory(scores) / prediction).write_text("{}")
    resealed(store.directory(scores), prediction)
    assert store.verify() == []
    with torch_threads(1):
        found = recompute(opened, store, len(known), "cpu", random.Random(0))
    assert found.not_compared == {}
    assert found.different[weights] == f"{known[weights].name}: tensors 'weights'"
    assert f"file {prediction}" in found.different[scores]
    evaluation_of_it = {k for k, made in known.items() if made.identity.get("run") == weights}
    assert found.different.keys() <= {weights, scores} | evaluation_of_it
    assert len(found.same) == len(known) - len(found.different)


def test_what_cannot_be_computed_again_is_told_with_the_reason(project: Path) -> None:
    opened, store = open_project(project), store_of(project)
    known = expected(opened, jobs_of(opened))
    params = yaml.safe_load((project / "params.yaml").read_text())
    params["methods"], params["training"]["learning_rate"] = ["vanilla"], 5e-4
    params["grid"]["tasks"] = ["reviews"]
    (project / "params.yaml").write_text(yaml.dump(params))
    changed = open_project(project)
    with torch_threads(1):
        found = recompute(changed, store, 5, "cpu", random.Random(0))
    assert (found.same, found.different, found.not_compared) == ([], {}, {})
    assert any("training protocol" in why for why in found.foreign)
    assert sum(found.foreign.values()) == len(list(store.keys()))
    key, made = next((k, m) for k, m in known.items() if m.phase == "finetune")
    stored = store.get(key)
    assert stored is not None
    with torch_threads(2), pytest.raises(DataError, match=r"computed on .*threads 1; this is .*threads 2"):
        differences(opened, made, stored, "cpu")


def test_the_keys_of_a_project_are_those_of_its_store(project: Path) -> None:
    opened, store = open_project(project), store_of(project)
    known = expected(opened, jobs_of(opened))
    assert set(known) == set(store.keys())
    for key, made in known.items():
        assert run_key(made.identity) == key == sha256_text(canonical_json(made.identity))


def test_a_store_is_pruned_to_its_budget_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with raises_code(StoreError, "no-budget"):
        _prune(RunStore(tmp_path))
    identity = {"seed": 0}
    with RunStore(tmp_path).open(run_key(identity), identity) as run:
        run.commit({}, {"weights": {"w": torch.ones(100)}})
    _prune(RunStore(tmp_path, 10))
    assert "0.0 GB remain of 1 MB allowed; 1 run lost weights or checkpoints" in capsys.readouterr().out
