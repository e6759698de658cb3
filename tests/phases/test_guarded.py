"""Edits while a pipeline runs: refused, nothing of them is stored, and the right bits once they are taken back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from regft_core.errors import FactsChanged
from regft_core.phases import facts, stages
from regft_core.phases.context import Context
from regft_core.phases.project import open_project
from tests.errors import raises_code
from tests.phases.code_copy import python, run, with_code
from tests.phases.conftest import TASK, change, edit, edit_method, job, runs, stored, write_method

#: Runs the stages of a method up to ``stage``, whose first run edits a file of the code; says what happened.
EDITS = """
import json, sys
from pathlib import Path
from regft_core.errors import RegftError
from regft_core.phases import facts, stages

last, method, file, old, new = sys.argv[1:]
root = Path.cwd()
assert Path(stages.__file__).is_relative_to(root)
facts.write_facts(stages.open_project(root))
order = ["search", "finetune", "evaluate"]
for stage in order[: order.index(last)]:
    getattr(stages, f"run_{stage}")(root, method, "cue_sentence")
function, done = getattr(stages, last), []

def then_edit(*arguments, **options):
    record = function(*arguments, **options)
    if not done and old:
        path = Path(file)
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, 1))
    done.append(record["seed"])
    return record

setattr(stages, last, then_edit)
try:
    getattr(stages, f"run_{last}")(root, method, "cue_sentence")
    print(json.dumps({"done": done, "error": None}))
except RegftError as error:
    print(json.dumps({"done": done, "error": f"{type(error).__name__}: {error}"}))
