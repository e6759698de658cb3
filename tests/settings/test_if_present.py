"""Sets that judge a task as soon as their file is there, and are left out, with a warning, while it is not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from regft_core.hooks.registry import discover
from regft_core.settings.project import Project
from regft_core.settings.read_project import load_project

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "pipelines", tmp_path / "pipelines")
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params |= {"methods": ["vanilla"], "grid": {"tasks": ["qqp", "mrpc", "afqmc"], "sizes": [64], "seeds": [0]}}
    params["report"]["reference"] = "vanilla"
    (tmp_path / "params.yaml").write_text(yaml.dump(params))
    return tmp_path


def load(root: Path) -> Project:
    return load_project(root, discover())


def put(root: Path, name: str, text: str) -> None:
    path = root / "data" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_paws_and_bustm_judge_without_an_edit_once_their_files_are_there(project: Path) -> None:
    without = load(project)
    assert set(without.tasks["qqp"].ood) == {"mrpc", "advglue_qqp"}
    assert set(without.tasks["mrpc"].ood) == {"qqp"}
    assert not without.tasks["afqmc"].ood
    said = [text for text in without.warnings if "is left out" in text]
    (where,) = [text for text in said if text.startswith("pipelines/tasks/qqp.yaml:")]
    assert where.endswith(": 'paws_qqp' is left out: there is no file data/paws_qqp/dev_and_test.tsv")
    assert len(said) == 3
    put(project, "paws_qqp/dev_and_test.tsv", "id\tsentence1\tsentence2\tlabel\n1\ta b\tb a\t0\n")
    put(project, "bustm/test_public.jsonl", '{"sentence1": "a", "sentence2": "b", "label": 1}\n')
    there = load(project)
    assert there.tasks["qqp"].ood["paws_qqp"].label_map == {
        "not_duplicate": "not_paraphrase",
        "duplicate": "paraphrase",
    }
    assert "paws_qqp" in there.tasks["mrpc"].ood
    assert set(there.tasks["afqmc"].ood) == {"bustm"}
    assert not [text for text in there.warnings if "is left out" in text]


def test_it_is_for_files_and_says_nothing_in_facts(project: Path) -> None:
    path = project / "pipelines" / "tasks" / "mrpc.yaml"
    task = yaml.safe_load(path.read_text())
    task["ood"]["own"] = {"source": {"kind": "files"}, "split": "own.csv", "labels": task["labels"], "if_present": True}
    path.write_text(yaml.dump(task))
    assert "own" not in load(project).tasks["mrpc"].ood
    put(project, "own.csv", "sentence1,sentence2,label\na,b,1\n")
    found = load(project).tasks["mrpc"]
    assert "own" in found.ood
    assert "if_present" not in str(found.model_dump(mode="json"))
