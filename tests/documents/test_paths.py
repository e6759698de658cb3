"""Files of the repository that documents name are there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.documents.pages import PAGES, ROOT

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
    lost = [f"{place}: {path}" for place, path in found if not there(path) and path not in WRITTEN]
    assert not lost, "\n".join(lost)


def there(path: str) -> bool:
    """Whether a path is one of the repository, from its root or from any folder of it (``data/drawn.py``)."""
    return f"/{path.rstrip('/')}" in TAILS


def tails() -> set[str]:
    """Every path of the repository, and every end of it: with a slash in front."""
    found = set()
    for folder in ("regft_core", "stages", "tests", "published", "docs", "benchmarks", "pipelines"):
        for path in (ROOT / folder, *(ROOT / folder).rglob("*")):
            parts = path.relative_to(ROOT).parts
            found |= {"/" + "/".join(parts[start:]) for start in range(len(parts))}
    return found


TAILS = tails()
