"""The real pipeline under the real DVC: from nothing, what an edit runs again, failures, experiments, clones."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow import MlflowClient

from regft_core.settings.read_project import open_project
from regft_core.tracking import sync
from tests.execution.test_executors import eventually
from tests.promises.conftest import REPOSITORY, attempt, dvc, environment, git, ran, stored
from tests.promises.kit import change, edit, weights, with_own_method
from tests.small_project import build, python

ALL = ["subsample", "search", "finetune", "evaluate", "report"]
CHAIN = "pipelines/methods/chain.yaml"


def tree(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def reported(root: Path) -> dict[str, Any]:
    """Method -> what the report has of it."""
    return dict(json.loads((root / "reports/results.json").read_text())["reviews-16"])


def cells(root: Path) -> dict[str, int]:
    """When every cell of every stage was written."""
    return {
        path.parent.relative_to(root / "work").as_posix(): path.stat().st_mtime_ns
        for stage in ("search", "finetune", "evaluate")
        for path in (root / "work" / stage).rglob("key.json")
    }


def test_everything_from_nothing(reproduced: Path) -> None:
    assert ran((reproduced.parent / "output").read_text()) == ALL
    for name in (
        "report.html",
        "metrics/reviews-16.json",
        "results.json",
        "tables/scores.csv",
        "tables/costs.csv",
        "tables/runs.csv",
        "tables/curves.csv",
        "plots/leaderboard/reviews-16.svg",
        "plots/loss/reviews-16.svg",
    ):
        assert (reproduced / "reports" / name).is_file()
    assert (reproduced / "mlflow.db").is_file()
    assert (reproduced / "work/evaluate/chain/reviews/16/predictions/seed-0/shop.jsonl").is_file()
    assert [path.name for path in (reproduced / "work/search").iterdir() if path.is_dir()] == ["chain"]
    assert (reproduced / "dvc.lock").stat().st_size < 5000  # whatever the grid: no line for a cell


#: One after the other: the file, old and new text, the stages that run, the cells that are written again.
EDITS: list[tuple[str, str, str, list[str], set[str]]] = [
    (CHAIN, "A chain of phases", "Phases in a chain", ["report"], set()),
    (
        "pipelines/tasks/reviews.yaml",
        "- accuracy\n",
        "- accuracy\n- f1_macro\n",
        ["evaluate", "report"],
        {"evaluate/chain/reviews/16", "evaluate/vanilla/reviews/16"},
    ),
    (
        CHAIN,
        "scale: 0.00001",
        "scale: 0.3",
        ["finetune", "evaluate", "report"],  # the phases before fine-tuning are as they were
        {"finetune/chain/reviews/16", "evaluate/chain/reviews/16"},
    ),
    ("params.yaml", "- chain\n", "", ["search", "finetune", "evaluate", "report"], set()),
]


def test_an_edit_runs_what_follows_of_it(project: Path) -> None:
    # Edits on which no result depends come with the first one.
    edit(project / CHAIN, "# Two phases", "# Phases")
    edit(project / CHAIN, "1.0e-5", "0.00001")
    edit(project / "params.yaml", "# what to run\n", "# what to run now\n\n")
    change(project, execution={"executor": "processes", "workers": 2})
    for file, old, new, stages, rewritten in EDITS:
        before = cells(project)
        edit(project / file, old, new)
        assert ran(dvc(project, "repro")) == ["subsample", *stages], (file, old)
        assert {name for name, when in cells(project).items() if before.get(name) != when} == rewritten, (file, old)
        change(project, execution={"executor": "serial"})
    assert "chain" not in {path.name for path in (project / "work").rglob("*")}  # it has left the grid


def test_a_new_seed_and_a_method_of_ones_own(project: Path) -> None:
    """The example of docs/own_method.md: one file, one YAML, one line."""
    before = stored(project)
    blocks = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs/own_method.md").read_text(), flags=re.DOTALL)
    code = textwrap.dedent("   " + blocks[0].lstrip(" "))
    name = re.findall(r'^    name = "(\w+)"', code, flags=re.MULTILINE)[0]
    (project / f"regft_core/methods/{name}.py").write_text(code)
    own = {"description": "a test", "regularisers": {name: {}}}
    (project / f"pipelines/methods/{name}.yaml").write_text(yaml.dump(own))
    edit(project / "params.yaml", "- vanilla\n", f"- vanilla\n- {name}\n")
    edit(project / "params.yaml", "- 0\n", "- 0\n  - 1\n")
    assert ran(dvc(project, "repro")) == ALL
    # Of the new seed two phases, two runs and two evaluations; of the new method two runs and two evaluations.
    assert stored(project) == before + 6 + 4
    assert name in reported(project)


RUN = """
from regft_core.api import Project
project = Project.open(".")
for method in ("vanilla", "stretched"):
    project.run(method, "reviews")
