"""Find commands and code in the documents. Commands parse, YAML is valid, named files and tests exist."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from regft_core.schema.methods import MethodConfig
from regft_core.schema.params import Params
from regft_core.schema.tasks import TaskConfig
from regft_core.settings.document import load_yaml
from regft_core.settings.validate import validate
from stages import cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "SECURITY.md", "data/README.md", "benchmarks/README.md"]
PAGES += [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").glob("*.md"))]
HELPS = [f"stages/{path.name}" for path in sorted((ROOT / "stages").glob("*.py"))]
PROGRAMS = "regft|make|dvc|git|pip|uv|python|pytest|curl|eval|ray|CI_FULL"


@dataclass(frozen=True)
class Line:
    """One line of a shell: its page, its number, its text without comments."""

    page: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.number}: {self.text}"


def blocks(page: str, language: str) -> list[tuple[int, str]]:
    """(number of the first line, text) of the fenced blocks of a language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.finditer(rf"^( *)```{language}\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    return [
        (text.count("\n", 0, one.start(2)) + 1, "\n".join(line.removeprefix(one[1]) for line in one[2].splitlines()))
        for one in found
    ]


def typed(page: str) -> Iterator[Line]:
    """Lines of ``sh`` blocks, and inline commands of three words and more, in order of the page."""
    if page in HELPS:
        lines = re.sub(r"\\\n *", "", (ROOT / page).read_text(encoding="utf-8")).splitlines()
        for number, line in enumerate(lines, 1):
            if re.match(r" *regft [a-z]", line):
                yield Line(page, number, re.split("  +", line.strip())[0])
        return
    found = []
    for start, block in blocks(page, "sh"):
        number = start
        for line in re.findall(r"(?:[^\n]*\\\n)*[^\n]+", block):
            text = re.sub(r"(^| )#.*", "", line.replace("\\\n", " ")).strip()
            found += [Line(page, number, text)] if text else []
            number += line.count("\n") + 1
    text = (ROOT / page).read_text(encoding="utf-8")
    text = re.sub(r"^ *```.*?^ *```", lambda fenced: "\n" * fenced[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    for number, line in enumerate(text.splitlines(), 1):
        for code in re.findall(rf"`((?:{PROGRAMS})\b[ =][^`]*)`", line):
            if len(code.split()) > 2 and "..." not in code:
                found.append(Line(page, number, code))
    yield from sorted(found, key=lambda one: one.number)


# --------------------------------------------------------------------------------------------------------- commands


#: What stands for a value of the reader's.
NUMBERS = {"N", "K", "SEED"}


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


COMMANDS = {
    f"{line.page}: {part}": part for page in (*PAGES, *HELPS) for line in typed(page) for part in parts(line.text)
}


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
    if len(arguments) == 1 or arguments[0].startswith("test-"):  # pytest takes those files for tests
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
    tried = [name for name in cli.commands() if not name.startswith("test-")]  # pytest's, too
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


YAML = [(f"{page}:{number}", text) for page in PAGES for number, text in blocks(page, "yaml")]


@pytest.mark.parametrize(("place", "text"), YAML, ids=[place for place, _ in YAML])
def test_yaml_that_is_shown_is_valid(place: str, text: str, tmp_path: Path) -> None:
    """Each line of a block that repeats a key is an example of its own."""
    text = text.replace("<40 hex digits>", "a" * 40)
    tops = re.findall(r"^([a-z_]+):", text, re.MULTILINE)
    for part in [text] if len(tops) == len(set(tops)) else text.splitlines():
        document = load_yaml(tmp_path / "shown.yaml", tmp_path, part)
        kinds = [model for model in (TaskConfig, Params, MethodConfig) if set(document.data) <= set(model.model_fields)]
        assert kinds, f"no file has all of these keys: {sorted(document.data)}"
        # An example is a part of a file; the problem of a key that it lacks has no line.
        found = [validate(kind, document)[1] for kind in kinds]
        wrong = [[one for one in problems if one.line and one.code != "key-missing"] for problems in found]
        assert [] in wrong, wrong


def test_there_is_something_to_try_and_each_command_that_is_named_exists() -> None:
    named = {name for page in PAGES for name in re.findall(r"`regft ([a-z][a-z-]*)`", (ROOT / page).read_text("utf-8"))}
    assert named <= {*cli.commands(), "completion"}
    assert len(COMMANDS) > 40
    assert len(YAML) > 10


# -------------------------------------------------------------------------------- files that are named


#: A history of what is no more.
NOT_READ = ("CHANGELOG.md",)
#: What a command writes.
WRITTEN = ("benchmarks/gpu.md",)
#: Code of the repository, and folders of it. ``data/`` and ``pipelines/tasks/`` may be a reader's own.
FILE = re.compile(
    r"`((?:[\w-]+/)+[\w.-]+\.py|(?:regft_core|stages|tests|published|docs|benchmarks)/[\w./-]+)(?:::\w+)?`"
)


def named() -> Iterator[tuple[str, str]]:
    """(place, path) of every path in code of documents."""
    for page in PAGES:
        if page not in NOT_READ:
            for path in FILE.findall((ROOT / page).read_text(encoding="utf-8")):
                yield page, path


def test_files_that_are_named_are_there() -> None:
    found = list(named())
    assert len(found) > 100
    lost = [f"{place}: {path}" for place, path in found if path not in WRITTEN and f"/{path.rstrip('/')}" not in TAILS]
    assert not lost, "\n".join(lost)


def tails() -> set[str]:
    """Every path of the repository, and every end of it: with a slash in front."""
    found = set()
    for folder in ("regft_core", "stages", "tests", "published", "docs", "benchmarks", "pipelines"):
        for path in (ROOT / folder, *(ROOT / folder).rglob("*")):
            parts = path.relative_to(ROOT).parts
            found |= {"/" + "/".join(parts[start:]) for start in range(len(parts))}
    return found


TAILS = tails()


# --------------------------------------------------------------------------------------------- threats


def test_every_threat_names_a_test_that_exists() -> None:
    rows = [line for line in (ROOT / "SECURITY.md").read_text().splitlines() if line.startswith("| ")][1:]
    named = [re.fullmatch(r"\| .+ \| .+ \| `(tests/[\w/]+\.py)::(test_\w+)` \|", row) for row in rows]
    assert len(rows) > 30
    assert not [row for row, found in zip(rows, named) if not found]
    missing = []
    for found in filter(None, named):
        file, name = found.groups()
        tree = ast.parse((ROOT / file).read_text()) if (ROOT / file).is_file() else ast.Module([], [])
        if name not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
            missing.append(f"{file}::{name}")
    assert missing == []
