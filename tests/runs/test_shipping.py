"""Jobs on hosts without the project: what they read travels by content, and the bits are those of a run at home."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from regft_core.catalogue import EXECUTORS
from regft_core.data import prepare
from regft_core.data.prepare import prepare_dataset
from regft_core.data.subsample import write_subsamples
from regft_core.errors import DataError
from regft_core.grid import bundle
from regft_core.grid.compute import compute_only
from regft_core.grid.executors import run_all
from regft_core.grid.pool import run_on_executor
from regft_core.runs import shipping as module
from regft_core.runs.context import Context
from regft_core.runs.evaluate import evaluation_key
from regft_core.runs.job import Job
from regft_core.runs.prepared_rows import task_inputs
from regft_core.runs.project import open_project
from regft_core.runs.run import run
from regft_core.runs.shipping import carry, files_for, run_where_found
from regft_core.runs.store.run_store import RunStore
from tests import small_project
from tests.errors import raises_code
from tests.extras import needs
from tests.runs.conftest import REPOSITORY, TASK, change, job, write_method
from tests.runs.on_host import FOLDER, identify, see

SEARCHES = "weight_mixup"


@pytest.fixture(autouse=True)
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of a host on which nothing is known yet."""
    monkeypatch.setenv("REGFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "_found", {})
    monkeypatch.setattr(bundle, "_intact", set())
    return tmp_path / "cache"


def arrives(project: Path, *jobs: Job, gone: bool = True) -> list[Job]:
    """The jobs as they arrive on a host, which does not have the project's folder if it is ``gone``."""
    shipped = carry(open_project(project), jobs)
    away = project.with_name("away")
    if gone:
        project.rename(away)
    try:
        return [run_where_found(see, shipped, one, device="cpu") for one in jobs]
    finally:
        if gone:
            away.rename(project)


def keys(one: Job) -> list[str]:
    context = Context(one)
    finetuned = context.keys.of("finetune")
    return [*(context.keys.of(phase.name) for phase in context.method.phases), evaluation_key(context, finetuned)]


@pytest.fixture
def shared(project: Path, tmp_path: Path) -> Path:
    change(project, store={"path": str(tmp_path / "shared")})
    return project


def test_keys_know_no_paths(project: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(project, tmp_path / "deep" / "below" / "another"))
    change(other, store={"path": str(tmp_path / "elsewhere")})
    for method in ("vanilla", SEARCHES):
        assert keys(job(project, method)) == keys(job(other, method))


def test_a_host_without_the_project_makes_a_copy_with_the_same_keys(shared: Path, host: Path, tmp_path: Path) -> None:
    before = [keys(job(shared, method)) for method in ("vanilla", SEARCHES)]
    arrived = arrives(shared, job(shared, "vanilla"), job(shared, SEARCHES))
    shared.rename(tmp_path / "really away")
    roots = {one.root for one in arrived}
    assert len(roots) == 1
    assert Path(roots.pop()).is_relative_to(host)
    assert [keys(one) for one in arrived] == before
    assert Context(arrived[0]).store.path == tmp_path / "shared"


def test_a_host_with_the_project_uses_it_and_copies_nothing(shared: Path, host: Path) -> None:
    one = job(shared, "vanilla")
    assert arrives(shared, one, gone=False) == [one]
    assert not list(host.glob("bundles/*/"))
    assert not (host / "objects").exists()


def test_another_project_at_the_same_path_is_not_taken_for_it(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = job(shared, "vanilla")
    before, shipped = keys(one), carry(open_project(shared), [one])
    change(shared, training={"learning_rate": 5e-3})
    arrived = run_where_found(see, shipped, one, device="cpu")
    assert arrived.root != one.root
    assert keys(arrived) == before
    change(shared, training={"learning_rate": 1e-3})
    monkeypatch.setattr(module, "_found", {})
    weights = shared / "models/tiny/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")  # another encoder under the same name
    assert run_where_found(see, shipped, one, device="cpu").root != one.root


def test_a_host_that_shares_no_folder_has_a_store_for_each_remote(project: Path, host: Path, tmp_path: Path) -> None:
    """What is complete in one remote storage would else never be published in another."""
    one, stores = job(project, "vanilla"), set()
    before = keys(one)
    for bucket in ("one", "other"):
        change(project, store={"remote": (tmp_path / bucket).as_uri()})
        (arrived,) = arrives(project, one)
        assert keys(arrived) == before
        context = Context(arrived)
        assert context.store.remote is not None
        assert context.store.path.is_relative_to(host)
        stores.add(context.store.path)
    assert len(stores) == 2


def test_without_a_place_the_folder_must_be_shared(project: Path) -> None:
    one = job(project, "vanilla")
    assert arrives(project, one, gone=False) == [one]
    module._found.clear()
    with raises_code(DataError, "project-not-here"):
        arrives(project, one)


def test_an_encoder_from_anywhere_goes_along(project: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "encoders" / "mine"
    shutil.copytree(project / "models/tiny", elsewhere)
    (elsewhere / "notes.txt").write_text("nothing that a run reads")
    change(project, model={"name": str(elsewhere)}, store={"path": "../shared"})
    one = job(project, "vanilla")
    before, source = keys(one), Context(one).source
    (arrived,) = arrives(project, one)
    shutil.rmtree(tmp_path / "encoders")
    copied = Context(arrived)
    assert keys(arrived) == before
    assert (copied.source.name, copied.source.content_sha256) == (source.name, source.content_sha256)
    assert not (copied.source.path / "notes.txt").exists()
    assert copied.store.path == tmp_path / "shared"
    assert copied.tokenizer.pad_token_id is not None


def test_rows_of_another_task_go_along(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    early = {"data": {"task": "cue_pair", "size": 8}, "training": {"max_steps": 1}}
    write_method(shared, "intermediate", phases={"early": early, "finetune": {}})
    one = job(shared, "intermediate")
    before = keys(one)
    (arrived,) = arrives(shared, one)
    shutil.rmtree(Context(one).store.path / "datasets")
    monkeypatch.setattr(prepare, "prepare_dataset", lambda *_: pytest.fail("rows were made again"))
    assert keys(arrived) == before


def test_a_project_of_files_opens_in_a_copy(tmp_path: Path) -> None:
    root = small_project.build(tmp_path / "files")
    change(root, store={"path": "../shared"})
    project = open_project(root)
    prepare_dataset(root, "reviews", project.tasks, root / "work" / "datasets" / "reviews")
    write_subsamples(root, "reviews", project.params.grid.sizes, project.params.grid.seeds, True)
    one = Job(str(root), "vanilla", "reviews", "16", 0)
    before, fact = keys(one), task_inputs(project, "reviews")
    data = {name for name in files_for(project, [one]) if name.startswith("data/")}
    assert data == {"data/train.csv", "data/dev.csv", "data/shop.csv"}  # there are others, which nothing names
    (arrived,) = arrives(root, one)
    assert keys(arrived) == before
    assert task_inputs(open_project(Path(arrived.root)), "reviews") == fact


def test_local_executors_publish_nothing(shared: Path, tmp_path: Path) -> None:
    one = job(shared, "vanilla")
    seen: list[Job] = []
    run_on_executor(open_project(shared), [one], see, on_result=lambda _, arrived: seen.append(arrived))
    assert seen == [one]
    assert not (tmp_path / "shared" / "inputs").exists()


# ------------------------------------------------------------------------------------- a host of its own


@pytest.mark.parametrize(
    ("executor", "package"),
    [("slurm", "submitit"), pytest.param("ray", "ray", marks=pytest.mark.slow)],
)
def test_the_real_executors_bring_a_job_its_project(
    shared: Path, tmp_path: Path, host: Path, monkeypatch: pytest.MonkeyPatch, executor: str, package: str
) -> None:
    needs(package, executor)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    one, settings = job(shared, "vanilla"), dict[str, Any](device="cpu")
    if executor == "slurm":
        settings |= {"cluster": "local", "minutes": 5, "memory_gb": 1, "shared": str(tmp_path / "shared")}
    key, shipped = keys(one)[0], carry(open_project(shared), [one])
    shared.rename(tmp_path / "away")
    work = partial(run_where_found, identify, shipped)
    ((root, store, found),) = run_all([one], work, executor=executor, threads=1, settings=settings)
    assert Path(root).is_relative_to(host)
    assert (store, found) == (str(tmp_path / "shared"), key)
    assert not list(tmp_path.glob(".regft-slurm"))  # a node might not see where the project is


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, project: Path) -> Iterator[None]:
    """The executor that runs jobs while the project is away."""
    monkeypatch.setenv("REGFT_TEST_PROJECT", str(project))
    with EXECUTORS.also(FOLDER):
        yield


def contents(store: RunStore, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Key -> tensors, predictions and logits of runs, byte by byte; of their records what no clock decides."""
    found = {}
    for key in keys:
        run = store.restore(key)  # with the weights, which may be in the remote storage alone
        assert run is not None
        files: dict[str, Any] = {name: run.read_bytes(name) for name in run.files}
        files |= {path.name: path.read_bytes() for path in run.path.glob("*.safetensors")}
        files["record"] = [run.result.get(name) for name in ("final_loss", "steps", "sets", "status")]
        found[key] = files
    return found


@pytest.mark.parametrize(
    ("method", "place"), [("vanilla", "shared"), pytest.param(SEARCHES, "remote", marks=pytest.mark.slow)]
)
def test_runs_on_a_host_without_the_project_are_those_at_home(
    project: Path, tmp_path: Path, host: Path, elsewhere: None, method: str, place: str
) -> None:
    change(project, methods=[method], grid={"seeds": [0]}, report={"reference": method})
    home = Path(shutil.copytree(project, tmp_path / "home"))
    run(job(home, method))
    there = {"path": str(tmp_path / "shared")} if place == "shared" else {"remote": (tmp_path / "bucket").as_uri()}
    change(project, store=there, execution={"executor": "elsewhere"})
    for _ in range(2):  # the second time there is nothing to do
        assert compute_only(project, "evaluate", [f"{method}/{TASK}"], lambda _: None) == {}
    here, expected = Context(job(project, method)).store, Context(job(home, method)).store
    keys = list(expected.keys())
    assert contents(here, keys) == contents(expected, keys)
    assert (tmp_path / ("shared" if place == "shared" else "bucket") / "inputs" / "bundles").is_dir()
    assert len(list(host.glob("bundles/*/params.yaml"))) == 1
    assert bool(list(host.glob("stores/*/runs"))) == (place == "remote")
