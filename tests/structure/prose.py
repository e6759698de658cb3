"""Sentences of documents, errors and docstrings, and what our rules of writing find in them.

python -m tests.structure.prose    list what the rules find; exits with 1 if there is something
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Words of a sentence, at most.
LONGEST = 25
#: Turns that a reader must translate -> what to write.
BANNED = {
    r"cannot be told from": "is statistically indistinguishable from",
    r"speaks? against": "errors in",
    r"all the same": "still",
    r"(?:^|[ ,;])so far as": "where, if",
    r"(?:,|;) of which": "start a new sentence",
    r"which is said": "with a warning",
    r"is nobody's": "is unused",
    r"\bwhoever\b": "the process that, the caller that",
    r"there is an elsewhere": "on another node",
    r"\bin the place of\b": "instead of",
    r"\bheld against\b": "compared with",
}
#: Written by hand. Generated pages and the history of changes are not.
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "ARCHITECTURE.md", "data/README.md", "docs/*.md")
GENERATED = ("docs/methods.md", "docs/sources.md", "docs/papers.md")


def documents() -> Iterator[Path]:
    """The documents that are written by hand."""
    for pattern in DOCUMENTS:
        for path in sorted(ROOT.glob(pattern)):
            if path.relative_to(ROOT).as_posix() not in GENERATED:
                yield path


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """(line, text) of the paragraphs, items and cells of a Markdown document; code blocks are left out."""
    start, lines, fenced = 0, [], False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        stripped = line.strip()
        if stripped.startswith("```"):
            fenced = not fenced
            stripped = ""
        elif fenced:
            stripped = ""
        new = not stripped or re.match(r"([-*] |\d+\. |#|\||<)", stripped)
        if new and lines:
            yield start, " ".join(lines)
            lines = []
        if stripped.startswith("|"):
            yield from ((number, cell.strip()) for cell in stripped.strip("|").split(" | "))
        elif stripped and not stripped.startswith(("#", "<", "![")):
            start = start if lines else number
            lines.append(re.sub(r"^([-*]|\d+\.) ", "", stripped))


def sentences(paragraph: str) -> Iterator[str]:
    """The sentences of a paragraph: code counts as one word, the target of a link as none."""
    plain = re.sub(r"`[^`]*`", "Code", paragraph)
    plain = re.sub(r"\]\([^)]*\)", "]", plain)
    plain = re.sub(r"\([^()]*\)", "", plain)
    yield from re.split(r"(?<=[.!?:;])\s+(?=[^a-z0-9])|(?<=:)\s+|(?<=;)\s+", plain)


def docstrings() -> Iterator[tuple[Path, int, str]]:
    """Docstrings and comments-as-docs of the package: (file, line, text)."""
    for folder in ("regft_core", "stages"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                    yield path, getattr(node, "lineno", 1), text


def messages() -> Iterator[tuple[str, str]]:
    """(code, text) of every error; a value counts as one word, of alternatives the first is read."""
    for line in (ROOT / "tests" / "golden" / "messages.txt").read_text(encoding="utf-8").splitlines():
        code, _, text = line.split("\t")
        for part in re.sub(r"\{[^{}]*\}", "Word", text).split("\\n"):
            yield code, re.sub(r"\(([^()|]*)\|[^()]*\)", r"\1", re.sub(r"\([^()|]*\)", "", part.strip(" ->")))


def found() -> list[str]:
    """What the rules find: file, line, the finding."""
    problems = []
    for path in documents():
        name = path.relative_to(ROOT).as_posix()
        for line, paragraph in paragraphs(path.read_text(encoding="utf-8")):
            problems += [f"{name}:{line}: {wrong}" for wrong in (*_long(paragraph), *_turns(paragraph))]
    for code, text in messages():
        problems += [f"error {code}: {wrong}" for wrong in (*_long(text), *_turns(text))]
    for path, line, text in docstrings():
        problems += [f"{path.relative_to(ROOT)}:{line}: {turn}" for turn in _turns(text)]
    return problems


def _long(text: str) -> Iterator[str]:
    for sentence in sentences(text):
        if (words := len(re.findall(r"[^\s\-|,.;:]+", sentence))) > LONGEST:
            yield f"{words} words: {sentence}"


def _turns(text: str) -> list[str]:
    plain = " ".join(text.split())
    return [f"'{hit[0]}': write {better}" for turn, better in BANNED.items() for hit in re.finditer(turn, plain)]


if __name__ == "__main__":
    listed = found()
    print("\n".join(listed))
    sys.exit(bool(listed))
