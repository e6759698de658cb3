"""`regft`: every command under one name explains itself; names that are not there get the nearest one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from regft_core.errors import RegftError
from stages import cli
from tests.small_project import REPOSITORY, build, stage


@pytest.mark.parametrize("name", [name for name in cli.commands() if not name.startswith("test-")])  # a test for pytest
def test_help_says_what_it_does_and_what_every_argument_means(name: str) -> None:
    done = stage(REPOSITORY, name, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: regft {name}")
    assert max(map(len, done.stdout.splitlines())) <= 80
    description, _, example = done.stdout.split("options:")[0].partition("\nexamples\n")
    assert f"regft {name}" in example
    assert "\nnext: " in example
    assert len(description.split()) > 20
    for line in done.stdout.split("options:")[1].splitlines():
        if line.startswith("  --"):
            # Long names have their explanation on the next line.
            assert len(line.split()) >= 2


def test_every_command_is_in_a_group_of_the_first_page() -> None:
    assert sorted(cli.commands()) == sorted(cli.declared())
    assert max(map(len, cli.usage().splitlines())) <= 80


# ---------------------------------------------------------------------------------- the command itself


def test_looking_at_a_project_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; from stages import cli; sys.argv = ['regft']; "
        "[cli.dispatch(command, []) for command in ('check', 'plan', 'controls')]; "
        "heavy = {'torch', 'transformers', 'datasets', 'mlflow', 'scipy', 'pandas'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    root, paths = build(tmp_path / "project"), {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", code], cwd=root, env=paths, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_exit_code_is_on_the_first_page_and_documented() -> None:
    def codes(cls: type[RegftError]) -> set[int]:
        return {cls.exit_code}.union(*(codes(one) for one in cls.__subclasses__()))

    wanted = {str(code) for code in codes(RegftError)}
    assert wanted <= set(cli.CODES.split())
    assert wanted <= set(re.findall(r"^\| (\d+) \|", (REPOSITORY / "docs/running.md").read_text(), re.MULTILINE))


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
