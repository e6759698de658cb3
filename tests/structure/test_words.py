"""Words of verdict are written in ``statistics.verdict`` alone; what shows results reads them there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOME = ROOT / "regft_core" / "statistics" / "verdict.py"
#: What shows results. Other parts use these words of other things (a warning on one set's labels, a metric's docs).
VIEWS = ("reporting", "tracking", "exporting", "models/card.py", "api.py", "plan")
WORDS = re.compile(
    r"\b(better|worse|no difference|no evidence|no verdict|below chance|below a constant|(in)?significan\w*|"
    r"shown to beat|nothing to judge|cannot be told)\b",
    re.IGNORECASE,
)


def views() -> list[Path]:
    places = [ROOT / "regft_core" / name for name in VIEWS]
    found = [path for place in places for path in ([place] if place.is_file() else sorted(place.rglob("*")))]
    return [*(path for path in found if path.suffix in (".py", ".j2")), *sorted((ROOT / "stages").glob("*.py"))]


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Strings of a module without its docstrings, or the lines of a template: (line, text)."""
    if path.suffix == ".j2":
        yield from enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


@pytest.mark.parametrize("path", views(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_views_make_no_words_of_verdict(path: Path) -> None:
    found = [f"{path.name}:{line}: {text.strip()}" for line, text in texts(path) if WORDS.search(text)]
    assert not found, "take the word from statistics.verdict:\n" + "\n".join(found)


def test_the_words_are_written_in_their_home() -> None:
    own = " ".join(text for _, text in texts(HOME))
    for word in ("better", "worse", "no difference shown", "below chance", "no verdict"):
        assert word in own
        assert WORDS.search(word)
