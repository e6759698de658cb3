"""How often a comparison was looked at with other seeds: an append-only file in the run store.

A look is a report that shows the difference of two methods on a set of seeds. A second report of the same runs adds
nothing. A look belongs to a comparison when it shares a run of both methods with it, told
by the runs' keys: another hyper-parameter is another comparison, seeds taken away or swapped are a look like seeds
added. The file lies beside the runs because it must live as long as they do, and survive DVC, which deletes
the outputs of its stages.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from regft_core.errors import StoreError
from regft_core.io.canonical import canonical_json, sha256_text
from regft_core.report.read_grid import BlockData

log = logging.getLogger(__name__)

FILE = "looks.jsonl"
#: Enough to tell the runs of one comparison apart.
DIGEST = 16


@dataclass(frozen=True)
class Looked:
    """Which look this is at one comparison: its number (from 1) and the paired seeds of every look so far."""

    number: int
    seeds: tuple[int, ...]


@dataclass
class Looks:
    """The looks of the past, and those that this report adds; ``save`` writes the latter down.

    Attributes:
        path: the file; None: nothing is remembered, every look is the first.
    """

    path: Path | None = None
    _known: dict[tuple[str, str, str], list[dict[str, str]]] = field(default_factory=dict)
    _new: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for line in self._lines():
            self._remember(line)

    def at(self, data: BlockData, method: str, other: str) -> Looked:
        """Return which look at ``method`` minus ``other`` this block's runs are, and remember it."""
        keys = [{run.seed: run.key for run in data.cells[name].runs if run.ok} for name in (method, other)]
        runs = digests(*keys)
        if not runs:
            return Looked(1, (0,))
        own = self.before(data.name, method, other, runs)
        if runs not in own:
            own.append(runs)
            self._known.setdefault((data.name, method, other), []).append(runs)
            self._new.append(canonical_json({"block": data.name, "method": method, "minus": other, "runs": runs}))
        return Looked(own.index(runs) + 1, tuple(len(look) for look in own))

    def before(self, block: str, method: str, other: str, runs: Mapping[str, str]) -> list[dict[str, str]]:
        """The looks so far that share a pair of runs with ``runs`` (of ``digests``), in order."""
        known = self._known.get((block, method, other), [])
        return [look for look in known if any(look.get(seed) == digest for seed, digest in runs.items())]

    def save(self) -> None:
        """Append the new looks.

        A store that cannot be written (a read-only share) only warns: the report is not worse than without a file.
        """
        if self.path is None or not self._new:
            return
        text = "".join(line + "\n" for line in self._new)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # One write of whole lines, appended by the system: reports at the same time cannot tear each other.
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                os.write(descriptor, text.encode("utf-8"))
            finally:
                os.close(descriptor)
        except OSError as error:
            log.warning("%s: this look at the results is not remembered: %s", self.path, error.strerror)
            return
        self._new.clear()

    def _lines(self) -> list[str]:
        if self.path is None:
            return []
        try:
            return self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(
                "cannot-read",
                f"{self.path}: the looks at earlier results cannot be read ({error})"
                "\n    -> give the file back its permissions, or restore it from a copy; without it nobody knows how "
                "often these comparisons were looked at",
            ) from error

    def _remember(self, line: str) -> None:
        try:
            found = json.loads(line)
            place = (found["block"], found["method"], found["minus"])
            runs = {str(seed): str(digest) for seed, digest in found["runs"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            return  # the torn last line of a machine that lost power
        known = self._known.setdefault(place, [])
        if runs not in known:
            known.append(runs)


def digests(first: Mapping[int, str], second: Mapping[int, str]) -> dict[str, str]:
    """seed -> digest of both runs' keys, for the seeds that both methods (seed -> key) finished."""
    seeds = sorted(set(first) & set(second))
    return {str(seed): sha256_text(f"{first[seed]} {second[seed]}")[:DIGEST] for seed in seeds}
