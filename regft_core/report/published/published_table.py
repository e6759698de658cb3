"""A paper's table in its own shape, ours beside what is printed, and the verdict of this run on the paper's claims.

Ours stands beside the same method on the same column only. A published baseline is never the opponent of a method that
ran here: seeds, rows, code and selection differ between them, and runs of one baseline by two groups lie further apart
than most gains (0.92 points for DPS in weight mixup's table 3).

The claims of one table are a family, whose verdicts are corrected for their number (Holm). Columns and opponents within
a claim share its level for *reproduced* and *smaller*, which all of them must be (Berger, Technometrics 1982). A single
one is enough for *contradicted*, so there they divide it. ``statistics/reproduction.py`` has
the rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import stdev

from regft_core.report.published.paper import Gain, Mean, Paper, Places
from regft_core.report.values import Block
from regft_core.schema.params import ReportConfig
from regft_core.settings.papers.published import ALL, Claim, Published, PublishedConfig, PublishedRow, row_of
from regft_core.statistics.bootstrap import seed_interval
from regft_core.statistics.power import detectable_gain
from regft_core.statistics.reproduction import (
    Bounds,
    Outcome,
    log_ratio,
    outcome,
    step_down,
    together,
    welch_interval,
)

NOT_TESTED: Outcome = "not tested here"
#: Number of a claim, an encoder and a size.
Setting = tuple[int, str, str]
#: Opponent, column, and of a claim on an evaluation the numbers of both methods.
Comparison = tuple[str, str, tuple[str, str] | None]


@dataclass(frozen=True)
class PrintedCell:
    """A number that the paper prints for one column, and ours.

    Attributes:
        published: None where the paper prints no mean here.
        ours: None when it was not run here; ``why`` says the reason.
        difference: ours minus published, with its interval (NaN where nothing is known of the spread); None in another
            experiment, which ``otherwise`` describes.
        gain_printed: whether the paper prints a gain in the cell; gains over its row or over the reference, within each
            source.
    """

    key: str
    published: Mean | None
    ours: Mean | None = None
    difference: Bounds | None = None
    gain_printed: bool = False
    published_gain: float | None = None
    our_gain: float | None = None
    otherwise: tuple[str, ...] = ()
    why: str = ""

    @property
    def printed(self) -> bool:
        """Whether the paper prints anything in the cell."""
        return self.published is not None or self.gain_printed


@dataclass(frozen=True)
class PrintedRow:
    """A row of the paper's file with its cells."""

    row: PublishedRow
    cells: tuple[PrintedCell, ...]


@dataclass(frozen=True)
class Tested:
    """One column of a claim against one opponent; ``why``: the reason where it was not tested."""

    over: str
    key: str
    word: Outcome
    #: In the claim's direction, in the unit of ``gain``.
    printed: Bounds | None
    gain: Gain
    why: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClaimVerdict:
    """The verdict on one claim with one encoder at one training size, from intervals of ``confidence``."""

    claim: Claim
    encoder: str
    size: str
    word: Outcome
    confidence: float
    tested: tuple[Tested, ...]


@dataclass(frozen=True)
class PublishedTable:
    """A table of a paper, with ours beside it."""

    name: str
    config: PublishedConfig
    columns: tuple[str, ...]
    rows: tuple[PrintedRow, ...]
    claims: tuple[ClaimVerdict, ...]
    #: Why nothing can be compared; empty when something is.
    nothing: str

    @property
    def where(self) -> str:
        """The paper and its table."""
        table = self.config.table
        place = "numbers of its text" if table == "prose" else f"table {table}" if table.isdigit() else table
        return f"{self.config.paper}, {place}"

    @property
    def otherwise(self) -> tuple[str, ...]:
        """Why ours is another experiment than the paper's."""
        return tuple(dict.fromkeys(text for row in self.rows for cell in row.cells for text in cell.otherwise))

    @property
    def notes(self) -> Iterator[str]:
        """Notes on the printed numbers."""
        if self.rows and (self.config.seeds is None or not any(row.row.deviations for row in self.rows)):
            lacks = "how many seeds" if self.config.seeds is None else "deviations"
            yield f"The paper does not say {lacks}; intervals hold the spread of our runs only"
        if self.rows and self.config.missing:
            yield f"Missing: {self.config.missing}"
        yield from (f"Misprint: {text}" for text in self.config.misprints)


def published_tables(
    published: Sequence[Published], blocks: Sequence[Block], report: ReportConfig, seeds: Sequence[int]
) -> tuple[PublishedTable, ...]:
    """Put what ran here into the tables, and judge their claims."""
    return tuple(_table(table.name, Paper(table.config, blocks, report, seeds)) for table in published)


def _table(name: str, paper: Paper) -> PublishedTable:
    config = paper.config
    shown = tuple(key for key in config.columns if any(key in {**row.scores, **row.gains} for row in config.rows))
    rows = tuple(PrintedRow(row, tuple(_cell(row, key, paper) for key in shown)) for row in config.rows)
    return PublishedTable(name, config, shown, rows, _verdicts(paper), _nothing(rows, config))


