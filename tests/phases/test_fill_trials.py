"""A fill runs trials, then what they have chosen: the runs that the stages make, and nothing is left to them."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regft_core.errors import RunFailed
from regft_core.io import read_json
from regft_core.phases import fill as module
from regft_core.phases.facts import write_facts
from regft_core.phases.fill import fill
from regft_core.phases.pieces import plan_work
from regft_core.phases.project import open_project
from regft_core.phases.ready import folder_of
from tests.errors import raises_code
from tests.phases.conftest import SIZE, TASK, change, runs, stored
from tests.phases.other_executors import on_other_executors
from tests.phases.test_fill import quiet, run_all_stages
from tests.phases.test_kill import FORK

RATES = {"training.learning_rate": [1e-6, 3e-3]}
TUNING: dict[str, Any] = {"split": 0.75, "values": RATES}


def bits(root: Path) -> dict[str, dict[str, str]]:
    """Key -> hashes of the tensors of every run in the store."""
    found = {key: stored(root, key) for key in runs(root)}
    return {key: {name: run.tensors_sha256(name) for name in run.tensor_names} for key, run in found.items()}


def scores(outputs: dict[str, bytes]) -> dict[str, bytes]:
    return {path: text for path, text in outputs.items() if "metrics/" in path or "predictions" in path}


def tuned_runs(root: Path, method: str) -> list[dict[str, Any]]:
    return list(read_json(root / "work" / "finetune" / method / TASK / SIZE / "manifest.json")["runs"])


@pytest.fixture
def tuned(project: Path) -> Callable[..., Path]:
    """The project with tuned ``methods``, and its facts."""

    def make(*methods: str, **tuning: Any) -> Path:
        change(project, methods=list(methods), report={"reference": methods[0]}, tuning={**TUNING, **tuning})
        write_facts(open_project(project))
        return project

    return make


def test_a_fill_makes_the_runs_of_the_stages_trials_too(
    tuned: Callable[..., Path], trained: list[tuple[str, int]]
) -> None:
    root = tuned("vanilla", "weight_mixup")
    said: list[str] = []
    # For each of two seeds: two trials and the run; of weight mixup each trial has its search before it.
    assert fill(root, say=said.append) == 2 * (2 + 1) + 2 * (2 * 2 + 1)
    assert said[0] == "4 runs and 8 trials before them to compute, in 16 pieces on the executor 'serial'"
    assert sum("(chosen: training.learning_rate " in line for line in said) == 4
    filled = bits(root)
    trained.clear()
    from_ready = run_all_stages(root, ready=True)
    assert not list((root / "work" / "ready").rglob("stamp"))  # all of it was taken
    assert run_all_stages(root, ready=False) == from_ready
    assert trained == []
    assert bits(root) == filled
    assert fill(root, say=quiet) == 0
    for method in ("vanilla", "weight_mixup"):
        assert [len(run["tuned"]["trials"]) for run in tuned_runs(root, method)] == [2, 2]
    # The stages alone, in a store of their own: the same keys, the same weights, the same scores.
    change(root, store={"path": "another"})
    alone = run_all_stages(root, ready=False)
    assert trained
    assert bits(root) == filled
    assert scores(alone) == scores(from_ready)


def test_where_seeds_choose_together_each_waits_for_the_trials_of_all(
    tuned: Callable[..., Path], trained: list[tuple[str, int]]
) -> None:
    root = tuned("vanilla", selection="dev_as_published")
    work = plan_work(open_project(root), [("vanilla", TASK)])
    names = [piece.name for piece in work.pieces]
    for seed in (0, 1):
        before = {names[index] for index in work.after[names.index(f"vanilla {TASK} {SIZE} seed {seed}")]}
        assert before == {f"vanilla {TASK} {SIZE} seed {s} trial {t}" for s in (0, 1) for t in (1, 2)}
    assert fill(root, say=quiet) == 6
    assert trained == [("finetune", 0), ("finetune", 0), ("finetune", 1), ("finetune", 1)]  # a chosen trial is the run
    run_all_stages(root, ready=True)
    assert len({run["tuned"]["chosen"] for run in tuned_runs(root, "vanilla")}) == 1
    assert len(trained) == 4


def test_trials_share_a_phase_that_their_values_do_not_touch(
    tuned: Callable[..., Path], trained: list[tuple[str, int]]
) -> None:
    own = {"weight_mixup": {"phases.finetune.training.learning_rate": [1e-6, 3e-3]}}
    root = tuned("weight_mixup", values={}, methods=own)
    assert fill(root, say=quiet) == 2 * (1 + 2 + 1)
    # Two members each of the search that the trials share and of that on all rows; two trials and the run.
    assert Counter(trained) == {(phase, seed): n for phase, n in (("search", 4), ("finetune", 3)) for seed in (0, 1)}
    trained.clear()
    run_all_stages(root, ready=True)
    assert trained == []


#: After the second seed's first trial, and after its last: what is left is its second trial, or only the runs.
@pytest.mark.parametrize(("point", "left"), [("commit.renamed:6", 3), ("commit.renamed:8", 2)])
def test_a_fill_killed_before_the_choice_goes_on_with_what_is_left(
    tuned: Callable[..., Path],
    trained: list[tuple[str, int]],
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    left: int,
) -> None:
    root = tuned("vanilla")
    with monkeypatch.context() as patched:
        patched.setenv("REGFT_KILL_AT", point)
        process = FORK.Process(target=fill, args=(root,), kwargs={"say": quiet})
        process.start()
        process.join(timeout=120)
    assert process.exitcode == -signal.SIGKILL
    assert fill(root, say=quiet) == left
    assert len(trained) == left
    trained.clear()
    filled = bits(root)
    run_all_stages(root, ready=True)
    assert trained == []
    change(root, store={"path": "another"})
    run_all_stages(root, ready=False)
    assert bits(root) == filled


def test_a_trial_that_raises_stops_its_own_run_only(
    tuned: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tuned("vanilla")
    original = module.try_values

    def failing(job: Any, **options: Any) -> Any:
        if (job.seed, job.trial) == (1, 0):
            raise OSError("the disk is gone")
        return original(job, **options)

    with monkeypatch.context() as patched:
        patched.setattr(module, "try_values", failing)
        needs = f"was not started, because it needs vanilla {TASK} {SIZE} seed 1 trial 1"
        with raises_code(RunFailed, "jobs-failed", "2 of 6", "the disk is gone", needs):
            fill(root, say=quiet)
    assert not folder_of(root, "finetune", "vanilla", TASK).exists()
    assert fill(root, say=quiet) == 2
    assert folder_of(root, "finetune", "vanilla", TASK).is_dir()


@on_other_executors
def test_on_other_executors_the_runs_find_what_was_chosen(
    tuned: Callable[..., Path],
    trained: list[tuple[str, int]],
    monkeypatch: pytest.MonkeyPatch,
    executor: str,
    package: str,
    options: dict[str, Any],
) -> None:
    pytest.importorskip(package, reason=f"an optional extra: pip install -e '.[{executor}]'")
    root = tuned("vanilla")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    monkeypatch.chdir(root)
    change(root, execution={"executor": executor, "workers": 2, **options})
    assert fill(root, say=quiet) == 6
    filled = bits(root)
    for name in options:
        change(root, execution={name: None})
    change(root, execution={"executor": "serial"})
    run_all_stages(root, ready=False)
    assert trained == []
    assert bits(root) == filled