"""


def test_without_dvc_only_what_an_edit_changes_is_trained_again(tmp_path: Path) -> None:
    root = build(tmp_path / "project", methods=["vanilla"], grid={"seeds": [0]})
    log = with_own_method(root, data_file=True)
    code, settings = root / "methods" / "stretched.py", root / "pipelines" / "methods" / "stretched.yaml"

    def runs() -> tuple[int, int]:
        """How often the method was trained so far, and how many runs with weights there are."""
        done = python(root, "-c", RUN, REGFT_TEST_TRAINED=str(log))
        assert done.returncode == 0, done.stderr
        return len(log.read_text().split()), len(weights(root))

    assert runs() == (1, 2)
    edit(code, '"""Gradients times a number."""', '"""Gradients, longer."""  # a comment')
    edit(settings, "description: a test", "description: other words")
    assert runs() == (1, 2)
    edit(settings, "1.5", "1.75")
    assert runs() == (2, 3)
    edit(code, "self.options.by * SCALE", "SCALE * self.options.by * 1.01")
    assert runs() == (3, 4)
    (root / "methods" / "stretched.txt").write_text("1.25")
    assert runs() == (4, 5)


# ---------------------------------------------------------------------------- what DVC shows


def test_what_dvc_shows_after_one_changed_value(project: Path) -> None:
    edit(project / "params.yaml", "bootstrap_samples: 200", "bootstrap_samples: 300")
    assert ran(dvc(project, "repro")) == ["subsample", "report"]
    assert json.loads(dvc(project, "params", "diff", "--json")) == {
        "params.yaml": {"report.bootstrap_samples": {"old": 200, "new": 300, "diff": 100}}
    }
    assert json.loads(dvc(project, "metrics", "diff", "--json")) == {}
    columns = dvc(project, "exp", "show", "--csv").splitlines()[0].split(",")
    first = columns.index("method")
    assert columns[first : first + 3] == ["method", "score", "set_shop"]  # one seed has no interval
    assert not [name for name in columns[first + 3 :] if name.startswith(("dev.", "vs_"))]
    # A line for each block, and nothing from the net on the page; the leaderboard is its first picture.
    assert [*json.loads(dvc(project, "metrics", "show", "--json"))[""]["data"]] == ["reports/metrics/reviews-16.json"]
    dvc(project, "plots", "diff", "HEAD")
    page = (project / "dvc_plots" / "index.html").read_text()
    pictures = re.findall(r'<img src="([^"]+)"', page)
    assert [re.sub(".*_plots_", "", picture) for picture in pictures] == [
        *["leaderboard_reviews-16.svg"] * 2,
        *["loss_reviews-16.svg"] * 2,
    ]
    assert all((project / "dvc_plots" / picture).is_file() for picture in pictures)
    assert "http" not in page
    assert max(len(line.rstrip()) for line in dvc(project, "dag").splitlines()) <= 80


# ------------------------------------------------------------------------------ what DVC has


def test_what_dvc_has_is_not_computed_again(project: Path, tmp_path: Path) -> None:
    """Deleted outputs, a deleted run store, another clone with `dvc pull`: nothing is trained."""
    before, outputs = tree(project / "work" / "evaluate"), tree(project / "work" / "finetune")
    runs = stored(project)
    shutil.rmtree(project / "work" / "finetune")
    (project / "work/search/chain/reviews/16/curves.csv").unlink()
    assert ran(dvc(project, "repro")) == ["subsample", "search", "finetune"]
    assert tree(project / "work" / "finetune") == outputs
    assert stored(project) == runs
    shutil.rmtree(project / ".regft")
    shutil.rmtree(project / "work")
    dvc(project, "checkout")
    assert ran(dvc(project, "repro")) == ["subsample"]
    assert tree(project / "work" / "evaluate") == before
    remote = tmp_path / "remote"
    dvc(project, "remote", "add", "-q", "-d", "here", str(remote))
    dvc(project, "push")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "a remote")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(project), str(clone))
    shutil.copytree(project / "models", clone / "models", dirs_exist_ok=True)
    dvc(clone, "pull")
    assert ran(dvc(clone, "repro")) == ["subsample"]
    assert not (clone / ".regft" / "runs").exists()
    assert tree(clone / "work" / "evaluate") == before


# ------------------------------------------------------------------------------ what goes wrong


def test_a_cell_that_fails_stops_no_other_and_is_tried_again(project: Path) -> None:
    fits = "pipelines/methods/fits.yaml"
    (project / fits).write_text("description: no such layer\nregularisers: {hype: {layers: [7]}}\n")
    change(project, methods=["vanilla", "fits", "chain"], training={"epochs": 2})
    done = attempt(project, "repro")
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "1 cell without a result" in said
    assert "fits/reviews/16: finetune: fits reviews 16 seed 0: " in said
    assert ran(said) == ALL
    assert reported(project).keys() == {"vanilla", "chain"}
    before = stored(project)
    (project / fits).write_text("description: a layer\nregularisers: {hype: {layers: [0]}}\n")
    assert ran(dvc(project, "repro")) == ["subsample", "finetune", "evaluate", "report"]
    assert stored(project) == before + 2
    assert "fits" in reported(project)


def test_a_killed_repro_goes_on_and_leaves_no_process(project: Path) -> None:
    change(project, grid={"seeds": [0, 1]}, training={"epochs": 4})
    before = stored(project)
    command = [sys.executable, "-m", "dvc", "repro"]
    running = subprocess.Popen(
        command, cwd=project, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    assert eventually(lambda: stored(project) > before, 60)
    assert running.poll() is None
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert eventually(lambda: "regft_core " not in _commands(project), 20)
    dvc(project, "repro")
    for method in ("vanilla", "chain"):
        manifest = json.loads((project / f"work/finetune/{method}/reviews/16/manifest.json").read_text())
        assert [run["status"] for run in manifest["runs"]] == ["ok"] * 2


def _commands(root: Path) -> str:
    """Command lines of the processes that work in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve() == root.resolve():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return "\n".join(found)


