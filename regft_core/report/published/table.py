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
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import stdev

from regft_core.report.formatting import listed
from regft_core.report.model import Block
from regft_core.report.published.paper import (
    ClaimVerdict,
    Mean,
    Paper,
    Places,
    PrintedCell,
    PrintedRow,
    PublishedTable,
    Tested,
)
from regft_core.schema.params import ReportConfig
from regft_core.settings.papers.published import ALL, Claim, Numbers, Published, PublishedConfig, PublishedRow, row_of
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

#: Number of a claim, an encoder and a size.
Setting = tuple[int, str, str]
#: Opponent, column, and of a claim on an evaluation the numbers of both methods.
Comparison = tuple[str, str, tuple[str, str] | None]


def published_tables(
    published: Sequence[Published], blocks: Sequence[Block], report: ReportConfig,
    seeds: Sequence[int],
) -> tuple[PublishedTable, ...]:  # fmt: skip
    """Put what ran here into the tables, and judge their claims."""
    return tuple(_table(table.name, Paper(table.config, blocks, report, seeds)) for table in published)


def _table(name: str, paper: Paper) -> PublishedTable:
    config = paper.config
    shown = [key for key in config.columns if any(key in {**row.scores, **row.gains} for row in config.rows)]
    rows = [PrintedRow(row, tuple(_cell(row, key, paper) for key in shown)) for row in config.rows]
    cells = [(row, cell) for row in rows for cell in row.cells if cell.printed]
    nothing = _nothing(cells, config)
    place = f"table {config.table}" if config.table.isdigit() else config.table
    columns = [(key, column.metric or column.unit or "mean") for key in shown for column in [config.columns[key]]]
    return PublishedTable(
        name=name,
        where=f"{config.paper}, {'numbers of its text' if place == 'prose' else place}",
        what=config.what,
        statistic=config.statistic,
        transposed=config.transposed,
        columns=tuple(columns),
        rows=tuple(rows),
        claims=_verdicts(paper),
        nothing=nothing,
        otherwise=tuple(dict.fromkeys(text for _, cell in cells for text in cell.otherwise)),
        notes=tuple(_notes(rows, paper, bool(nothing))),
    )


def _cell(row: PublishedRow, key: str, paper: Paper) -> PrintedCell:
    """Return the printed value, and ours where the row is the paper's own of a method that is here."""
    if key not in row.scores and key not in row.gains:
        return PrintedCell(key, None)
    notes, base = [], _base(row, paper)
    if key in row.recomputed:
        notes.append(f"misprint: {row.scores[key]:g} is printed, {row.recomputed[key]:g} follows from the scores")
    cell = PrintedCell(
        key,
        Mean(row.scores[key], row.deviations.get(key), paper.config.seeds) if key in row.scores else None,
        gain_printed=key in row.gains,
        published_gain=paper.printed_gain(row, base, key) if base is not None else row.gains.get(key),
        notes=tuple(notes),
    )
    if row.copied_from is not None or row.arm is None:
        return replace(cell, why=f"copied from {row.copied_from}" if row.copied_from else "regft has no such method")
    places = paper.places(row.arm, row.encoder, str(row.size), key)
    if isinstance(places, str):
        return replace(cell, why=places)
    mean, parts = paper.mean(places)
    otherwise = tuple(dict.fromkeys(text for place, _ in places for text in place.otherwise))
    difference = None
    if not otherwise and cell.published is not None:
        gap, printed = mean.value - row.recomputed.get(key, row.scores[key]), paper.printed_parts(row, key)
        interval = welch_interval(gap, [*parts, *printed], paper.report.confidence) if parts else ()
        difference = Bounds(gap, *interval)
        if not printed:
            notes.append("no published deviation: the interval is of our seeds alone")
    against = paper.places(base.arm, row.encoder, str(row.size), key) if base and base.arm else ""
    gain = None if isinstance(against, str) else mean.value - paper.mean(against)[0].value
    return replace(cell, ours=mean, difference=difference, our_gain=gain, otherwise=otherwise, notes=tuple(notes))


def _base(row: PublishedRow, paper: Paper) -> PublishedRow | None:
    """The row that gains are over: the one that the paper says, else the reference; never the row itself."""
    if row.gain_over is not None:
        beside = (one for one in paper.config.rows if (one.encoder, one.size) == (row.encoder, row.size))
        return next((one for one in beside if one.method == row.gain_over), None)
    base = row_of(paper.config, paper.report.reference, row.encoder, str(row.size))
    return None if base is row else base


