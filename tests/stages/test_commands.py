"""`regft`: every command explains itself, names that are not there get the nearest one, text reaches any terminal."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from regft_core.disk.files import write_text
from regft_core.errors import RegftError
from regft_core.output import Guarded, console, guard, unguarded
from regft_core.settings.yaml_paths import LEADERBOARD
from stages import cli, run
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


# ------------------------------------------------------------------------------------------------- text for terminals


#: What acts on a terminal, and how it is written out; the rest stays.
FOREIGN = "Zürich\tä\U0001f600\x1b]0;title\x07\x1b[31mred\r\x9b2J\u202eabc"
SHOWN = "Zürich\tä\U0001f600" + r"\x1b]0;title\x07\x1b[31mred\r\x9b2J\u202eabc"


def call(*arguments: str, folder: Path, encoding: str = "utf-8", head: bool = False) -> tuple[int, bytes, bytes]:
    """Exit code and output of ``regft``; with ``head`` of a command whose reader leaves at once."""
    command = [sys.executable, "-m", "regft_core", *arguments]
    environment = {"PYTHONIOENCODING": encoding, "PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin"}
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if head:
        process.stdout.close()
        process.stdout = None
    out, error = process.communicate(timeout=120)
    return process.returncode, out or b"", error


def test_a_python_without_the_packages_is_named(tmp_path: Path) -> None:
    """DVC calls the first Python of the PATH, which without an activated environment is the system's."""
    command = [sys.executable, "-S", "-m", "regft_core", "check"]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 2)
    assert sys.executable in done.stderr
    assert "[not-installed]" in done.stderr


def test_a_terminal_of_any_encoding_gets_text(tmp_path: Path) -> None:
    code, out, error = call("methods", folder=tmp_path, encoding="ascii")
    assert (code, error) == (0, b"")
    assert "vanilla: " in out.decode("ascii")


@pytest.mark.parametrize("command", ["methods", "--help"])
def test_a_closed_pipe_is_no_error(tmp_path: Path, command: str) -> None:
    assert call(command, folder=tmp_path, head=True) == (0, b"", b"")


def test_escape_codes_of_a_yaml_key_are_written_out(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text('"\\e]0;title\\a\\e[31mred": 1\n', encoding="utf-8")
    code, out, error = call("check", folder=tmp_path)
    assert code == 2
    assert b"\x1b" not in out + error
    assert rb"\x1b]0;title\x07\x1b[31mred" in error


def test_a_command_that_another_program_calls_here_guards_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """DVC's own colours act on the terminal, what a stage in the same process prints does not."""
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stdout", shown)
    guard()
    with unguarded():
        theirs = sys.stdout
        guard()
        print(FOREIGN)
        sys.stdout = theirs
        print("\x1b[31mred")
    assert shown.getvalue() == f"{SHOWN}\n\x1b[31mred\n"


def test_a_stream_replaces_what_its_encoding_lacks() -> None:
    raw = io.BytesIO()
    stream = Guarded(io.TextIOWrapper(raw, encoding="ascii"))
    print("± 0.5 → 中 \udc80", file=stream)
    stream.flush()
    assert raw.getvalue() == b"+- 0.5 -> \\u4e2d \\udc80\n"


def test_a_console_colours_its_own_text_only(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.StringIO()
    monkeypatch.setattr(sys, "stdout", Guarded(raw))
    console(force_terminal=True, color_system="standard").print(f"[bold]{FOREIGN}", markup=True, highlight=False)
    assert raw.getvalue().startswith("\x1b[1m")
    assert "\x1b]" not in raw.getvalue()
    assert "\r" not in raw.getvalue()


@pytest.mark.parametrize("printed", [True, False])
def test_run_shows_the_leaderboard_once_in_whichever_process_it_was_printed(
    printed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def repro(folder: Path, more: dict[str, str]) -> int:
        program = "import os; open(os.environ['REGFT_PRINTED'], 'w')" if printed else ""
        return subprocess.run([sys.executable, "-c", program], env=os.environ | more).returncode

    monkeypatch.setattr(run, "repro", repro)
    write_text(tmp_path / LEADERBOARD, "the leaderboard\n")
    run.run_and_show(tmp_path)
    shown = capsys.readouterr().out
    assert shown.count("the leaderboard") == shown.count("nothing was out of date") == int(not printed)
