"""Edits while a pipeline runs: refused, nothing of them is stored, and the right bits once they are taken back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from regft_core.errors import PlanOutdated
from regft_core.grid import compute as module
from regft_core.grid.compute import compute
from regft_core.grid.keys import read_plan, stale_cells
from regft_core.runs.keyed import is_current
from regft_core.runs.run import STAGES
from tests.grid.conftest import bits, plan, quiet, reproduce
from tests.runs.code_copy import python, run, with_code
from tests.runs.conftest import TASK, change, edit, edit_method, runs, write_method

#: Runs the stages up to ``last``, whose first job edits a file of the code; says what failed.
EDITS = """
import json, sys
from pathlib import Path
from regft_core.runs.project import open_project
from regft_core.grid import compute as module
from regft_core.grid.data import prepare
from regft_core.grid.keys import write_plan

last, file, old, new = sys.argv[1:]
root = Path.cwd()
assert Path(module.__file__).is_relative_to(root)
prepare(open_project(root))
write_plan(open_project(root))
order, job, done, failures = ["search", "finetune", "evaluate"], module.run_job, [], {}

def then_edit(what, *, device):
    line = job(what, device=device)
    if not done:
        path = Path(file)
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, 1))
    done.append(what.seed)
    return line

for stage in order[: order.index(last) + 1]:
    if stage == last:
        module.run_job = then_edit
    failures |= module.compute(root, stage, say=lambda line: None)
print(json.dumps({"done": done, "failures": failures}))
"""

SOUP = {
    "finetune": {
        "data": {"split": 0.6},
        "repeat": {"times": 2, "merge": "greedy", "vary": ["order"]},
        "training": {"epochs": 1},
    }
}


@pytest.mark.parametrize(
    ("stage", "method", "file", "old", "new"),
    [
        ("finetune", "vanilla", "training/optim.py", "1.0 - progress", "1.1 - progress"),
        ("finetune", "soup", "metrics/accuracy.py", "gold == predicted", "gold != predicted"),
        ("evaluate", "vanilla", "evaluate/predict.py", "tokens < 1:", "tokens < 2:"),
    ],
    ids=["loop", "soup", "evaluation"],
)
def test_code_edited_between_two_runs_of_a_stage_is_refused_and_nothing_of_it_is_stored(
    project: Path, tmp_path: Path, stage: str, method: str, file: str, old: str, new: str
) -> None:
    write_method(project, "soup", phases=SOUP)
    change(project, methods=[method], report={"reference": method})
    whole = Path(shutil.copytree(project, tmp_path / "whole"))
    with_code(project)
    if stage == "evaluate":  # so that there is something left to evaluate
        reproduce(project)
        for path in (project / ".regft" / "runs").glob("*/*"):
            if path.is_dir() and json.loads((path / "identity.json").read_text())["phase"] == "evaluate":
                shutil.rmtree(path)
        shutil.rmtree(project / "work" / "evaluate")
    code = project / "regft_core" / file
    found = json.loads(python(project, EDITS, stage, str(code), old, new).splitlines()[-1])
    assert found["done"] == [0]
    (reason,) = set(found["failures"].values())
    assert "edited" in reason
    assert code.stem in reason
    assert not (project / "work" / stage / method).exists()
    # What there is was computed before the edit.
    before = runs(project)
    edit(code, new, old)
    shutil.rmtree(project / "regft_core")  # from here on, this very process, whose code is the same
    assert reproduce(project) == {}
    assert before.keys() < runs(project).keys()
    # The same keys and bits as in a project where nobody edited anything.
    assert reproduce(whole) == {}
    assert bits(project) == bits(whole)


def test_code_edited_after_the_plan_is_refused_before_anything_is_trained(project: Path) -> None:
    with_code(project)
    python(project, "-m stages.subsample")
    schedule = project / "regft_core/training/optim.py"
    edit(schedule, "1.0 - progress", "1.1 - progress")
    for stage in ("search", "finetune"):
        done = run(project, f"-m stages.{stage}")
        assert done.returncode == PlanOutdated.exit_code
        assert f"work/plan/{stage}.json is not the plan of this configuration" in done.stderr
        assert "Run `dvc repro` again" in done.stderr
    assert not list((project / ".regft").glob("runs/*/*"))
    edit(schedule, "1.1 - progress", "1.0 - progress")
    assert run(project, "-m stages.search").returncode == 0


CASES = {
    "a learning rate": lambda root: change(root, training={"learning_rate": 2e-3}),
    "an option": lambda root: edit_method(root, "hype_n", "1.0e-5", "2.0e-5"),
    "a seed": lambda root: change(root, grid={"seeds": [0]}),
    "the encoder": lambda root: edit(root / "models/tiny/config.json", '"tie', ' "tie'),
    "the pooling": lambda root: change(root, model={"pooling": "mean"}),
    "a row": lambda root: edit(root / "work/subsamples" / TASK / "24/seed-1.jsonl", "the", "teh"),
}


@pytest.mark.parametrize(
    ("case", "stage", "moment"),
    [
        ("a seed", "finetune", "before"),
        ("a row", "finetune", "during"),
        ("an option", "finetune", "during"),
        ("the encoder", "finetune", "during"),
        ("the pooling", "evaluate", "before"),
        ("a learning rate", "evaluate", "during"),
    ],
)
def test_what_changes_after_the_plan_is_not_written(
    project: Path, case: str, stage: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(project, methods=["hype_n"], report={"reference": "hype_n"})
    plan(project)
    if stage == "evaluate":
        compute(project, "finetune", say=quiet)
        change(project, store={"path": "another"})
        plan(project)
    if moment == "before":
        CASES[case](project)
        with pytest.raises(PlanOutdated, match=f"work/plan/{stage}.json is not the plan"):
            compute(project, stage, say=quiet)
        assert not (project / "work" / stage).exists()
        return
    original, cell = module.run_job, f"hype_n/{TASK}/24"

    def meanwhile(job: Any, *, device: str) -> str:
        line = original(job, device=device)
        if job.seed == 1:
            CASES[case](project)
        return line

    monkeypatch.setattr(module, "run_job", meanwhile)
    failures = compute(project, stage, say=quiet)
    if case in ("an option", "a learning rate"):  # the next plan's affair
        assert not failures
        assert is_current(project / "work" / stage / cell, read_plan(project, stage)[cell])
        plan(project)
        assert cell in stale_cells(project)
        return
    assert list(failures) == [cell]
    assert "run `dvc repro` again" in failures[cell]
    assert not (project / "work" / stage / "hype_n" / TASK).exists()


def test_the_plan_has_no_path_and_no_time(project: Path, tmp_path: Path) -> None:
    here = plan(project)
    copy = Path(shutil.copytree(project, tmp_path / "elsewhere"))
    assert plan(copy) == here
    for stage in STAGES:
        assert str(tmp_path) not in (copy / "work/plan" / f"{stage}.json").read_text()
