"""The real pipeline under the real DVC: from nothing, and what an edit runs again."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml

from tests.pipeline.conftest import REPOSITORY, attempt, change, dvc, edit, environment, ran, stale, stored


def test_everything_from_nothing(reproduced: Path) -> None:
    assert sorted(ran((reproduced.parent / "output").read_text())) == sorted(
        [
            "facts",
            "dataset@own",
            "subsample@own",
            "lengths@own",
            *(
                f"{stage}@{method}-own"
                for stage in ("search", "finetune", "evaluate")
                for method in ("vanilla", "chain")
            ),
            "report",
        ]
    )
    for name in (
        "report.html",
        "metrics/own-16/chain.json",
        "results.json",
        "plots/curves.csv",
        "plots/leaderboard.csv",
    ):
        assert (reproduced / "reports" / name).is_file()
    assert (reproduced / "mlflow.db").is_file()
    assert (reproduced / "work/evaluate/chain/own/16/predictions/seed-0/far.jsonl").is_file()
    shown = dvc(reproduced, "metrics", "show", "--json")
    assert "reports/metrics/own-16/vanilla.json" in shown
    assert "work/metrics" not in shown  # columns of their own for every cell made a table as wide as the grid


def test_a_second_time_only_the_facts_run(project: Path) -> None:
    path = project / "pipelines/methods/chain.yaml"
    edit(path, "1.0e-5", "0.00001")
    path.write_text("# words\n" + path.read_text())
    edit(project / "params.yaml", "# what to run\n", "# what to run now\n\n")
    change(project, execution={"executor": "processes", "workers": 2})
    before = stored(project)
    assert ran(dvc(project, "repro")) == ["facts"]
    assert stored(project) == before


def test_a_description_runs_the_report(project: Path) -> None:
    edit(project / "pipelines/methods/chain.yaml", "A chain of phases", "Phases in a chain")
    assert ran(dvc(project, "repro")) == ["facts", "report"]
    assert "Phases in a chain" in (project / "reports/report.html").read_text()


def test_a_hyper_parameter_runs_that_method_and_what_follows(project: Path) -> None:
    edit(project / "pipelines/methods/chain.yaml", "scale: 1.0e-5", "scale: 0.3")
    before = stored(project)
    assert ran(dvc(project, "repro")) == ["facts", "finetune@chain-own", "evaluate@chain-own", "report"]
    assert stored(project) == before + 2


CHAIN = "pipelines/methods/chain.yaml"
FINETUNES = {"finetune@vanilla-own", "finetune@chain-own"}
EDITS = {
    "a value of an early phase": ([(CHAIN, "max_steps: 1", "max_steps: 3")], {"search@chain-own"}),
    "a value of the last phase": ([(CHAIN, "pats: {}", "pats: {probability: 0.3}")], {"finetune@chain-own"}),
    "the order of regularisers": (
        [(CHAIN, "      hype: {scale: 1.0e-5}\n      pats: {}", "      pats: {}\n      hype: {scale: 1.0e-5}")],
        set(),
    ),
    "the order of phases": (
        [(CHAIN, "  one:", "  zero:"), (CHAIN, "  two:", "  one:"), (CHAIN, "  zero:", "  two:")],
        {"search@chain-own", "finetune@chain-own"},
    ),
    "a default written out": ([(CHAIN, "pats: {}", "pats: {probability: 0.2}")], set()),
    "a shared value": (
        [("params.yaml", "learning_rate: 0.001", "learning_rate: 0.002")],
        {"search@chain-own", *FINETUNES, "report"},
    ),
    "how the report compares": ([("params.yaml", "bootstrap_samples: 200", "bootstrap_samples: 300")], {"report"}),
    "a seed": (
        [("params.yaml", "- 0\n", "- 0\n  - 1\n")],
        {"subsample@own", "search@chain-own", *FINETUNES, "report"},
    ),
    "a size": (
        [("params.yaml", "- 16\n", "- 16\n  - 20\n")],
        {"subsample@own", "search@chain-own", *FINETUNES, "report"},
    ),
    "a byte of the training set": ([("data/own/train.csv", "film", "firm")], {"dataset@own"}),
    "a byte of a set that judges": ([("data/own/far.csv", "food", "foot")], {"dataset@own"}),
    "a task's metrics": (
        [("pipelines/tasks/own.yaml", "[accuracy]", "[accuracy, f1_macro]")],
        {"dataset@own", "evaluate@vanilla-own", "evaluate@chain-own", "report"},
    ),
    "a task's words": ([("pipelines/tasks/own.yaml", "source:", "description: words\nsource:")], set()),
    "the encoder's settings": (
        [("models/tiny/config.json", '"initializer_range": 0.1', '"initializer_range": 0.2')],
        {"search@chain-own", *FINETUNES},
    ),
    "how much of a text is read": (
        [("params.yaml", "max_length: 32", "max_length: 64")],
        {"lengths@own", "search@chain-own", *FINETUNES},
    ),
    "a new method": (
        [("params.yaml", "- chain\n", "- chain\n- hype_n\n")],
        {"search@hype_n-own", "finetune@hype_n-own", "evaluate@hype_n-own", "report"},
    ),
    "a method less": ([("params.yaml", "- chain\n", "")], {"report"}),
    "a method that nobody lists": ([("pipelines/methods/hype_n.yaml", "1.0e-5", "1.0e-4")], set()),
}


def test_which_edit_makes_what_stale(project: Path) -> None:
    """As DVC sees it once the facts are written; what follows of it runs when its inputs change."""
    found = {}
    for name, (edits, _) in EDITS.items():
        before = {file: (project / file).read_text() for file, _, _ in edits}
        for file, old, new in edits:
            edit(project / file, old, new)
        found[name] = stale(project)
        for file, text in before.items():
            (project / file).write_text(text)
    assert found == {name: expected for name, (_, expected) in EDITS.items()}
    assert stale(project) == set()


def test_an_encoder_changed_in_place_is_trained_again(project: Path) -> None:
    weights = project / "models/tiny/model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    weights.write_bytes(bytes(content))
    assert stale(project) == {"search@chain-own", *FINETUNES}


def test_a_new_seed_and_a_method_of_ones_own(project: Path) -> None:
    """The example of CONTRIBUTING.md: one file, one YAML, one line."""
    before = stored(project)
    blocks = re.findall(r"```python\n(.*?)```", (REPOSITORY / "CONTRIBUTING.md").read_text(), flags=re.DOTALL)
    code = textwrap.dedent("   " + blocks[0].lstrip(" "))
    name = re.findall(r'^    name = "(\w+)"', code, flags=re.MULTILINE)[0]
    (project / f"regft_core/methods/{name}.py").write_text(code)
    own = {"description": "a test", "regularisers": {name: {}}}
    (project / f"pipelines/methods/{name}.yaml").write_text(yaml.dump(own))
    edit(project / "params.yaml", "- vanilla\n", f"- vanilla\n- {name}\n")
    edit(project / "params.yaml", "- 0\n", "- 0\n  - 1\n")
    again = {f"{stage}@{method}-own" for stage in ("finetune", "evaluate") for method in ("vanilla", "chain", name)}
    # Nothing to search is nothing to search, whatever the rows.
    found = set(ran(dvc(project, "repro"))) - {"search@vanilla-own"}
    assert found == {"facts", "subsample@own", "search@chain-own", f"search@{name}-own", "report", *again}
    # Of the new seed two phases, two runs and two evaluations; of the new method two runs and two evaluations.
    assert stored(project) == before + 6 + 4
    assert (project / f"reports/metrics/own-16/{name}.json").is_file()


def test_deleted_outputs_come_back_without_training(project: Path) -> None:
    shutil.rmtree(project / "work" / "finetune")
    shutil.rmtree(project / "work" / "search")
    assert ran(dvc(project, "repro")) == ["facts"]
    assert (project / "work/finetune/chain/own/16/manifest.json").is_file()


# ------------------------------------------------------------------------------ what goes wrong


def tree(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def test_a_facts_stage_that_fails_deletes_nothing(project: Path) -> None:
    before = tree(project / "work")
    edit(project / "params.yaml", "learning_rate", "learning_rat")
    done = attempt(project, "repro")
    assert done.returncode != 0
    assert re.search(r"params\.yaml:\d+", done.stderr + done.stdout)
    assert "learning_rate" in done.stderr + done.stdout
    assert ran(done.stdout + done.stderr) == ["facts"]
    assert tree(project / "work") == before
    edit(project / "params.yaml", "learning_rat", "learning_rate")
    assert ran(dvc(project, "repro")) == ["facts"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("- vanilla\n", "- vanilla\n- \"x'; touch pwned; '\"\n"),
        ("- own\n", "- own\n  - \"y'; touch pwned; '\"\n"),
        ("- 16\n", '- 16\n  - "16; touch pwned"\n'),
        ("- vanilla\n", "- vanilla\n- $(touch pwned)\n"),
        ("- vanilla\n", "- vanilla\n- ../../etc\n"),
    ],
)
def test_names_that_reach_a_shell_are_refused(project: Path, old: str, new: str) -> None:
    edit(project / "params.yaml", old, new)
    done = attempt(project, "repro")
    assert done.returncode != 0
    assert set(ran(done.stdout + done.stderr)) <= {"facts"}
    assert not list(project.rglob("pwned"))
    checked = subprocess.run(
        [sys.executable, "-m", "regft_core.config"], cwd=project, env=environment(), capture_output=True, text=True
    )
    assert checked.returncode == 2
    assert re.search(r"params\.yaml:\d+: (methods|grid)", checked.stderr)
    for stage in ("finetune", "search", "evaluate"):
        command = [sys.executable, "-m", f"stages.{stage}", "--method", "../x", "--task", "own"]
        refused = subprocess.run(command, cwd=project, env=environment(), capture_output=True, text=True)
        assert refused.returncode != 0
        assert "Traceback" not in refused.stderr


# --------------------------------------------------------------------------------- experiments


@pytest.mark.parametrize("where", [(), ("--temp",)], ids=["workspace", "temp"])
def test_an_experiment_trains_what_it_changes_and_shares_the_store(project: Path, where: tuple[str, ...]) -> None:
    before = stored(project)
    setting = "pipelines/methods/chain.yaml:phases.finetune.regularisers.hype.scale=1e-4"
    output = dvc(project, "exp", "run", *where, "-S", setting)
    assert set(ran(output)) == {"facts", "finetune@chain-own", "evaluate@chain-own", "report"}
    assert stored(project) == before + 2
    text = (project / "pipelines/methods/chain.yaml").read_text()
    assert ("1.0e-5" in text) == bool(where)
    if where:
        assert ran(dvc(project, "repro")) == ["facts"]


def test_experiments_elsewhere_find_own_data_once_dvc_tracks_them(project: Path) -> None:
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t"]
    shutil.copy(REPOSITORY / "data/.gitignore", project / "data/.gitignore")
    subprocess.run([*git, "rm", "-rq", "--cached", "data/own"], cwd=project, check=True)
    subprocess.run([*git, "commit", "-qm", "data are no business of git"], cwd=project, check=True)
    setting = "pipelines/methods/chain.yaml:phases.finetune.regularisers.hype.scale=1e-4"
    assert attempt(project, "exp", "run", "--temp", "-S", setting).returncode != 0
    dvc(project, "add", "-q", "data/own")
    subprocess.run([*git, "add", "data/own.dvc", "data/.gitignore"], cwd=project, check=True)
    before = stored(project)
    dvc(project, "exp", "run", "--queue", "-S", setting)
    dvc(project, "exp", "run", "--run-all")
    assert stored(project) == before + 2
