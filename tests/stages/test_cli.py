"""`regft`: every command under one name, declared once."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from regft_core.errors import RegftError
from stages import cli
from tests.small_project import REPOSITORY, build, python, stage


def test_every_exit_code_is_on_the_first_page_and_documented() -> None:
    def codes(cls: type[RegftError]) -> set[int]:
        return {cls.exit_code}.union(*(codes(one) for one in cls.__subclasses__()))

    wanted = {str(code) for code in codes(RegftError)}
    assert wanted <= set(cli.CODES.split())
    assert wanted <= set(re.findall(r"^\| (\d+) \|", (REPOSITORY / "docs/running.md").read_text(), re.MULTILINE))


def test_an_unknown_command_gets_the_nearest(tmp_path: Path) -> None:
    done = python(tmp_path, "-m", "regft_core", "exprot")
    assert done.returncode == 2
    assert done.stderr == "regft: unknown command 'exprot' [unknown-command]\n    -> did you mean 'export'?\n"
    assert "did you mean 'run'?" in python(tmp_path, "-m", "regft_core", "trian").stderr


def test_a_command_ends_with_the_code_of_its_file(tmp_path: Path) -> None:
    run = stage(tmp_path, "run")
    assert run.returncode == 2
    assert run.stderr.count("[no-project]") == 3
    assert "regft init" in run.stderr
    assert not list(tmp_path.iterdir())


def test_scripts_get_json(tmp_path: Path) -> None:
    root = build(tmp_path / "project")
    assert json.loads(stage(root, "check", "--json").stdout)["valid"] is True
    rows = json.loads(stage(root, "plan", "--json").stdout)
    assert [(row["cell"]["method"], row["seeds"], row["to_train"]) for row in rows] == [("vanilla", 2, 2)]
    params = root / "params.yaml"
    params.write_text(params.read_text().replace("vanilla", "vanila"))
    wrong = json.loads(stage(root, "check", "--json").stdout)
    assert "unknown-method" in {problem["code"] for problem in wrong["problems"]}
    assert json.loads(stage(root, "version", "--json").stdout)["regft"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_completion_knows_commands_and_their_options(tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(cli.completion(("export", "run", "report")))
    program = """
        source "$1"; COMP_CWORD=1; COMP_WORDS=(regft r); _regft; echo "${COMPREPLY[@]}"
        COMP_CWORD=2; COMP_WORDS=(regft export --ta); _regft; echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(["bash", "-c", program, "bash", str(script)], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["run report", "--task"]