"""


def attempt(root: Path, stage: str, method: str, file: str = "", old: str = "", new: str = "") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(python(root, EDITS, stage, method, file, old, new).splitlines()[-1])
    return found


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
        ("finetune", "vanilla", "training/schedule.py", "1.0 - progress", "1.1 - progress"),
        ("search", "weight_mixup", "phases/averaging.py", ".double()", ".float()"),
        ("finetune", "soup", "metrics/accuracy.py", "gold == predicted", "gold != predicted"),
        ("evaluate", "vanilla", "evaluation/predict.py", "BATCH = 64", "BATCH = 32"),
    ],
    ids=["loop", "mean", "soup", "evaluation"],
)
def test_code_edited_between_two_runs_of_a_stage_is_refused_and_nothing_of_it_is_stored(
    project: Path, tmp_path: Path, stage: str, method: str, file: str, old: str, new: str
) -> None:
    write_method(project, "soup", phases=SOUP)
    whole = Path(shutil.copytree(project, tmp_path / "whole"))
    with_code(project)
    code = project / "regft_core" / file
    found = attempt(project, stage, method, str(code), old, new)
    assert found["done"] == [0]
    assert "edited" in found["error"]
    assert code.name in found["error"]
    assert not (project / "work" / stage / method).exists()
    # What there is was computed before the edit.
    before = runs(project)
    edit(code, new, old)
    shutil.rmtree(project / "regft_core")  # from here on, this very process, whose code is the same
    facts.write_facts(open_project(project))
    getattr(stages, f"run_{stage}")(project, method, TASK)
    assert before.keys() < runs(project).keys()
    # The same keys and bits as in a project where nobody edited anything.
    facts.write_facts(open_project(whole))
    for name in ("search", "finetune", "evaluate")[: ("search", "finetune", "evaluate").index(stage) + 1]:
        getattr(stages, f"run_{name}")(whole, method, TASK)
    assert set(runs(project)) == set(runs(whole))
    for key in runs(whole):
        mine, theirs = stored(project, key), stored(whole, key)
        assert mine.tensor_names == theirs.tensor_names
        assert all(mine.tensors_sha256(name) == theirs.tensors_sha256(name) for name in mine.tensor_names)
        assert mine.result.get("sets") == theirs.result.get("sets")


def test_code_edited_after_the_facts_is_refused_before_anything_is_imported_for_training(project: Path) -> None:
    with_code(project)
    python(project, "-m stages.facts")
    schedule = project / "regft_core/training/schedule.py"
    edit(schedule, "1.0 - progress", "1.1 - progress")
    for stage in ("search", "finetune"):
        method = "weight_mixup" if stage == "search" else "vanilla"
        done = run(project, f"-m stages.{stage}", "--method", method, "--task", TASK)
        assert done.returncode == FactsChanged.exit_code
        assert done.stderr.startswith("regft: phases[0].code changed since the stage facts ran")
        assert "run `dvc repro` again" in done.stderr
    assert not (project / ".regft").exists()
    edit(schedule, "1.1 - progress", "1.0 - progress")
    assert run(project, "-m stages.search", "--method", "vanilla", "--task", TASK).returncode == 0


# ------------------------------------------------------------------------- in this process


@pytest.fixture
def ready(project: Path) -> Path:
    facts.write_facts(open_project(project))
    return project


CASES = {
    "a learning rate": (lambda root: change(root, training={"learning_rate": 2e-3}), "training.learning_rate"),
    "an option": (lambda root: edit_method(root, "hype_n", "1.0e-5", "2.0e-5"), "regularisers.hype.scale"),
    "a seed": (lambda root: change(root, grid={"seeds": [0]}), "seeds"),
    "a size": (lambda root: change(root, grid={"sizes": [24, 16]}), "sizes"),
    "the encoder": (lambda root: edit(root / "models/tiny/config.json", '"tie', ' "tie'), "model.content"),
    "the pooling": (lambda root: change(root, model={"pooling": "mean"}), "model.pooling"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("moment", ["before", "during"])
def test_what_changes_after_the_facts_is_refused_by_name(
    ready: Path, case: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    happens, what = CASES[case]
    if moment == "before":
        happens(ready)
    else:
        original = stages.run_cell

        def meanwhile(*arguments: Any, **options: Any) -> Any:
            found = original(*arguments, **options)
            happens(ready)
            return found

        monkeypatch.setattr(stages, "run_cell", meanwhile)
    with raises_code(FactsChanged, "out-of-date", what):
        stages.run_finetune(ready, "hype_n", TASK)
    assert not (ready / "work/finetune").exists()


@pytest.mark.parametrize("case", ["a seed", "the pooling", "an option"])
def test_an_evaluation_is_refused_when_its_method_changes_meanwhile(
    ready: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages.run_search(ready, "hype_n", TASK)
    stages.run_finetune(ready, "hype_n", TASK)
    original = stages.run_cell

    def meanwhile(*arguments: Any, **options: Any) -> Any:
        found = original(*arguments, **options)
        CASES[case][0](ready)
        return found

    monkeypatch.setattr(stages, "run_cell", meanwhile)
    with pytest.raises(FactsChanged):
        stages.run_evaluate(ready, "hype_n", TASK)
    assert not (ready / "work/evaluate").exists()
    assert not (ready / "work/metrics").exists()


def test_datasets_and_subsamples_are_refused_when_they_change_meanwhile(ready: Path) -> None:
    edit(ready / "pipelines/tasks/cue_sentence.yaml", "agreement: 0.9", "agreement: 0.8")
    before = (ready / "work/datasets" / TASK / "task.json").read_bytes()
    with raises_code(FactsChanged, "out-of-date", "task.source.options.agreement"):
        stages.run_dataset(ready, TASK)
    assert (ready / "work/datasets" / TASK / "task.json").read_bytes() == before
    edit(ready / "pipelines/tasks/cue_sentence.yaml", "agreement: 0.8", "agreement: 0.9")
    stages.run_dataset(ready, TASK)
    change(ready, subsample={"stratified": True})
    with raises_code(FactsChanged, "out-of-date", "stratified"):
        stages.run_subsample(ready, TASK)


def test_a_stage_without_its_fact_says_which_stage_writes_it(project: Path) -> None:
    with raises_code(FactsChanged, "facts-missing", "work/facts/finetune-vanilla"):
        stages.run_finetune(project, "vanilla", TASK)


def test_facts_are_written_only_where_they_change_and_removed_where_nobody_is(ready: Path) -> None:
    folder = ready / "work/facts"
    assert facts.write_facts(open_project(ready)) == []
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    edit_method(ready, "hype_n", "1.0e-5", "2.0e-5")
    assert sorted(facts.write_facts(open_project(ready))) == ["finetune-hype_n", "methods"]
    changed = {path.name for path, when in before.items() if path.stat().st_mtime_ns != when}
    assert changed == {"finetune-hype_n.json", "methods.json"}
    edit_method(ready, "hype_n", "description: HyPe", "description: Noise, HyPe")
    assert sorted(facts.write_facts(open_project(ready))) == ["methods", "report"]
    edit_method(ready, "hype_n", "2.0e-5", "0.00002")
    (ready / "pipelines/methods/hype_n.yaml").write_text(
        "# words\n" + (ready / "pipelines/methods/hype_n.yaml").read_text()
    )
    assert facts.write_facts(open_project(ready)) == []
    change(ready, methods=["vanilla", "weight_mixup"])
    assert {"search-hype_n", "finetune-hype_n"} <= set(facts.write_facts(open_project(ready)))
    assert not (folder / "finetune-hype_n.json").exists()
    (folder / "report.json").write_text("{")
    assert facts.write_facts(open_project(ready)) == ["report"]


def test_facts_hold_no_path_and_no_time(ready: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(ready, tmp_path / "elsewhere"))
    assert facts.write_facts(open_project(copy)) == []
    text = "".join(path.read_text() for path in (copy / "work/facts").iterdir())
    assert str(tmp_path) not in text


def test_the_key_and_the_facts_have_one_source(ready: Path) -> None:
    """DVC's and the store's idea of a phase cannot drift apart: the key is made of the fact."""
    context = Context(job(ready, "weight_mixup"))
    written = json.loads((ready / "work/facts/search-weight_mixup.json").read_text())["phases"][0]
    identity = context.identity("search", 0)
    shared = set(written) & set(identity) - {"start", "seed", "rows"}
    assert shared >= {"phase", "data", "regularisers", "training", "model", "code", "packages"}
    for name in shared:
        assert json.loads(json.dumps(identity[name])) == written[name], name
