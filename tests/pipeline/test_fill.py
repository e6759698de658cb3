"""A fill, then the real DVC: it commits what was filled and trains nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from regft_core.phases.facts import write_facts
from regft_core.phases.fill import stale_cells
from regft_core.phases.locked import Locked
from regft_core.phases.project import open_project
from tests.pipeline.conftest import change, dvc, edit, environment, ran, stored


def fill(root: Path) -> str:
    command = [sys.executable, "-m", "stages.fill"]
    done = subprocess.run(command, cwd=root, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def outputs(root: Path) -> dict[str, bytes]:
    folders = [root / "work" / name for name in ("search", "finetune", "evaluate", "metrics")]
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def empty(root: Path, *names: str) -> None:
    """Forget what DVC knows and has; ``names`` besides."""
    for path in (*root.glob("pipelines/*/dvc.lock"), root / "dvc.lock"):
        path.unlink()
    for name in (".dvc/cache", ".dvc/tmp", "work", *names):
        shutil.rmtree(root / name, ignore_errors=True)


def test_a_fill_leaves_nothing_but_commits_to_dvc(project: Path) -> None:
    plain = outputs(project)
    empty(project, ".regft")
    assert "4 pieces of work done" in fill(project)
    before = stored(project)
    dvc(project, "repro")
    filled = outputs(project)
    assert stored(project) == before
    assert filled.keys() == plain.keys()
    same = [name for name in plain if name.startswith("work/metrics") or "predictions" in name]
    assert {name: filled[name] for name in same} == {name: plain[name] for name in same}
    # Without the fill DVC comes to the same bytes from the store, every one of them.
    empty(project)
    dvc(project, "repro")
    assert outputs(project) == filled
    assert ran(dvc(project, "repro")) == ["facts"]
    assert "everything is in the run store" in fill(project)


def test_a_fill_leaves_no_trial_to_dvc(project: Path) -> None:
    change(project, tuning={"split": 0.75, "values": {"training.learning_rate": [0.0001, 0.001]}})
    said = fill(project)
    assert "2 runs and 4 trials before them" in said
    before = stored(project)
    dvc(project, "repro")
    assert stored(project) == before
    runs = json.loads((project / "work/finetune/vanilla/own/16/manifest.json").read_text())["runs"]
    assert [len(run["tuned"]["trials"]) for run in runs] == [2]
    assert "everything is in the run store" in fill(project)


def test_what_dvc_has_is_not_computed_again(project: Path) -> None:
    """A clone has the outputs in DVC's cache and an empty run store: `dvc repro` runs nothing, so a fill does not."""
    shutil.rmtree(project / ".regft")
    assert "everything is in the run store" in fill(project)
    assert stored(project) == 0


def test_stale_is_what_dvc_would_run(project: Path) -> None:
    def stale() -> set[str]:
        opened = open_project(project)
        write_facts(opened)
        return {"-".join(cell) for cell in stale_cells(opened)}

    assert stale() == set()
    edit(project / "pipelines/methods/chain.yaml", "max_steps: 1", "max_steps: 3")
    assert stale() == {"chain-own"}
    edit(project / "params.yaml", "learning_rate: 0.001", "learning_rate: 0.002")
    assert stale() == {"chain-own", "vanilla-own"}
    edit(project / "params.yaml", "learning_rate: 0.002", "learning_rate: 0.001")
    edit(project / "pipelines/methods/chain.yaml", "max_steps: 3", "max_steps: 1")
    edit(project / "pipelines/tasks/own.yaml", "[accuracy]", "[accuracy, f1_macro]")
    assert stale() == {"chain-own", "vanilla-own"}  # by the code that evaluates, which has another metric
    assert not Locked(project).data("own")
    assert "pieces of work done" in fill(project)  # the data first, then two evaluations