def _cell(row: PublishedRow, key: str, paper: Paper) -> PrintedCell:
    """Return the printed value, and ours where the row is the paper's own of a method that is here."""
    if key not in row.scores and key not in row.gains:
        return PrintedCell(key, None)
    base = _base(row, paper)
    cell = PrintedCell(
        key,
        Mean(row.scores[key], row.deviations.get(key), paper.config.seeds) if key in row.scores else None,
        gain_printed=key in row.gains,
        published_gain=paper.printed_gain(row, base, key) if base is not None else row.gains.get(key),
    )
    if row.copied_from is not None or row.arm is None:
        return replace(cell, why=f"copied from {row.copied_from}" if row.copied_from else "regft has no such method")
    places = paper.places(row.arm, row.encoder, str(row.size), key)
    if isinstance(places, str):
        return replace(cell, why=places)
    mean, parts = paper.mean(places)
    difference, otherwise = None, tuple(dict.fromkeys(text for place, _ in places for text in place.otherwise))
    if not otherwise and cell.published is not None:
        gap = mean.value - row.recomputed.get(key, row.scores[key])
        spread = [*parts, *paper.printed_parts(row, key)]
        difference = Bounds(gap, *(welch_interval(gap, spread, paper.report.confidence) if parts else ()))
    against = paper.places(base.arm, row.encoder, str(row.size), key) if base and base.arm else ""
    gain = None if isinstance(against, str) else mean.value - paper.mean(against)[0].value
    return replace(cell, ours=mean, difference=difference, our_gain=gain, otherwise=otherwise)


def _base(row: PublishedRow, paper: Paper) -> PublishedRow | None:
    """The row that gains are over: the one that the paper says, else the reference; never the row itself."""
    if row.gain_over is not None:
        beside = (one for one in paper.config.rows if (one.encoder, one.size) == (row.encoder, row.size))
        return next((one for one in beside if one.method == row.gain_over), None)
    base = row_of(paper.config, paper.report.reference, row.encoder, str(row.size))
    return None if base is row else base


def _nothing(rows: Sequence[PrintedRow], config: PublishedConfig) -> str:
    """Why no cell has a difference; empty when one has."""
    cells = [(row, cell) for row in rows for cell in row.cells if cell.printed]
    if not cells:
        return f"The paper's text lacks the numbers of this table: {config.missing}"
    ran = [cell for _, cell in cells if cell.ours is not None]
    if ran and all(cell.otherwise for cell in ran):
        return "Another experiment than the paper's: nothing is subtracted and no claim is tested"
    reasons = list(dict.fromkeys(cell.why for row, cell in cells if row.row.copied_from is None))
    return "" if ran else f"None of its cells was run here: {'; '.join(reasons[:4])}"


# ------------------------------------------------------------------------------------------ claims


def _verdicts(paper: Paper) -> tuple[ClaimVerdict, ...]:
    """Every claim of the table, with each encoder and size at which it is tested here, or once."""
    claims = paper.config.claims
    settings = [(number, *setting) for number, claim in enumerate(claims) for setting in claim.settings(paper.config)]

    def at(setting: Setting, level: float) -> list[Tested]:
        number, encoder, size = setting
        comparisons = list(_comparisons(claims[number], encoder, size, paper))
        tests = []
        for comparison in comparisons:
            test = _tested(claims[number], comparison, encoder, size, paper, level)
            if test.word == "contradicted" and len(comparisons) > 1:
                shared = 1 - (1 - level) / len(comparisons)
                test = _tested(claims[number], comparison, encoder, size, paper, shared)
            tests.append(test)
        return tests

    def judge(setting: Setting, level: float) -> Outcome:
        return together({i: test.word for i, test in enumerate(at(setting, level))})

    words, verdicts = step_down(judge, settings, paper.report.confidence), []
    for number, claim in enumerate(claims):
        tests = {setting: at(setting, words[setting][1]) for setting in settings if setting[0] == number}
        judged = [setting for setting in tests if words[setting][0] != NOT_TESTED]
        ran = [setting for setting, own in tests.items() if any(test.gain.ours is not None for test in own)]
        for setting in judged or ran[:1] or list(tests)[:1]:
            verdicts.append(ClaimVerdict(claim, *setting[1:], *words[setting], tuple(tests[setting])))
    return tuple(verdicts)


def _comparisons(claim: Claim, encoder: str, size: str, paper: Paper) -> Iterator[Comparison]:
    """Yield opponents, columns and numbers: ``all`` stands for the columns of tasks that both rows print."""
    for over in claim.over:
        if claim.of_cost:
            yield over, claim.measure, None
            continue
        rows = [row_of(paper.config, name, encoder, size) for name in (claim.arm, over)]
        columns = [{**row.scores, **row.gains} for row in rows if row is not None]
        printed = [key for key in paper.config.metrics if all(key in own for own in columns)]
        keys = dict.fromkeys(one for key in claim.columns for one in (printed if key == ALL else [key]))
        pairs = [None] if claim.numbers is None else claim.numbers.pairs
        yield from ((over, key, pair) for key in keys for pair in pairs)