def test_of_two_at_once_the_second_says_who_holds_the_project(project: Path) -> None:
    change(project, training={"epochs": 12})
    command = [sys.executable, "-m", "dvc", "repro"]
    first = subprocess.Popen(command, cwd=project, env=environment(), stdout=subprocess.PIPE, text=True)
    for line in first.stdout:
        if "regft_core finetune" in line:
            break
    second = attempt(project, "repro")
    said = second.stdout + second.stderr
    first.communicate(timeout=300)
    assert first.returncode == 0
    assert "Traceback" not in said
    if second.returncode:
        assert "is busy" in said
        assert str(first.pid) in said


def test_names_that_reach_a_path_are_refused_and_a_plan_that_fails_deletes_nothing(project: Path) -> None:
    before = tree(project / "work")
    for old, new in (
        ("- vanilla\n", "- vanilla\n- ../../etc\n- \"x'; touch pwned; '\"\n"),
        ("- reviews\n", "- reviews\n  - \"y'; touch pwned; '\"\n"),
        ("- 16\n", '- 16\n  - "16; touch pwned"\n'),
    ):
        edit(project / "params.yaml", old, new)
    done = attempt(project, "repro")
    assert done.returncode != 0
    assert ran(done.stdout + done.stderr) == ["subsample"]
    refused = re.findall(r"params\.yaml:(\d+): (?:methods|grid)", done.stdout + done.stderr)
    lines = (project / "params.yaml").read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if "pwned" in line or "etc" in line}
    assert len(wrong) == 4
    assert wrong <= set(map(int, refused)), "each of them"
    assert not list(project.rglob("pwned"))
    assert tree(project / "work") == before
    command = [sys.executable, "-m", "regft_core", "finetune", "--only", "../x/reviews"]
    refused_only = subprocess.run(command, cwd=project, env=environment(), capture_output=True, text=True)
    assert refused_only.returncode != 0
    assert "Traceback" not in refused_only.stderr


