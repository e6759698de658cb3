"""Text of commands reaches any terminal, and acts on none."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from regft_core.output import Guarded, console, guard, unguarded, without_control

FOREIGN = "\x1b]0;title\x07\x1b[31mred\r\x9b2J\u202eabc"


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


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_terminal_of_any_encoding_gets_text(tmp_path: Path, encoding: str) -> None:
    code, out, error = call("methods", folder=tmp_path, encoding=encoding)
    assert (code, error) == (0, b"")
    assert "vanilla: " in out.decode(encoding)


@pytest.mark.parametrize("command", ["methods", "--help"])
def test_a_closed_pipe_is_no_error(tmp_path: Path, command: str) -> None:
    assert call(command, folder=tmp_path, head=True) == (0, b"", b"")


def test_escape_codes_of_a_yaml_key_are_written_out(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text('"\\e]0;title\\a\\e[31mred": 1\n', encoding="utf-8")
    code, out, error = call("check", folder=tmp_path)
    assert code == 2
    assert b"\x1b" not in out + error
    assert rb"\x1b]0;title\x07\x1b[31mred" in error


def test_what_acts_on_a_terminal_is_written_out_and_the_rest_stays() -> None:
    assert without_control("Zürich\tä\n\U0001f600") == "Zürich\tä\n\U0001f600"
    shown = without_control(FOREIGN)
    assert shown.isprintable()
    assert shown == r"\x1b]0;title\x07\x1b[31mred\r\x9b2J\u202eabc"


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
    assert shown.getvalue() == f"{without_control(FOREIGN)}\n\x1b[31mred\n"


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
