"""The version of regft that ``params.yaml`` was written for (``regft: 0.1.0``), beside the one that reads it.

The key only says something to people. It is in no key of a run, so that changing it trains nothing again.
"""

from __future__ import annotations

import re

from regft_core import __version__
from regft_core.errors import ConfigError
from regft_core.schema.params import PATTERN
from regft_core.settings.document import Document

KEY = "regft"
#: Version -> what it changed for files that were written for an earlier one, and what to do. CHANGELOG.md has the rest.
MIGRATIONS: dict[str, str] = {}

Numbers = tuple[int, ...]


def check_version(document: Document, ours: str = __version__) -> list[str]:
    """Warnings for ``params.yaml`` of an earlier version: each change since, and what to do.

    Raises ConfigError for one of a later version. It is the only problem then: further ones would be its consequences.
    """
    written = document.data.get(KEY)
    if not isinstance(written, str) or not re.match(PATTERN, written):
        return []  # absent, or a problem that the schema names
    if _numbers(written) > _numbers(ours):
        message = f"was written for regft {written}, and this is regft {ours}"
        hint = f"install that one (pip install 'regft>={written}'), or write {KEY}: {ours} to read it as this one does"
        raise ConfigError([document.problem("newer-version", (KEY,), message, hint)])
    if _numbers(written) == _numbers(ours):
        return []
    since = [version for version in MIGRATIONS if _numbers(written) < _numbers(version) <= _numbers(ours)]
    head = f"{document.place((KEY,))}: written for regft {written}, this is regft {ours}"
    changes = [f"{version}: {MIGRATIONS[version]}" for version in sorted(since, key=_numbers)]
    rest = "; ".join(changes) or "nothing in it has to change"
    return [f"{head}; {rest}; then write {KEY}: {ours}"]


def _numbers(version: str) -> Numbers:
    return tuple(map(int, version.split(".")))
