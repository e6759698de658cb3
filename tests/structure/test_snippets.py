"""What the documents tell to type can be typed: commands are parsed, YAML is validated by the project's own schema."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regft_core.schema.methods import MethodConfig
from regft_core.schema.params import Params
from regft_core.schema.tasks import TaskConfig
from regft_core.settings.document import load_yaml
from regft_core.settings.validate import validate
from stages import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "benchmarks/README.md")]
PAGES += sorted((ROOT / "docs").glob("*.md"))
HELPS = sorted((ROOT / "regft_core" / "stages").glob("*.py"))
#: What stands for a value of the reader's.
NUMBERS = {"N", "K", "SEED"}


def blocks(page: Path, language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return ["\n".join(line.removeprefix(indent) for line in text.splitlines()) for indent, text in found]


def commands() -> Iterator[tuple[str, str]]:
    """(place, command line after ``regft``) of code blocks, of inline code, and of the examples in ``--help``."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        inline = [line for line in re.findall(r"`regft ([a-z][^`]*)`", text) if "..." not in line]
        typed = [part for block in blocks(page, "sh") for line in lines(block) for part in parts(line)]
        for line in [*inline, *typed]:
            yield f"{page.name}: {line}", line
    for file in HELPS:
        for line in re.findall(r"^ *regft ([a-z].*)$", unbroken(file.read_text(encoding="utf-8")), re.MULTILINE):
            for part in parts(f"regft {re.split('  +', line)[0]}"):
                yield f"{file.name}: {part}", part


def unbroken(text: str) -> str:
    """The text with the continued lines of a shell joined."""
    return re.sub(r"\\\n *", "", text)


def lines(block: str) -> list[str]:
    """Lines of a shell, with quotes and continued lines kept whole."""
    return [line for line in unbroken(block).splitlines() if "regft " in line]


def parts(line: str) -> list[str]:
    """The calls of ``regft`` in one line of a shell."""
    words = shlex.split(line, comments=True)
    calls: list[list[str]] = [[]]
    for word in words:
        if word in ("&&", ";", "|"):
            calls.append([])
        else:
            calls[-1].append(word)
    return [shlex.join(call[1:]) for call in calls if len(call) > 1 and call[0] == "regft"]


class Parsed(Exception):
    """A command line was understood."""


COMMANDS = dict(commands())


@pytest.mark.parametrize("place", sorted(COMMANDS))
def test_a_command_that_is_told_can_be_typed(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = argparse.ArgumentParser.parse_args

    def understood(*values: Any, **named: Any) -> None:
        parse(*values, **named)
        raise Parsed

    line = re.sub(r"<[^>]*>|\[[^\]]*\]", "NAME", COMMANDS[place]).split(" > ")[0]
    arguments = ["0" if word in NUMBERS else word for word in shlex.split(line)]
    if arguments[0] == "completion":
        return
    assert arguments[0] in cli.commands()
    if len(arguments) == 1 or arguments[0] == "test-method":  # pytest takes that file for a test
        return
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", understood)
    monkeypatch.setattr("sys.argv", ["regft"])
    with pytest.raises(Parsed):
        cli.main(arguments)


def messages(file: Path) -> Iterator[str]:
    """The texts in a file of Python, each value that is put in as ``X``."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_an_option_that_a_message_advises_is_one_of_its_command() -> None:
    tried = [name for name in cli.commands() if name != "test-method"]  # pytest's, too
    known = {name: set(cli.options(name)) for name in tried}
    seen, wrong = 0, []
    for file in (ROOT / "regft_core").rglob("*.py"):
        for text in messages(file):
            for command, rest in re.findall(r"regft ([a-z-]+)((?: [^`\n;'\"]*)?)", text):
                options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest))
                seen += len(options)
                if options - known.get(command, set()):
                    wrong.append((file.name, command, options))
    assert not wrong
    assert seen > 15


YAML = [(f"{page.name} {n}", text) for page in PAGES for n, text in enumerate(blocks(page, "yaml"))]


@pytest.mark.parametrize(("place", "text"), YAML, ids=[place for place, _ in YAML])
def test_yaml_that_is_shown_is_valid(place: str, text: str, tmp_path: Path) -> None:
    """Each line of a block that repeats a key is an example of its own."""
    text = text.replace("<40 hex digits>", "a" * 40)
    tops = re.findall(r"^([a-z_]+):", text, re.MULTILINE)
    for part in [text] if len(tops) == len(set(tops)) else text.splitlines():
        document = load_yaml(tmp_path / "shown.yaml", tmp_path, part)
        kinds = [model for model in (TaskConfig, Params, MethodConfig) if set(document.data) <= set(model.model_fields)]
        assert kinds, f"no file has all of these keys: {sorted(document.data)}"
        # An example is a part of a file; what is said of a key that it lacks has no line.
        found = [validate(kind, document)[1] for kind in kinds]
        wrong = [[one for one in problems if one.line and one.code != "key-missing"] for problems in found]
        assert [] in wrong, wrong


def test_there_is_something_to_try() -> None:
    assert len(COMMANDS) > 40
    assert len(YAML) > 10
