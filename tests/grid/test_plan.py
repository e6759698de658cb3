"""The plan: which edit makes which cells stale, and the time of the grid."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from regft_core.disk.reading import read_json
from regft_core.grid import jobs, time
from regft_core.grid.cell_keys import cached_seeds, cell_keys, stale_cells
from regft_core.grid.executors import JobFailure, JobsFailed
from regft_core.grid.measured_lengths import known_lengths
from regft_core.grid.time import FORWARD, GPU_SPEED, SetSize, assumed, estimate, set_sizes, spend, still_to_train
from regft_core.models.source import encoder_weights
from regft_core.runs.context import Context
from regft_core.settings.cost import PlanRow, plan_rows
from regft_core.settings.project import Cell, cells
from regft_core.settings.read_project import open_project
from tests.grid.conftest import plan
from tests.runs.conftest import SIZE, TASK, change, edit, edit_method, job, train, write_method
from tests.small_project import stage as run_stage

SENTENCES = "pipelines/tasks/cue_sentence.yaml"
METHODS = ("vanilla", "hype_n", "weight_mixup")


def stale(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """``stage method task`` of every cell whose keys differ."""
    found = set()
    for stage in before:
        for name in before[stage].keys() | after[stage].keys():
            if before[stage].get(name) != after[stage].get(name):
                found.add(f"{stage} {' '.join(name.split('/')[:2])}")
    return found


def of(*stages: str, methods: tuple[str, ...] = METHODS, tasks: tuple[str, ...] = (TASK,)) -> set[str]:
    every = {f"{stage} {method} {task}" for stage in stages for method in methods for task in tasks}
    return {name for name in every if not name.startswith("search") or "weight_mixup" in name}


@pytest.fixture
def planned(project: Path) -> tuple[Path, dict[str, Any]]:
    return project, plan(project)


def test_matched_compute_is_that_of_the_method_whatever_its_batches(project: Path) -> None:
    layer = {"training": {"batch_size": 16}}
    change(project, training={"max_steps": 100, "batch_size": 8})
    change(project, method_settings={"uniform_soup": {"phases": {"members": layer, "finetune": layer}}})
    change(project, methods=["vanilla", "uniform_soup", "uniform_soup_matched_compute"])
    costs = [row.cost for row in plan_rows(open_project(project))]
    assert costs == [100.0, 1000.0, 1000.0]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(bytes(content))


def other_encoder(root: Path) -> None:
    """Give the task another encoder than the section ``model`` names."""
    shutil.copytree(root / "models/tiny", root / "models/other")
    flip(root / "models/other/model.safetensors")
    change(root, task_settings={TASK: {"model": {"name": "models/other"}}})
    assert [model.name for model in open_project(root).encoders()] == ["models/other"]


def other_primary(root: Path) -> None:
    """Let another metric rank the methods on the task."""
    edit(root / SENTENCES, "metrics:\n- accuracy", "metrics:\n- accuracy\n- matthews")
    change(root, task_settings={TASK: {"primary": "matthews"}})
    assert open_project(root).tasks[TASK].primary == "matthews"


TRAINED = ("search", "finetune", "evaluate")
EDITS = {
    "where a value is from": (
        lambda root: edit_method(root, "weight_mixup", "paper: appendix D.1", "paper: the appendix"),
        set(),
    ),
    "how runs are computed": (lambda root: change(root, execution={"checkpoint_seconds": 5, "threads": 2}), set()),
    "how the report compares": (lambda root: change(root, report={"confidence": 0.9}), set()),
    "a value of an early phase": (
        lambda root: edit_method(root, "weight_mixup", "times: 2", "times: 1"),
        of(*TRAINED, methods=("weight_mixup",)),
    ),
    "a value of the last phase": (
        lambda root: edit_method(root, "weight_mixup", "finetune:\n", "finetune:\n    training: {epochs: 3}\n"),
        of("finetune", "evaluate", methods=("weight_mixup",)),
    ),
    "a shared value": (lambda root: change(root, training={"learning_rate": 2e-3}), of(*TRAINED)),
    "the tokenizer": (lambda root: edit(root / "models/tiny/tokenizer.json", '"very"', '"ver"'), of(*TRAINED)),
    "how much of a text is read": (lambda root: change(root, model={"max_length": 16}), of(*TRAINED)),
    "how a text becomes one vector": (lambda root: change(root, model={"pooling": "mean"}), of(*TRAINED)),
    **{
        f"the shared {name}": (lambda root, name=name, to=to: change(root, training={name: to}), of(*TRAINED))
        for name, to in (("warmup_ratio", 0.2), ("bucket_batches", 1), ("dropout", {"attention": 0.2}))
    },
    "a seed": (lambda root: change(root, grid={"seeds": [0, 1, 2]}), of(*TRAINED)),
    "a size": (lambda root: change(root, grid={"sizes": [24, 16]}), of(*TRAINED)),
    "a method": (
        lambda root: change(root, methods=[*METHODS, "pats"]),
        of("finetune", "evaluate", methods=("pats",)),
    ),
    "a method that nobody lists": (lambda root: edit_method(root, "hype_u", "1.0e-5", "1.0e-4"), set()),
    "an evaluation": (lambda root: change(root, evaluations=["calibration"]), of("evaluate")),
    "the metric that ranks": (other_primary, of("evaluate")),
    "the encoder of a task": (other_encoder, of(*TRAINED)),
    "the task's training rows": (
        lambda root: edit(root / "data/cue_sentence/train.csv", "film", "movie"),
        of(*TRAINED),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", EDITS)
def test_which_edit_makes_what_stale(planned: tuple[Path, dict[str, Any]], case: str) -> None:
    root, before = planned
    happens, expected = EDITS[case]
    happens(root)
    assert stale(before, plan(root)) == expected


def test_keys_of_a_cell_are_those_of_its_runs(planned: tuple[Path, dict[str, Any]]) -> None:
    root, found = planned
    for method in METHODS:
        for seed in (0, 1):
            key = Context(job(root, method, seed)).key("finetune")
            assert found["finetune"][f"{method}/{TASK}/{SIZE}"]["runs"][str(seed)] == key


def test_a_declared_cost_is_written_down_anew(project: Path) -> None:
    """No key of a run holds it; the output of a stage does."""
    write_method(project, "half", phases={"head": {"regularisers": {"linear_head": {}}}, "finetune": {}})
    loaded = open_project(project)
    plan(project)
    keys = cell_keys(loaded, Cell("half", TASK, 24))
    change(project, training={"batch_size": 4})
    plan(project)
    assert cell_keys(open_project(project), Cell("half", TASK, 24))["finetune"]["with"] != keys["finetune"]["with"]


def test_the_plan_asks_the_run_store_and_work(project: Path) -> None:
    plan(project)
    train(project, "vanilla", 1)
    train(project, "weight_mixup", 0)
    loaded = open_project(project)
    found = {method: cached_seeds(loaded, Cell(method, TASK, 24)) for method in METHODS}
    assert found == {"vanilla": {1}, "hype_n": set(), "weight_mixup": {0}}
    change(project, grid={"seeds": [0, 1, 5]})  # a seed without rows hides no other
    assert cached_seeds(open_project(project), Cell("vanilla", TASK, 24)) == {1}
    change(project, training={"learning_rate": 2e-3})
    assert cached_seeds(open_project(project), Cell("vanilla", TASK, 24)) == set()


# --------------------------------------------------------------------------------------------------------------- time


#: Seconds of a token.
STEP = 0.001
#: 10 tokens of each row.
SIZES = {"train": SetSize(24, 10), "dev": SetSize(30, 10)}
#: Seconds of a plain step over a batch of 8.
BATCH = 8 * 10 * STEP
EVALUATION = 30 * 10 * STEP * FORWARD


@pytest.fixture(autouse=True)
def times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where measured times are kept."""
    monkeypatch.setattr(time, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache" / time.FILE


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Requests to the process that measures; it answers with ``STEP``."""
    asked: list[dict[str, Any]] = []

    def answer(requests: Any, function: Any, **order: Any) -> list[float]:
        asked.extend(requests)
        return [STEP]

    monkeypatch.setattr(time, "run_all", answer)
    monkeypatch.setattr(time, "SHORTEST", 0.0)
    return asked


def test_costs_become_seconds_by_stage_and_cell(project: Path) -> None:
    opened = open_project(project)
    rows = plan_rows(opened, lambda cell: {0} if cell.method == "vanilla" else set())
    found = spend(opened, rows, lambda cell: STEP, lambda task, encoder: SIZES)
    by_method = {row.cell.method: row for row in rows}
    vanilla = by_method["vanilla"]
    # One of two seeds is cached; batches of 8.
    assert found.cells[vanilla.cell] == pytest.approx(vanilla.cost * BATCH + EVALUATION)
    assert found.runs[vanilla.cell] == pytest.approx(found.cells[vanilla.cell])
    assert found.seconds == pytest.approx(sum(found.cells.values()))  # one at a time
    assert found.line().startswith("time: about ")


def test_a_step_is_measured_once_for_all_methods_and_kept(
    project: Path, times: Path, requests: list[dict[str, Any]]
) -> None:
    opened = open_project(project)
    found = estimate(opened)
    assert "measured" in found.speed
    assert [request["length"] for request in requests] == [32]
    assert estimate(opened) == found
    assert len(requests) == 1
    change(project, training={"batch_size": 4})
    estimate(open_project(project))
    assert len(requests) == 2
    times.write_text("{")
    change(project, execution={"executor": "ray"})  # a cluster of this machine, as it has no address
    assert "measured" in estimate(open_project(project)).speed
    assert len(requests) == 3


def test_a_measurement_is_of_one_device_and_its_kernels(
    project: Path, requests: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    change(project, execution={"executor": "processes", "device": "auto"})
    for devices, count in ((["cpu"], 1), (["cuda:0"], 2), (["cpu"], 2)):  # a GPU that is hidden for one call
        for module in (time, jobs):
            monkeypatch.setattr(module, "visible_devices", lambda _, devices=devices: devices)
        assert "measured" in estimate(open_project(project)).speed
        assert len(requests) == count
    change(project, execution={"deterministic": False})
    estimate(open_project(project))
    assert [request["kernels"] for request in requests] == [[True, False], [True, False], [False, False]]


def test_sizes_are_those_of_the_prepared_rows(project: Path) -> None:
    opened = open_project(project)
    task = opened.params.grid.tasks[0]
    shutil.rmtree(project / "work")
    assert set_sizes(opened, task, opened.model(task)) == {"train": SetSize(0, 32)}
    plan(project)
    lengths = read_json(project / "work" / "lengths" / f"{task}.json")["sets"]
    counts = read_json(project / "work" / "datasets" / task / "task.json")["sets"]
    sizes = set_sizes(opened, task, opened.model(task))
    assert set(sizes) == set(lengths) == {"train", *counts}
    for name, size in sizes.items():
        median, p95 = (min(32, lengths[name][part]) for part in ("median", "p95"))
        assert median / 2 < size.tokens <= p95
        assert size.rows == (counts[name]["n"] if name in counts else 0)


def test_nothing_is_measured_for_seconds_or_without_the_encoder(
    project: Path, requests: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "SHORTEST", 60.0)
    assert "too short" in estimate(open_project(project)).note
    change(project, execution={"executor": "slurm", "device": "auto"})
    elsewhere = estimate(open_project(project))
    assert "slurm" in elsewhere.note
    assert elsewhere.parallel == 64  # jobs at once, which execution.workers says nothing about
    change(project, execution={"device": "cpu"})
    assert estimate(open_project(project)).seconds > 100 * elsewhere.seconds
    change(project, model={"name": "FacebookAI/roberta-base", "revision": "e2da8e2f811d1448a5b465c236feacd80ffbac7b"})
    change(project, execution={"executor": "serial", "device": "cpu"})
    found = estimate(open_project(project))
    assert "not on this disk" in found.note
    assert found.note in found.line()
    assert found.seconds > 0
    assert requests == []
    assert (project / "work/datasets" / TASK / "task.json").is_file()
    assert known_lengths(open_project(project), TASK) is None  # else a dry run would download it


def test_a_measurement_that_fails_leaves_the_assumed_speed_and_its_reason(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(jobs: Any, function: Any, **order: Any) -> None:
        raise JobsFailed([JobFailure(0, jobs[0], "no memory")], [None])

    monkeypatch.setattr(time, "SHORTEST", 0.0)
    monkeypatch.setattr(time, "run_all", fail)
    found = estimate(open_project(project))
    assert "could not be measured" in found.note
    assert found.seconds > 0


def test_a_grid_that_is_done_asks_for_nothing(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = done
    plan(project)
    opened = open_project(project)
    assert stale_cells(project) == set()
    with monkeypatch.context() as patch:
        patch.setattr(time, "estimate", lambda *_: pytest.fail("estimated"))
        assert still_to_train(opened, [cell.directory for cell in cells(opened)]) is None  # all are in the run store
    change(project, grid={"seeds": [0, 1, 2]})
    plan(project)
    found = still_to_train(open_project(project), stale_cells(project))
    assert set(found.cells) == set(cells(opened))


def test_a_real_measurement_of_a_tiny_encoder(project: Path, times: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(time, "SHORTEST", 0.0)
        found = estimate(open_project(project))
    assert "measured" in found.speed, found.line()
    (seconds,) = read_json(times).values()
    assert seconds > 0
    assert found.runs[Cell("vanilla", "cue_sentence", 24)] > 0
    assert "assumed speed of a core, 1 run at a time" in " ".join(
        run_stage(project, "plan").stdout.split()
    )  # it is too short


def test_the_assumed_speed_of_a_gpu_is_six_operations_per_weight_and_token(project: Path) -> None:
    opened = open_project(project)
    known, unknown = cells(opened)[:2]
    weights = encoder_weights(opened.params.model.name, project)
    # Plain steps of one run, with batches of 8 rows of 32 tokens, such that 3 runs take 5 hours.
    steps = 5 * 3600 * GPU_SPEED["fp32"] / (3 * 32 * 6 * weights) / 8
    rows = [PlanRow(known, 3, 0, 10, 1, steps), PlanRow(unknown, 2, 0, *[None] * 3)]
    found = spend(opened, rows, lambda cell: assumed(opened, cell.task, on_cpu=False))
    assert (found.unknown, found.cells) == (2, {known: pytest.approx(5 * 3600)})