# --------------------------------------------------------------------------------- experiments


def logged_as(project: Path, experiment: str) -> list[Any]:
    """The runs in the project's MLflow of an experiment of DVC."""
    client = MlflowClient(tracking_uri=f"sqlite:///{project / 'mlflow.db'}")
    folder = client.get_experiment_by_name("regft").experiment_id
    return list(client.search_runs([folder], f"tags.dvc.experiment = '{experiment}'"))


@pytest.mark.parametrize("where", [pytest.param((), marks=pytest.mark.slow), ("--temp",)], ids=["workspace", "temp"])
def test_an_experiment_trains_what_it_changes_and_shares_the_store(project: Path, where: tuple[str, ...]) -> None:
    before = stored(project)
    setting = "pipelines/methods/chain.yaml:phases.finetune.regularisers.hype.scale=1e-4"
    output = dvc(project, "exp", "run", *where, "-n", "wider", "-S", setting)
    assert ran(output) == ["subsample", "finetune", "evaluate", "report"]
    assert stored(project) == before + 2
    text = (project / "pipelines/methods/chain.yaml").read_text()
    assert ("1.0e-5" in text) == bool(where)
    if where:
        assert ran(dvc(project, "repro")) == ["subsample"]
    # The project's own MLflow has it, by the name that DVC shows.
    logged = logged_as(project, "wider")
    assert {"chain reviews-16", "seed 0 of chain reviews-16"} <= {run.info.run_name for run in logged}
    trained = [run for run in logged if run.info.run_name in ("chain reviews-16", "seed 0 of chain reviews-16")]
    # Runs that the edit leaves as they are, the phase before among them, are those of the project too.
    assert {run.data.tags.get("current") for run in trained} == {None if where else "true"}


@pytest.mark.slow
def test_experiments_elsewhere_find_own_data_once_dvc_tracks_them(project: Path) -> None:
    shutil.copy(REPOSITORY / "data/.gitignore", project / "data/.gitignore")
    git(project, "rm", "-rq", "--cached", "data")
    git(project, "commit", "-qm", "data are no business of git")
    setting = "pipelines/methods/chain.yaml:phases.finetune.regularisers.hype.scale=1e-4"
    assert attempt(project, "exp", "run", "--temp", "-S", setting).returncode != 0
    files = [f"data/{name}.csv" for name in ("train", "dev", "shop")]
    dvc(project, "add", "-q", *files)
    git(project, "add", *(f"{name}.dvc" for name in files), "data/.gitignore")
    before = stored(project)
    dvc(project, "exp", "run", "--queue", "-n", "queued", "-S", setting)
    dvc(project, "exp", "run", "--run-all")
    assert stored(project) == before + 2
    sync(open_project(project))
    logged, table = logged_as(project, "queued"), dvc(project, "exp", "show", "--csv").splitlines()
    assert "chain reviews-16" in {run.info.run_name for run in logged}
    shown = {line.split(",")[1] for line in table if line.startswith("queued,")}
    assert {run.data.tags["dvc.revision"] for run in logged} == shown
