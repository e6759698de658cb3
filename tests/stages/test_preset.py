"""`python -m stages.preset`: a preset runs beside the user's own project and leaves it alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.small_project import PARAMS, build, python, stage


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = build(tmp_path_factory.mktemp("preset") / "project")
    (root / "pipelines" / "presets" / "small.yaml").write_text(yaml.dump(PARAMS | {"execution": {"device": "cpu"}}))
    (root / "work").mkdir()
    (root / "work" / "mine").write_text("kept")
    return root


def files(root: Path) -> dict[str, bytes]:
    own = [path for path in root.rglob("*") if path.is_file() and "presets/small" not in path.as_posix()]
    return {path.as_posix(): path.read_bytes() for path in own if ".regft" not in path.parts}


def test_a_preset_runs_in_its_own_folder(project: Path) -> None:
    before = files(project)
    planned = python(project, "-m", "stages.config", "plan", "--preset", "small")
    assert planned.returncode == 0, planned.stderr
    assert "2 of 2 runs to train" in planned.stdout
    assert "GPU hours: less than 0.1 (assumed: 6 operations per weight and token" in planned.stdout
    done = stage(project, "preset", "small", "--set", "grid.seeds=[0]")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Running stage 'finetune'" in done.stdout
    folder = project / "presets" / "small"
    assert (folder / "reports" / "report.html").is_file()
    assert yaml.safe_load((folder / "params.yaml").read_text())["grid"]["seeds"] == [0]
    assert (folder / "work" / "finetune" / "vanilla" / "reviews" / "16" / "manifest.json").is_file()
    assert files(project) == before
    assert list((project / ".regft" / "runs").glob("*/*/result.json"))
    again = stage(project, "preset", "small", "--set", "grid.seeds=[0]")
    assert again.returncode == 0, again.stderr
    assert "Running stage 'plan'" in again.stdout
    assert "Running stage 'finetune'" not in again.stdout


def test_mistakes_name_the_presets_own_lines(project: Path) -> None:
    wrong = yaml.dump(PARAMS).replace("epochs: 1", "epochz: 1")
    (project / "pipelines" / "presets" / "wrong.yaml").write_text(wrong)
    line = next(number for number, text in enumerate(wrong.splitlines(), 1) if "epochz" in text)
    done = stage(project, "preset", "wrong")
    assert done.returncode == 2
    assert f"pipelines/presets/wrong.yaml:{line}: training.epochz" in done.stderr
    assert not (project / "presets" / "wrong").exists()
    preset = project / "pipelines" / "presets" / "hype.yaml"
    preset.write_text(yaml.dump(PARAMS | {"methods": ["vanilla", "hype_n"]}))
    added = python(project, "-m", "stages.config", "controls", "--preset", "hype", "--write")
    assert "added to pipelines/presets/hype.yaml" in added.stdout, added.stderr
    assert "hype_n_no_noise" in yaml.safe_load(preset.read_text())["methods"]
    unknown = stage(project, "preset", "smal")
    assert unknown.returncode == 2
    assert "small" in unknown.stderr