def _tested(claim: Claim, comparison: Comparison, encoder: str, size: str, paper: Paper, level: float) -> Tested:
    """One column against one opponent, by intervals of the confidence ``level``."""
    over, key, pair = comparison
    if claim.of_cost:
        return _cost(claim, over, size, paper)
    mine = paper.places(claim.arm, encoder, size, key)
    theirs = paper.places(over, encoder, str((claim.numbers and claim.numbers.than_size) or size), key)
    untested = Tested(over, key, NOT_TESTED, None, Gain(None, 0))
    if isinstance(mine, str) or isinstance(theirs, str):
        printed = _printed(claim, over, key, encoder, size, paper, paper.report.confidence)
        return replace(untested, printed=printed, why=str(mine if isinstance(mine, str) else theirs))
    printed = _printed(claim, over, key, encoder, size, paper, level)
    row = row_of(paper.config, over, encoder, size)
    copied = f"the paper copied {row.method} from {row.copied_from}" if row and row.copied_from else ""
    if pair is not None:
        gain, key = _of_evaluation(claim, paper, mine, theirs, level, *pair), f"{key} {pair[0]}"
    elif claim.measure == "deviation":
        gain = _spread(paper.values(mine), paper.values(theirs), level)
    else:
        gain = paper.gain(mine, theirs, level)
    test = replace(untested, key=key, printed=printed, gain=gain, notes=(copied,) * bool(copied) + gain.notes)
    otherwise = dict.fromkeys(text for place, _ in [*mine, *theirs] for text in place.otherwise)
    if otherwise or gain.seeds < 2 or gain.ours is None:
        lacking = (
            f"evaluation {claim.numbers.evaluation} did not run here"
            if claim.numbers
            else "no seed of both methods has finished"
        )
        why = "one seed shows no spread" if gain.seeds else lacking
        return replace(test, why="; ".join(otherwise) or why)
    word = outcome(gain.ours, gain.seeds, printed)
    return replace(test, word=word, why="a deviation is zero" if word == NOT_TESTED else "")


def _cost(claim: Claim, over: str, size: str, paper: Paper) -> Tested:
    """How many times below the claim's limit the cost is: its logarithm, on the task where the method costs most."""
    ratios, limit = paper.cost_ratios(claim.arm, over, size, claim.measure), Bounds(math.log(1 / claim.at_most))
    if not ratios:
        why = "memory is measured on a GPU" if claim.measure == "memory" else f"{claim.arm} or {over} was not run here"
        return Tested(over, claim.measure, NOT_TESTED, limit, Gain(None, 0), why)
    gain, dearest = -math.log(max(ratios.values())), f"on {max(ratios, key=ratios.__getitem__)}"
    word: Outcome = "reproduced" if gain >= limit.value else "contradicted"
    return Tested(over, claim.measure, word, limit, Gain(Bounds(gain), 0), notes=(dearest,) * (len(ratios) > 1))


def _of_evaluation(
    claim: Claim, paper: Paper, mine: Places, theirs: Places, level: float, name: str, other: str
) -> Gain:
    """Return the difference of two numbers of an evaluation, paired by seed, with Student's t interval over seeds."""
    numbers = claim.numbers
    assert numbers is not None
    one, two = paper.numbers(mine, numbers.evaluation, name), paper.numbers(theirs, numbers.evaluation, other)
    gains = [(-1 if numbers.lower else 1) * (one[seed] - two[seed]) for seed in one if seed in two]
    if not gains:
        return Gain(None, 0)
    deviation = stdev(gains) if len(gains) > 1 else math.nan
    smallest = detectable_gain(len(gains), deviation, 0.0, confidence=level)
    than = f"{other} at {numbers.than_size} rows" if numbers.than_size else other
    notes = (f"compared with {than}",) * (than != name)
    return Gain(Bounds(sum(gains) / len(gains), *seed_interval(gains, level)), len(gains), smallest, notes)


def _spread(mine: Mapping[int, float], theirs: Mapping[int, float], level: float) -> Gain:
    """The logarithm of how many times less the scores scatter over seeds."""
    seeds = min(len(mine), len(theirs))
    ours = Bounds(*log_ratio(list(theirs.values()), list(mine.values()), level)) if seeds > 1 else None
    return Gain(ours, seeds)


def _printed(claim: Claim, over: str, key: str, encoder: str, size: str, paper: Paper, level: float) -> Bounds | None:
    """The printed gain with its interval, where there is one."""
    mine, theirs = (row_of(paper.config, name, encoder, size) for name in (claim.arm, over))
    if mine is None or theirs is None:
        return None
    if claim.measure == "deviation":
        ours, other = mine.deviations.get(key), theirs.deviations.get(key)
        return Bounds(math.log(other / ours)) if ours and other else None
    if (value := paper.printed_gain(mine, theirs, key)) is None:
        return None
    both = paper.printed_parts(mine, key), paper.printed_parts(theirs, key)
    # Of one source alone the interval would be too short.
    return Bounds(value, *welch_interval(value, [*both[0], *both[1]], level)) if all(both) else Bounds(value)
