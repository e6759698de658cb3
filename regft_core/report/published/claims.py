"""What this run says of each claim that a paper makes of a table; the rule is ``statistics/reproduction.py``.

The claims of one table are a family: their words hold together (Holm). Columns and opponents within a claim share its
level for *reproduced* and *smaller*, which all of them must be (Berger, Technometrics 1982). A single one is enough for
*contradicted*, so there they divide it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from regft_core.names import plural
from regft_core.report.published.model import ClaimVerdict, Tested
from regft_core.report.published.ours import Ours, Places
from regft_core.report.published.paper import Paper
from regft_core.settings.papers.claims import ALL, Claim, row_of
from regft_core.statistics.reproduction import (
    Bounds,
    detectable_log_ratio,
    log_ratio,
    outcome,
    step_down,
    together,
    welch_interval,
)

#: Judges one column against one opponent by intervals of a confidence.
Test = Callable[[float], Tested]


@dataclass(frozen=True)
class _Setting:
    """A claim with one encoder at one size."""

    number: int
    encoder: str
    size: str


def verdicts(paper: Paper, ours: Ours) -> tuple[ClaimVerdict, ...]:
    """Every claim of the table, with each encoder and size that ran here, or once when none did."""
    confidence = ours.config.confidence
    tests: dict[_Setting, list[Test]] = {}
    for number, claim in enumerate(paper.config.claims):
        for encoder, size in claim.settings(paper.config):
            tests[_Setting(number, encoder, size)] = _tests(claim, encoder, size, paper, ours)

    def at(setting: _Setting, level: float) -> list[Tested]:
        own = tests[setting]
        return [_judged(test, level, len(own)) for test in own]

    words = step_down(
        lambda setting, level: together(dict(enumerate(one.word for one in at(setting, level)))),
        list(tests),
        confidence,
    )
    found = []
    for number, claim in enumerate(paper.config.claims):
        settings = [setting for setting in tests if setting.number == number]
        reached = {one: at(one, words[one][1]) for one in settings}
        ran = [one for one in settings if any(test.ours is not None for test in reached[one])]
        judged = [one for one in ran if any(test.word != "not tested here" for test in reached[one])]
        here = judged or ran[:1] or settings[:1]
        elsewhere = [_title(one, paper) for one in settings if one not in here]
        for one in here:
            found.append(
                ClaimVerdict(
                    says=claim.says,
                    where=claim.where,
                    arm=claim.arm,
                    over=claim.over,
                    measure=claim.measure,
                    encoder=one.encoder,
                    size=one.size,
                    word=words[one][0],
                    confidence=words[one][1],
                    tested=tuple(reached[one]),
                    elsewhere=tuple(elsewhere),
                )
            )
    return tuple(found)


def _title(setting: _Setting, paper: Paper) -> str:
    return setting.encoder + (f" at {setting.size} rows" if len(paper.sizes) > 1 else "")


def _judged(test: Test, level: float, shared: int) -> Tested:
    """One column; when it contradicts, at a level that it divides with the claim's other columns and opponents."""
    found = test(level)
    return test(1 - (1 - level) / shared) if found.word == "contradicted" and shared > 1 else found


def _tests(claim: Claim, encoder: str, size: str, paper: Paper, ours: Ours) -> list[Test]:
    found = []
    for over in claim.over:
        keys = list(
            dict.fromkeys(key for one in claim.columns for key in _columns(one, claim.arm, over, encoder, size, paper))
        )
        found += [_test(claim, over, key, encoder, size, paper, ours) for key in keys]
    return found


def _columns(key: str, arm: str, over: str, encoder: str, size: str, paper: Paper) -> list[str]:
    if key != ALL:
        return [key]
    rows = [row_of(paper.config, name, encoder, size) for name in (arm, over)]
    return [
        one for one in paper.config.metrics if all(row is None or one in {**row.scores, **row.gains} for row in rows)
    ]


def _test(claim: Claim, over: str, key: str, encoder: str, size: str, paper: Paper, ours: Ours) -> Test:
    mine, theirs = (paper.places(ours, name, encoder, size, key) for name in (claim.arm, over))
    for places in (mine, theirs):
        if isinstance(places, str):
            printed = _printed(claim, over, key, encoder, size, paper, ours.config.confidence)
            absent = Tested(over, key, "not tested here", printed, None, 0, why=places)
            return lambda _: absent
    assert not isinstance(mine, str)
    assert not isinstance(theirs, str)
    otherwise = dict.fromkeys(text for place, _ in [*mine, *theirs] for text in place.otherwise)
    notes = ["the encoder is known by its shape alone"] if any(ours.by_shape(place) for place, _ in mine) else []
    row = row_of(paper.config, over, encoder, size)
    if row is not None and row.copied_from is not None:
        notes.append(f"the paper copied {row.method} from {row.copied_from}")

    def at(level: float) -> Tested:
        printed = _printed(claim, over, key, encoder, size, paper, level)
        measured = _spread if claim.measure == "deviation" else _gain
        found = measured(mine, theirs, level, ours)
        found = replace(found, over=over, key=key, printed=printed, notes=(*notes, *found.notes))
        if otherwise:
            return replace(found, word="not tested here", why="; ".join(otherwise))
        if found.seeds < 2:
            why = "one seed shows no spread" if found.seeds else "no seed that both methods finished"
            return replace(found, word="not tested here", why=why)
        assert found.ours is not None
        word = outcome(found.ours, found.seeds, printed)
        return replace(found, word=word, why="a deviation is zero" if word == "not tested here" else "")

    return at


def _gain(mine: Places, theirs: Places, level: float, ours: Ours) -> Tested:
    gain = ours.gain(mine, theirs, level)
    notes = []
    if gain.identical:
        notes.append("both methods give the same answers")
    if gain.excluded:
        notes.append(f"{plural(gain.excluded, 'seed')} left out, which a method did not finish")
    if gain.collapsed:
        notes.append(f"{plural(gain.collapsed, 'run')} collapsed")
    known = None if math.isnan(gain.bounds.value) else gain.bounds
    return Tested("", "", "not shown", None, known, gain.seeds, gain.detectable, "", tuple(notes))


def _spread(mine: Places, theirs: Places, level: float, ours: Ours) -> Tested:
    """The logarithm of how many times smaller the deviation over seeds is."""
    one, other = ours.mean(mine)[0], ours.mean(theirs)[0]
    seeds = min(one.seeds or 0, other.seeds or 0)
    if not one.deviation or not other.deviation:
        return Tested("", "", "not shown", None, None if seeds < 2 else Bounds(math.nan), seeds)
    counts = (other.seeds or 0, one.seeds or 0)
    found = Bounds(*log_ratio(other.deviation, one.deviation, *counts, level))
    return Tested("", "", "not shown", None, found, seeds, detectable_log_ratio(*counts, confidence=level))


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
    parts = [*paper.parts(mine, key), *paper.parts(theirs, key)]
    # Of one source alone the interval would be too short.
    both = paper.parts(mine, key) and paper.parts(theirs, key)
    return Bounds(value, *welch_interval(value, parts, level)) if both else Bounds(value)
