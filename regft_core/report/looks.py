"""How often a comparison was looked at with other seeds: an append-only file in the run store.

A look is a report that shows the difference of two methods on a set of seeds. A second report of the same runs adds
nothing. A look belongs to a comparison when it shares a run of both methods with it, told by the runs' keys, whichever
is taken from the other: another hyper-parameter is another comparison, seeds taken away or swapped are a look like
seeds added, and so is another name or a turned pair. The file lies beside
the runs because it must live as long as they do, and survive DVC, which deletes the outputs of its stages.
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
#: Enough to tell the runs of one comparison apart.
DIGEST = 16


@dataclass(frozen=True)
class Look:
    """Which look this is at one comparison: its number (from 1) and the paired seeds of every look so far."""

    number: int
    seeds: tuple[int, ...]


class Looks:
    """Looks of the past and of this report, which ``save`` writes down. Without a path every look is the first."""

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
        """Return which look at both runs (seed -> key) of ``pair`` this is, and keep it; None without common seeds."""
        if not (runs := digests(first, second)):
            return None
        looks, turned = self.before(block, first, second), digests(second, first)
        at = next((n for n, look in enumerate(looks) if look in (runs, turned)), len(looks))
        if at == len(looks):
            looks.append(runs)
            self._known.setdefault(block, []).append(runs)
            self._new.append(canonical_json({"block": block, "method": pair.method, "minus": pair.other, "runs": runs}))
        return Look(at + 1, tuple(map(len, looks)))

    def before(self, block: str, first: Mapping[int, str], second: Mapping[int, str]) -> list[dict[str, str]]:
        """The looks so far that share a pair of runs with these of two methods, in either order."""
        own = digests(first, second).items() | digests(second, first).items()
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
    """seed -> digest of both runs' keys, for the seeds that both methods (seed -> key) finished."""
    seeds = sorted(set(first) & set(second))
    return {str(seed): sha256_text(f"{first[seed]} {second[seed]}")[:DIGEST] for seed in seeds}


# ------------------------------------------------------------------------------------------- words


def looks(c: Comparison) -> str:
    """How often a comparison was looked at; empty for the one planned look."""
    if c.look is None:
        return ""
    seeds = f"{listed([str(n) for n in c.look.seeds])} {'seed' if c.look.seeds == (1,) else 'seeds'}"
    if len(c.look.seeds) == 1:
        return f"look 1 at {seeds}, with an interval that allows for more"
    return f"look {c.look.number} of {len(c.look.seeds)} (at {seeds})"


def looked_at(blocks: Sequence[Block]) -> Iterator[str]:
    """One sentence per block whose comparisons were looked at more than once, or may be."""
    for block in blocks:
        looks = [c.look for row in block.rows for c in row.comparisons if c.set == "dev" and c.look is not None]
        if not looks:
            continue
        seeds = max((look.seeds for look in looks), key=len)
        text = "seeds may be added later (report.looks: open)"
        if len(seeds) > 1:
            at = listed([str(n) for n in seeds])
            text = f"seeds were added or changed after a look ({len(seeds)} looks, at {at} seeds)"
        yield f"{block.name}: {text}; verdicts come from wider intervals that hold over all looks"
