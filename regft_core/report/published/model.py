"""A paper's table with ours in its cells, and its claims with their verdicts: plain values."""

from __future__ import annotations

import math
from dataclasses import dataclass

from regft_core.settings.papers.published import Claim, PublishedRow
from regft_core.statistics.reproduction import Bounds, Outcome


@dataclass(frozen=True)
class Mean:
    """A mean over seeds, in points or the column's unit; None where nobody says."""

    value: float
    deviation: float | None = None
    seeds: int | None = None


@dataclass(frozen=True)
class PrintedCell:
    """A number that the paper prints for one column, and ours."""

    key: str
    #: None where the paper prints no mean here.
    published: Mean | None
    #: None when it was not run here; ``why`` says the reason.
    ours: Mean | None = None
    #: Ours minus published, with its interval (NaN where nothing is known of the spread); None in another experiment.
    difference: Bounds | None = None
    #: Whether the paper prints a gain in the cell; gains over its row or over the reference, within each source.
    gain_printed: bool = False
    published_gain: float | None = None
    our_gain: float | None = None
    #: What makes ours another experiment than the paper's.
    otherwise: tuple[str, ...] = ()
    why: str = ""
    notes: tuple[str, ...] = ()

    @property
    def printed(self) -> bool:
        """Whether the paper prints anything in the cell."""
        return self.published is not None or self.gain_printed


@dataclass(frozen=True)
class PrintedRow:
    """A row of the paper's file with its cells; ``model``: hub id of its encoder."""

    row: PublishedRow
    model: str
    cells: tuple[PrintedCell, ...]

    @property
    def ran(self) -> bool:
        """Whether any of it was run here."""
        return any(cell.ours is not None for cell in self.cells)


@dataclass(frozen=True)
class Tested:
    """One column of a claim against one opponent."""

    over: str
    key: str
    word: Outcome
    #: Gains in the claim's direction: points, or natural logarithms of ratios of deviations.
    printed: Bounds | None
    ours: Bounds | None = None
    seeds: int = 0
    #: Smallest true gain that this run finds 80% of the time.
    detectable: float = math.nan
    #: Why it was not tested.
    why: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClaimVerdict:
    """The verdict on one claim with one encoder at one training size."""

    claim: Claim
    encoder: str
    size: str
    word: Outcome
    #: Of the intervals that gave the verdict.
    confidence: float
    tested: tuple[Tested, ...]
    #: Encoders and sizes of the claim that did not run here.
    elsewhere: tuple[str, ...]


@dataclass(frozen=True)
class PublishedTable:
    """A table of a paper, with ours beside it."""

    name: str
    where: str
    what: str
    statistic: str
    #: Whether the paper prints the columns as rows.
    transposed: bool
    #: (name, its metric, ``mean`` or its unit)
    columns: tuple[tuple[str, str], ...]
    rows: tuple[PrintedRow, ...]
    claims: tuple[ClaimVerdict, ...]
    #: Why nothing can be compared; empty when something is.
    nothing: str
    #: Why ours is another experiment than the paper's.
    otherwise: tuple[str, ...]
    notes: tuple[str, ...]