def _nothing(cells: Sequence[tuple[PrintedRow, PrintedCell]], config: PublishedConfig) -> str:
    """Why no cell has a difference; empty when one has."""
    if not cells:
        claims = "; claims are judged by their direction alone" if config.claims else ""
        lost = f"The paper's text lacks the numbers of this table: {config.missing}"
        return f"{lost}. Ours stand in the tables above{claims}"
    if any(cell.ours is not None and not cell.otherwise for _, cell in cells):
        return ""
    if any(cell.ours is not None for _, cell in cells):
        return "Another experiment than the paper's: nothing is subtracted and no claim is tested"
    reasons = list(dict.fromkeys(cell.why for row, cell in cells if row.row.copied_from is None))
    return f"None of its cells was run here: {'; '.join(reasons[:4])}"


def _notes(rows: Sequence[PrintedRow], paper: Paper, nothing: bool) -> Iterator[str]:
    config, copies = paper.config, [row.row for row in rows if row.row.copied_from is not None]
    own = [row for row in rows if row.row.arm is not None and row.row.copied_from is None]
    if absent := list(dict.fromkeys(row.row.method for row in own if not row.ran)) if not nothing else []:
        yield f"Not run here, and compared with nothing: {listed(absent)} as published"
    for source in dict.fromkeys(row.copied_from for row in copies):
        copied = list(dict.fromkeys(row.method for row in copies if row.copied_from == source))
        yield f"Copied by the paper and not compared: {listed(copied)} (from: {source})"
    if rows and config.seeds is None:
        yield "The paper does not say how many seeds; intervals hold the spread of our runs only"
    elif rows and not any(row.deviations for row in config.rows):
        yield "The paper prints no deviations; intervals hold the spread of our runs only"
    if rows and config.missing:
        yield f"Missing: {config.missing}"
    yield from (f"Misprint: {text}" for text in config.misprints)


# ------------------------------------------------------------------------------------------ claims


def _verdicts(paper: Paper) -> tuple[ClaimVerdict, ...]:
    """Every claim of the table, with each encoder and size that ran here, or once when none did."""
    claims = paper.config.claims
    settings = [(number, *setting) for number, claim in enumerate(claims) for setting in claim.settings(paper.config)]

    def at(setting: Setting, level: float) -> list[Tested]:
        number, encoder, size = setting
        comparisons = list(_comparisons(claims[number], encoder, size, paper))
        tested = []
        for comparison in comparisons:
            test = _tested(claims[number], comparison, encoder, size, paper, level)
            if test.word == "contradicted" and len(comparisons) > 1:
                shared = 1 - (1 - level) / len(comparisons)
                test = _tested(claims[number], comparison, encoder, size, paper, shared)
            tested.append(test)
        return tested

    def judge(setting: Setting, level: float) -> Outcome:
        return together({i: test.word for i, test in enumerate(at(setting, level))})

    words = step_down(judge, settings, paper.report.confidence)
    found = []
    for number, claim in enumerate(claims):
        reached = {setting: at(setting, words[setting][1]) for setting in settings if setting[0] == number}
        ran = [setting for setting, tests in reached.items() if any(test.ours is not None for test in tests)]
        judged = [setting for setting in ran if words[setting][0] != "not tested here"]
        here = judged or ran[:1] or list(reached)[:1]
        elsewhere = tuple(
            encoder + (f" at {size} rows" if len(paper.sizes) > 1 else "")
            for _, encoder, size in (setting for setting in reached if setting not in here)
        )
        for setting in here:
            verdict = (*setting[1:], *words[setting], tuple(reached[setting]))
            found.append(ClaimVerdict(claim, *verdict, elsewhere))
    return tuple(found)


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
    other = str((claim.numbers and claim.numbers.than_size) or size)
    mine, theirs = paper.places(claim.arm, encoder, size, key), paper.places(over, encoder, other, key)
    for places in (mine, theirs):
        if isinstance(places, str):
            printed = _printed(claim, over, key, encoder, size, paper, paper.report.confidence)
            return Tested(over, key, "not tested here", printed, why=places)
    printed = _printed(claim, over, key, encoder, size, paper, level)
    assert not isinstance(mine, str)
    assert not isinstance(theirs, str)
    notes = []
    row = row_of(paper.config, over, encoder, size)
    if row is not None and row.copied_from is not None:
        notes.append(f"the paper copied {row.method} from {row.copied_from}")
    if claim.numbers is not None and pair is not None:
        test = _of_evaluation(paper, mine, theirs, level, claim.numbers, *pair)
        key = f"{key} {pair[0]}"
    else:
        test = (_spread if claim.measure == "deviation" else Paper.gain)(paper, mine, theirs, level)
    test = replace(test, over=over, key=key, printed=printed, notes=(*notes, *test.notes))
    if test.why:
        return test
    otherwise = dict.fromkeys(text for place, _ in [*mine, *theirs] for text in place.otherwise)
    if otherwise or test.seeds < 2:
        why = "one seed shows no spread" if test.seeds else "no seed that both methods finished"
        return replace(test, word="not tested here", why="; ".join(otherwise) or why)
    assert test.ours is not None
    word = outcome(test.ours, test.seeds, printed)
    return replace(test, word=word, why="a deviation is zero" if word == "not tested here" else "")


