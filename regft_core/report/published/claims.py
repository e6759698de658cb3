"""The verdict of this run on each claim that a paper makes of a table; the rule is ``statistics/reproduction.py``.

The claims of one table are a family, whose verdicts are corrected for their number (Holm). Columns and opponents within
a claim share its level for *reproduced* and *smaller*, which all of them must be (Berger, Technometrics 1982). A single
one is enough for *contradicted*, so there they divide it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from regft_core.report.published.model import ClaimVerdict, Tested
from regft_core.report.published.ours import Ours, Places
from regft_core.report.published.paper import Paper
from regft_core.settings.papers.claims import ALL, Claim, row_of
from regft_core.statistics.reproduction import (
    Bounds,
    Outcome,
    detectable_log_ratio,
    log_ratio,
    outcome,
    step_down,
    together,
    welch_interval,
)

#: Number of a claim, an encoder and a size.
Setting = tuple[int, str, str]


def verdicts(paper: Paper) -> tuple[ClaimVerdict, ...]:
    """Every claim of the table, with each encoder and size that ran here, or once when none did."""
    claims = paper.config.claims
    settings = [(number, *one) for number, claim in enumerate(claims) for one in claim.settings(paper.config)]

    def at(setting: Setting, level: float) -> list[Tested]:
        number, encoder, size = setting
        comparisons = list(_comparisons(claims[number], encoder, size, paper))
        tested = []
        for over, key in comparisons:
            test = _tested(claims[number], over, key, encoder, size, paper, level)
            if test.word == "contradicted" and len(comparisons) > 1:
                shared = 1 - (1 - level) / len(comparisons)
                test = _tested(claims[number], over, key, encoder, size, paper, shared)
            tested.append(test)
        return tested

    def judge(setting: Setting, level: float) -> Outcome:
        return together({i: test.word for i, test in enumerate(at(setting, level))})

    words = step_down(judge, settings, paper.ours.config.confidence)
    found = []
    for number, claim in enumerate(claims):
        reached = {one: at(one, words[one][1]) for one in settings if one[0] == number}
        ran = [one for one, tests in reached.items() if any(test.ours is not None for test in tests)]
        judged = [one for one in ran if any(test.word != "not tested here" for test in reached[one])]
        here = judged or ran[:1] or list(reached)[:1]
        sizes = len(paper.sizes) > 1
        elsewhere = [
            encoder + (f" at {size} rows" if sizes else "")
            for _, encoder, size in (one for one in reached if one not in here)
        ]
        for one in here:
            verdict = (*one[1:], *words[one], tuple(reached[one]))
            found.append(ClaimVerdict(claim, *verdict, tuple(elsewhere)))
    return tuple(found)


def _comparisons(claim: Claim, encoder: str, size: str, paper: Paper) -> Iterator[tuple[str, str]]:
    """(opponent, column): ``all`` stands for the columns of tasks that both rows print."""
    for over in claim.over:
        rows = [row_of(paper.config, name, encoder, size) for name in (claim.arm, over)]
        columns = [{**row.scores, **row.gains} for row in rows if row is not None]
        printed = [key for key in paper.config.metrics if all(key in own for own in columns)]
        keys = dict.fromkeys(one for key in claim.columns for one in (printed if key == ALL else [key]))
        yield from ((over, key) for key in keys)


def _tested(claim: Claim, over: str, key: str, encoder: str, size: str, paper: Paper, level: float) -> Tested:
    """One column against one opponent, by intervals of the confidence ``level``."""
    mine, theirs = (paper.places(name, encoder, size, key) for name in (claim.arm, over))
    for places in (mine, theirs):
        if isinstance(places, str):
            printed = _printed(claim, over, key, encoder, size, paper, paper.ours.config.confidence)
            return Tested(over, key, "not tested here", printed, why=places)
    printed = _printed(claim, over, key, encoder, size, paper, level)
    assert not isinstance(mine, str)
    assert not isinstance(theirs, str)
    notes = ["the encoder is known by its shape alone"] if paper.ours.by_shape(mine) else []
    row = row_of(paper.config, over, encoder, size)
    if row is not None and row.copied_from is not None:
        notes.append(f"the paper copied {row.method} from {row.copied_from}")
    measure = _spread if claim.measure == "deviation" else Ours.gain
    test = measure(paper.ours, mine, theirs, level)
    test = replace(test, over=over, key=key, printed=printed, notes=(*notes, *test.notes))
    otherwise = dict.fromkeys(text for place, _ in [*mine, *theirs] for text in place.otherwise)
    if otherwise or test.seeds < 2:
        why = "one seed shows no spread" if test.seeds else "no seed that both methods finished"
        return replace(test, word="not tested here", why="; ".join(otherwise) or why)
    assert test.ours is not None
    word = outcome(test.ours, test.seeds, printed)
    return replace(test, word=word, why="a deviation is zero" if word == "not tested here" else "")


def _spread(ours: Ours, mine: Places, theirs: Places, level: float) -> Tested:
    """The logarithm of how many times smaller the deviation over seeds is."""
    one, other = ours.mean(mine)[0], ours.mean(theirs)[0]
    counts = other.seeds or 0, one.seeds or 0
    if not one.deviation or not other.deviation:
        return Tested("", "", "not shown", None, None if min(counts) < 2 else Bounds(math.nan), min(counts))
    ratio = Bounds(*log_ratio(other.deviation, one.deviation, *counts, level))
    smallest = detectable_log_ratio(*counts, confidence=level)
    return Tested("", "", "not shown", None, ratio, min(counts), smallest)


def _printed(claim: Claim, over: str, key: str, encoder: str, size: str, paper: Paper, level: float) -> Bounds | None:
    """The printed gain with its interval, where there is one."""
    mine, theirs = (row_of(paper.config, name, encoder, size) for name in (claim.arm, over))
    if mine is None or theirs is None:
        return None
    if claim.measure == "deviation":
        ours, other = mine.deviations.get(key), theirs.deviations.get(key)
        return Bounds(math.log(other / ours)) if ours and other else None
    value = paper.gain(mine, theirs, key)
    if value is None:
        return None
    both = paper.parts(mine, key), paper.parts(theirs, key)
    # Of one source alone the interval would be too short.
    return Bounds(value, *welch_interval(value, [*both[0], *both[1]], level)) if all(both) else Bounds(value)
