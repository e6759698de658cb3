"""Out-of-distribution sets that do not judge: those that ``ood`` of ``params.yaml`` leaves out, and absent files."""

from __future__ import annotations

from typing import Any

from regft_core.settings.project import LeftOut, Project
from regft_core.settings.read_project import load_project
from tests.settings.conftest import PARAMS, TASK

FILES = {
    "pipelines/tasks/opinions.yaml": TASK
    + """\
ood:
  films: {}
  tv: {if_present: true}
  own: {source: {kind: files}, split: own.csv, if_present: true}
""",
    "pipelines/tasks/tv.yaml": TASK.replace("opinions/dev.csv", "tv/dev.csv"),
}


def load(build: Any, registry: dict[str, Any], ood: str = "all", **files: str | None) -> Project:
    changes = {f"pipelines/tasks/{name}.yaml": text for name, text in files.items()}
    return load_project(build({**FILES, **changes, "params.yaml": PARAMS + f"ood: {ood}\n"}), registry)


def test_sets_judge_without_an_edit_once_their_files_are_there(build: Any, registry: dict[str, Any]) -> None:
    without = load(build, registry)
    assert set(without.tasks["opinions"].ood) == {"films"}
    assert [text for text in without.warnings if "is left out" in text] == [
        "pipelines/tasks/opinions.yaml:9: 'tv' is left out: there is no file data/tv/dev.csv",
        "pipelines/tasks/opinions.yaml:10: 'own' is left out: there is no file data/own.csv",
    ]
    for name in ("tv/dev.csv", "own.csv"):
        (without.root / "data" / name).parent.mkdir(exist_ok=True)
        (without.root / "data" / name).write_text("sentence,label\nBad,0\n")
    there = load(build, registry)
    assert set(there.tasks["opinions"].ood) == {"films", "tv", "own"}
    assert not [text for text in there.warnings if "is left out" in text]
    assert "if_present" not in str(there.tasks["opinions"].model_dump(mode="json"))


def test_none_leaves_all_out_and_reads_none_of_their_files(build: Any, registry: dict[str, Any]) -> None:
    project = load(build, registry, "none", films=None, tv=None)
    assert list(project.tasks) == ["opinions"]
    assert project.tasks["opinions"].ood == {}
    assert project.left_out["opinions"] == dict.fromkeys(("films", "tv", "own"), LeftOut("ood is none"))


def test_a_list_names_those_that_judge(build: Any, registry: dict[str, Any]) -> None:
    project = load(build, registry, "[films]")
    assert list(project.tasks["opinions"].ood) == ["films"]
    assert project.left_out["opinions"] == dict.fromkeys(("tv", "own"), LeftOut("not listed in ood"))
