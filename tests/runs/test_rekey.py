"""``regft store rekey``: runs of an earlier release get the keys of this one where it proves them unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regft_core.errors import RunFailed
from regft_core.runs.context import project_store
from regft_core.runs.project import open_project
from regft_core.runs.rekey import Edit, Release, read_releases, rekey
from regft_core.runs.store.stored_run import REKEYED
from tests.errors import raises_code
from tests.runs.code_copy import python, with_code
from tests.runs.conftest import PARAMS, build, change, refresh

FILE = "regft_core/training/schedule.py"
NOW, BEFORE = "return step / max(1, warmup)", "return step / max(warmup, 1)"
RELEASE = Release(after="0.0.9", edits=(Edit(file=FILE, now=NOW, before=BEFORE, same="tests/training/x.py::test_x"),))
RUN = "from regft_core.api import load; p = load('.'); p.run('weight_mixup', 'cue_sentence')"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with runs of an earlier release, one seed of two; nothing of this one. Two phases and an evaluation."""
    params = {
        **PARAMS,
        "methods": ["weight_mixup"],
        "report": {"reference": "weight_mixup"},
        "grid": {**PARAMS["grid"], "seeds": [0]},
    }
    root = with_code(build(tmp_path_factory.mktemp("rekey") / "project", params))
    path = root / FILE
    text = path.read_text()
    assert text.count(NOW) == 1
    path.write_text(text.replace(NOW, BEFORE))
    python(root, RUN)
    path.write_text(text)
    change(root, grid={"seeds": [0, 1]})
    refresh(root)
    return root


@pytest.mark.slow
def test_runs_of_an_earlier_release_are_found_under_the_new_keys(project: Path) -> None:
    opened = open_project(project)
    store = project_store(opened)
    before = {key: store.get(key) for key in sorted(store.keys())}
    found = rekey(opened, store, (RELEASE,))
    assert len(found.runs) == len(before) > 2
    assert found.unproven == {"not in the store under the key of 0.0.9, either": len(before)}  # the other seed
    assert store.verify() == []
    new = {key: run for key in sorted(store.keys()) if key not in before and (run := store.get(key))}
    marks = {key: json.loads((run.path / REKEYED).read_text()) for key, run in new.items()}
    assert {mark["from"] for mark in marks.values()} == before.keys()
    for key, run in new.items():
        old = before[marks[key]["from"]]
        assert old is not None
        assert run.result == old.result
        assert run.tensor_names == old.tensor_names
        assert all(run.tensors_sha256(name) == old.tensors_sha256(name) for name in run.tensor_names)
        assert run.identity != old.identity
    # Runs refer to each other by their new keys, so all of seed 0 is there.
    assert not [name for name in found.runs if "seed 1" in name]
    again = rekey(opened, store, (RELEASE,))
    assert again.runs == []
    assert again.unproven == found.unproven


@pytest.mark.slow
def test_an_undeclared_edit_proves_nothing(project: Path) -> None:
    """The declared edit is not all that has changed since: no key of that release is met."""
    opened = open_project(project)
    other = RELEASE.model_copy(update={"edits": (RELEASE.edits[0].model_copy(update={"before": "return step"}),)})
    store = project_store(opened, path=str(project / "empty"))
    found = rekey(opened, store, (other,))
    assert found.runs == []
    assert set(found.unproven) == {"not in the store under the key of 0.0.9, either"}
    assert set(rekey(opened, store, ()).unproven) == {"no release declares its code as unchanged"}


@pytest.mark.slow
def test_an_edit_that_is_not_there_is_an_error(project: Path) -> None:
    opened = open_project(project)
    wrong = RELEASE.model_copy(update={"edits": (RELEASE.edits[0].model_copy(update={"now": "nowhere"}),)})
    with raises_code(RunFailed, "release-edit", FILE, "0.0.9"):
        rekey(opened, project_store(opened), (wrong,))


def test_the_shipped_list_is_valid_and_names_tests_that_exist() -> None:
    root = Path(__file__).resolve().parents[2]
    for release in read_releases():
        for edit in release.edits:
            assert (root / edit.file).read_text().count(edit.now) == 1
            file, _, name = edit.same.partition("::")
            assert f"def {name}(" in (root / file).read_text()
