"""How often a comparison was looked at with other seeds: an append-only file in the run store, which DVC never deletes.

A look is a report that shows the difference of two methods on a set of seeds. It belongs to a comparison when it shares
a pair of runs with it, told by their keys in either order. So the same runs again, under any names, are no new look,
another hyper-parameter is another comparison, and seeds taken away or swapped are a look like seeds added.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regft_core.disk.canonical import canonical_json, sha256_text
from regft_core.errors import StoreError
from regft_core.report.formatting import listed

if TYPE_CHECKING:
    from regft_core.report.values import Block, Comparison, Pair

log = logging.getLogger(__name__)

FILE = "looks.jsonl"


@dataclass(frozen=True)
class Look:
    """One of several looks at a comparison: its number (from 1) and the paired seeds of every look so far."""

    number: int
    seeds: tuple[int, ...]


class Looks:
    """Looks of the past and of this report, which ``save`` writes down. Without a path every look is the only one."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._known: dict[str, list[dict[str, str]]] = {}
        self._new: list[str] = []
        try:
            lines = path.read_text(encoding="utf-8").splitlines() if path is not None else []
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(
                "cannot-read",
                f"{path}: the looks at earlier results cannot be read ({error})\n    -> give the file back its "
                "permissions, or restore it from a copy; without it nobody knows how often results were looked at",
            ) from error
        for line in lines:
            try:
                look = json.loads(line)
                looks = self._known.setdefault(look["block"], [])
            except (ValueError, KeyError, TypeError):
                continue  # the torn last line of a machine that lost power
            if look["runs"] not in looks:
                looks.append(look["runs"])

    def at(self, pair: Pair, block: str, first: Mapping[int, str], second: Mapping[int, str]) -> Look | None:
        """Return which look at the runs (seed -> key) of ``pair`` this is, and keep it; None for the only one."""
        runs, looks = digests(first, second), self.before(block, first, second)
        if runs and runs not in looks:
            looks.append(runs)
            self._known.setdefault(block, []).append(runs)
            self._new.append(canonical_json({"block": block, "method": pair.method, "minus": pair.other, "runs": runs}))
        return Look(1 + looks.index(runs), tuple(map(len, looks))) if len(looks) > 1 else None

    def before(self, block: str, first: Mapping[int, str], second: Mapping[int, str]) -> list[dict[str, str]]:
        own = digests(first, second).items()
        return [look for look in self._known.get(block, []) if look.items() & own]

    def save(self) -> None:
        """Append the new looks; a store that cannot be written (a read-only share) only warns."""
        if self.path is None or not self._new:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # One write of whole lines, appended by the system: reports at the same time cannot tear each other.
            with open(self.path, "ab", buffering=0) as file:
                file.write("".join(line + "\n" for line in self._new).encode("utf-8"))
        except OSError as error:
            log.warning("%s: this look at the results is not remembered: %s", self.path, error.strerror)


def digests(first: Mapping[int, str], second: Mapping[int, str]) -> dict[str, str]:
    """seed -> digest of both runs' keys in any order, for the seeds that both methods (seed -> key) finished."""
    keys = {seed: sorted((first[seed], second[seed])) for seed in sorted(first.keys() & second.keys())}
    return {str(seed): sha256_text(" ".join(pair))[:16] for seed, pair in keys.items()}


def looks(c: Comparison) -> str:
    if c.look is None:
        return ""
    return f"look {c.look.number} of {len(c.look.seeds)} (at {listed([str(n) for n in c.look.seeds])} seeds)"


def looked_at(blocks: Sequence[Block]) -> Iterator[str]:
    for block in blocks:
        looks = [c.look.seeds for row in block.rows for c in row.comparisons if c.set == "dev" and c.look is not None]
        if looks:
            seeds = max(looks, key=len)
            text = f"{len(seeds)} looks, at {listed([str(n) for n in seeds])} seeds"
            yield (
                f"{block.name}: seeds were added or changed after a look ({text}); verdicts come from wider intervals "
                "that hold over all looks"
            )
