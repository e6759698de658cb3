"""What the documents tell to type: lines of shell, commands in the text, Python, YAML, examples of ``--help``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