def _cost(claim: Claim, over: str, size: str, paper: Paper) -> Tested:
    """How many times below the claim's limit the cost is: its logarithm, on the task where the method costs most."""
    ratios, limit = paper.cost_ratios(claim.arm, over, size, claim.measure), Bounds(math.log(1 / claim.at_most))
    if not ratios:
        why = "memory is measured on a GPU" if claim.measure == "memory" else f"{claim.arm} or {over} was not run here"
        return Tested(over, claim.measure, "not tested here", limit, why=why)
    gain = -math.log(max(ratios.values()))
    word: Outcome = "reproduced" if gain >= limit.value else "contradicted"
    where = f"on {max(ratios, key=ratios.__getitem__)}"
    return Tested(over, claim.measure, word, limit, Bounds(gain), notes=(where,) if len(ratios) > 1 else ())


def _of_evaluation(
    paper: Paper, mine: Places, theirs: Places, level: float, numbers: Numbers, name: str, other: str
) -> Tested:
    """Return the difference of two numbers of an evaluation, paired by seed, with Student's t interval over seeds."""
    one, two = paper.numbers(mine, numbers.evaluation, name), paper.numbers(theirs, numbers.evaluation, other)
    sign = -1 if numbers.lower else 1
    gains = [sign * (one[seed] - two[seed]) for seed in one if seed in two]
    if not gains:
        return Tested("", "", "not tested here", None, why=f"evaluation {numbers.evaluation} did not run here")
    ours = Bounds(sum(gains) / len(gains), *seed_interval(gains, level))
    deviation = stdev(gains) if len(gains) > 1 else math.nan
    smallest = detectable_gain(len(gains), deviation, 0.0, confidence=level)
    than = f"{other} at {numbers.than_size} rows" if numbers.than_size else other
    notes = (f"compared with {than}",) if than != name else ()
    return Tested("", "", "not shown", None, ours, len(gains), smallest, notes=notes)


def _spread(paper: Paper, mine: Places, theirs: Places, level: float) -> Tested:
    """The logarithm of how many times less the scores scatter over seeds."""
    one, other = paper.values(mine), paper.values(theirs)
    seeds = min(len(one), len(other))
    return Tested("", "", "not shown", None, Bounds(*log_ratio(other, one, level)) if seeds > 1 else None, seeds)


def _printed(claim: Claim, over: str, key: str, encoder: str, size: str, paper: Paper, level: float) -> Bounds | None:
    """The printed gain with its interval, where there is one."""
    mine, theirs = (row_of(paper.config, name, encoder, size) for name in (claim.arm, over))
    if mine is None or theirs is None:
        return None
    if claim.measure == "deviation":
        ours, other = mine.deviations.get(key), theirs.deviations.get(key)
        return Bounds(math.log(other / ours)) if ours and other else None
    value = paper.printed_gain(mine, theirs, key)
    if value is None:
        return None
    both = paper.printed_parts(mine, key), paper.printed_parts(theirs, key)
    # Of one source alone the interval would be too short.
    return Bounds(value, *welch_interval(value, [*both[0], *both[1]], level)) if all(both) else Bounds(value)
