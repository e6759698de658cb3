"""Claims of a paper about its table, and the verdict of the runs here, by the rule of ``statistics/reproduction.py``.

The claims of one table are a family (Holm). Columns and opponents within a claim share its level for *reproduced* and
*smaller*, which all of them must be (Berger, Technometrics 1982); one is enough for *contradicted*, so they divide it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import stdev

from regft_core import metrics
from regft_core.names import plural
from regft_core.report import scores
from regft_core.report.averages import replicates_of
from regft_core.report.formatting import MINUS, NOT_AVAILABLE, number, quantity
from regft_core.report.paper import Paper, Places, numbers_of, rows_of
from regft_core.settings.published import ALL, Claim, Numbers, row_of
from regft_core.statistics.bootstrap import Estimate, at_least_normal, percentiles, seed_interval
from regft_core.statistics.forecast import detectable_gain
from regft_core.statistics.reproduction import Bounds, Outcome, outcome, step_down, together, welch_interval

NOT_TESTED: Outcome = "not tested here"
SYMBOLS = {"reproduced": "▲", "smaller": "△", "not shown": "○", "contradicted": "▼", NOT_TESTED: "∅"}
RULE = (
    "reproduced: our interval lies above zero and our gain is not below the printed one; smaller: above zero and below "
    "the printed one; contradicted: below zero, or without a shown gain and below half of the printed one; not shown: "
    "anything else, with the gain that this run detects 80% of the time"
)
#: Number of a claim, an encoder and a size.
Setting = tuple[int, str, str]
#: Opponent, column, and of a claim on an evaluation the numbers of both methods.
Comparison = tuple[str, str, tuple[str, str] | None]


@dataclass(frozen=True)
class Tested:
    """One column of a claim against one opponent. Gains are positive in the claim's direction.

    Attributes:
        printed, ours: in points, or the logarithm of a ratio; ``ours`` is None without a seed that both finished.
        seeds: number of those.
        detectable: smallest true gain that these runs detect 80% of the time.
        why: the reason where it was not tested.
    """

    over: str
    key: str
    printed: Bounds | None = None
    word: Outcome = NOT_TESTED
    ours: Bounds | None = None
    seeds: int = 0
    detectable: float = math.nan
    why: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClaimVerdict:
    claim: Claim
    encoder: str
    size: str
    word: Outcome
    confidence: float
    tested: tuple[Tested, ...]


def claim_verdicts(paper: Paper) -> tuple[ClaimVerdict, ...]:
    """Every claim of the table, with each encoder and size at which it is tested here, or once."""
    claims = paper.config.claims
    settings = [(i, *setting) for i, claim in enumerate(claims) for setting in claim.settings(paper.config)]

    def tests(setting: Setting, level: float) -> list[Tested]:
        claim, tests = claims[setting[0]], []
        comparisons = list(_comparisons(claim, *setting[1:], paper))
        for comparison in comparisons:
            test = _tested(claim, comparison, *setting[1:], paper, level)
            if test.word == "contradicted":
                test = _tested(claim, comparison, *setting[1:], paper, 1 - (1 - level) / len(comparisons))
            tests.append(test)
        return tests

    def judge(setting: Setting, level: float) -> Outcome:
        return together({i: test.word for i, test in enumerate(tests(setting, level))})

    words, verdicts = step_down(judge, settings, paper.report.confidence), []
    for i, claim in enumerate(claims):
        tested = {setting: tests(setting, words[setting][1]) for setting in settings if setting[0] == i}
        decided = [setting for setting in tested if words[setting][0] != NOT_TESTED]
        ran = [setting for setting, own in tested.items() if any(test.ours is not None for test in own)]
        for setting in decided or ran[:1] or list(tested)[:1]:
            verdicts.append(ClaimVerdict(claim, *setting[1:], *words[setting], tuple(tested[setting])))
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
    over, key, pair = comparison
    if claim.of_cost:
        return _cost(claim, over, size, paper)
    mine = paper.places(claim.arm, encoder, size, key)
    theirs = paper.places(over, encoder, str((claim.numbers and claim.numbers.than_size) or size), key)
    test = Tested(over, key, _printed(claim, over, key, encoder, size, paper, level))
    if isinstance(mine, str) or isinstance(theirs, str):
        return replace(test, why=str(mine if isinstance(mine, str) else theirs))
    if claim.numbers is not None and pair is not None:
        test = _of_evaluation(replace(test, key=f"{key} {pair[0]}"), claim.numbers, mine, theirs, level, *pair)
    else:
        test = _gain(test, mine, theirs, level, paper)
    if otherwise := dict.fromkeys(text for place in (*mine, *theirs) for text in place.otherwise):
        return replace(test, why="; ".join(otherwise))
    if test.ours is None and claim.numbers:
        return replace(test, why=f"evaluation {claim.numbers.evaluation} did not run here")
    if test.seeds < 2 or test.ours is None:
        return replace(test, why="one seed shows no spread" if test.seeds else "no seed of both methods has finished")
    return replace(test, word=outcome(test.ours, test.seeds, test.printed))


def _cost(claim: Claim, over: str, size: str, paper: Paper) -> Tested:
    """How many times below the claim's limit the cost is: its logarithm, on the task where the method costs most."""
    test, ratios = Tested(over, claim.measure, Bounds(math.log(1 / claim.at_most))), dict[str, float]()
    for block in (block for block in paper.blocks if block.size == size):
        found = [row.cost for row in map(block.row, (claim.arm, over)) if row is not None]
        costs = [cost.declared if claim.measure == "passes" else cost.peak_memory_bytes for cost in found]
        if len(costs) == 2 and costs[0] and costs[1]:
            ratios[block.task] = costs[0] / costs[1]
    if not ratios:
        why = "memory is measured on a GPU" if claim.measure == "memory" else f"{claim.arm} or {over} was not run here"
        return replace(test, why=why)
    dearest = max(ratios, key=ratios.__getitem__)
    word: Outcome = "reproduced" if ratios[dearest] <= claim.at_most else "contradicted"
    notes = (f"on {dearest}",) * (len(ratios) > 1)
    return replace(test, word=word, ours=Bounds(-math.log(ratios[dearest])), notes=notes)


def _of_evaluation(
    test: Tested, numbers: Numbers, mine: Places, theirs: Places, level: float, name: str, other: str
) -> Tested:
    """Return the difference of two numbers of an evaluation, paired by seed, with Student's t interval over seeds."""
    sides = [numbers_of(mine, numbers.evaluation, name), numbers_of(theirs, numbers.evaluation, other)]
    (one, low, most), (two, least, high) = sides[::-1] if numbers.lower else sides
    gains = [one[seed] - two[seed] for seed in one if seed in two]
    if not gains:
        return test
    deviation = stdev(gains) if len(gains) > 1 else math.nan
    than = f"{other} at {numbers.than_size} rows" if numbers.than_size else other
    return replace(
        test,
        ours=Bounds(sum(gains) / len(gains), *seed_interval(gains, level)).within(low - high, most - least),
        seeds=len(gains),
        detectable=detectable_gain(len(gains), deviation, 0.0, confidence=level),
        notes=(f"compared with {than}",) * (than != name),
    )


def _gain(test: Tested, mine: Places, theirs: Places, level: float, paper: Paper) -> Tested:
    """The difference of two methods on the same columns, paired by seed, in points, with the two-level interval.

    Beyond the report's confidence, where a bootstrap has few resamples, the interval is ``at_least_normal``.
    """
    estimates: dict[tuple[str, str], Estimate] = {}
    weights: dict[tuple[str, str], float] = {}
    for place, other in zip(mine, theirs, strict=True):
        pair, block = (place.arm, other.arm), place.block
        if (of := (block.name, place.set, place.metric, *pair)) not in paper.resampled:
            paper.resampled[of] = scores.arms_of(block, place.set, place.metric, paper.report, paper.seeds, pair)
        key = (block.task, place.set)
        estimates[key] = paper.resampled[of].difference(*pair, level)
        weights[key] = place.scale * (-1 if metrics.find(place.metric).lower_is_better else 1)
    seeds, excluded = min(e.n for e in estimates.values()), max(len(e.excluded) for e in estimates.values())
    notes = (f"{plural(excluded, 'seed')} left out, which a method did not finish",) * bool(excluded)
    if not seeds:
        return replace(test, notes=notes)
    value, replicates = replicates_of(weights, estimates)
    if seeds < 2:
        return replace(test, ours=Bounds(value), seeds=seeds, notes=notes)
    low, high = percentiles(replicates, level)
    if level > paper.report.confidence:
        low, high = at_least_normal(low, high, value, replicates, level)
    deviation, error = (
        math.sqrt(sum((weights[key] * getattr(estimate, part)) ** 2 for key, estimate in estimates.items()))
        for part in ("seed_deviation", "standard_error_examples")
    )
    lowest, highest = paper.ends(test.key)
    # The quantiles of few distinct resamples may miss the mean by rounding.
    ours = Bounds(value, min(low, value), max(high, value)).within(lowest - highest, highest - lowest)
    return replace(
        test, ours=ours, seeds=seeds, detectable=detectable_gain(seeds, deviation, error, confidence=level), notes=notes
    )


def _printed(claim: Claim, over: str, key: str, encoder: str, size: str, paper: Paper, level: float) -> Bounds | None:
    """The printed gain with its interval, where there is one: of scores (misprints recomputed), or as printed."""
    mine, theirs = (row_of(paper.config, name, encoder, size) for name in (claim.arm, over))
    if mine is None or theirs is None:
        return None
    lower = any(metrics.find(paper.config.metrics[part]).lower_is_better for part in paper.weights(key))
    both = [row.recomputed.get(key, row.scores.get(key)) for row in (mine, theirs)]
    if both[0] is not None and both[1] is not None:
        value = both[0] - both[1]
    elif key in mine.gains and mine.gain_over == theirs.method:
        value = mine.gains[key]
    else:
        return None
    value, parts = -value if lower else value, [paper.printed_parts(row, key) for row in (mine, theirs)]
    if not all(parts):  # of one source alone the interval would be too short
        return Bounds(value)
    lowest, highest = paper.ends(key)
    interval = welch_interval(value, [*parts[0], *parts[1]], level)
    return Bounds(value, *interval).within(lowest - highest, highest - lowest)


def bounds(found: Bounds | None, ratio: bool = False, free: bool = False) -> str:
    """``+1.23 [-0.31, +2.72]``; the interval only where there is one.

    ``ratio``: the logarithm of how many times smaller a cost is, shown as ``0.60×``. ``free``: a number of any size.
    """
    if found is None or math.isnan(found.value):
        return NOT_AVAILABLE
    if ratio:
        return f"{math.exp(-found.value):.2f}×"
    shown = partial(quantity, signed=True) if free else partial(number, digits=2, signed=True)
    value, low, high = map(shown, (found.value, found.low, found.high))
    return value if math.isnan(found.low) else f"{value} [{low}, {high}]"


def claim_in_words(verdict: ClaimVerdict) -> str:
    tested = sum(test.word != NOT_TESTED for test in verdict.tested)
    place = f"{verdict.claim.where}; {verdict.encoder}, {rows_of(verdict.size)}"
    part = f"; {tested} of its {plural(len(verdict.tested), 'comparison')} tested here"
    return f"{verdict.claim.says} ({place}{part if 0 < tested < len(verdict.tested) else ''})"


def comparison_in_words(test: Tested, verdict: ClaimVerdict) -> str:
    claim, what, limit = verdict.claim, f"{test.key}, gain over {test.over}", "printed"
    if claim.of_cost:
        what, limit = f"{claim.measure} relative to {test.over}", "at most"
    parts = [f"{what}: {limit} {bounds(test.printed, claim.of_cost)}, ours {bounds(test.ours, claim.of_cost)}"]
    if claim.numbers is not None:
        side = "below" if claim.numbers.lower else "above"
        parts = [f"{test.key} {side} that of {test.over} by {bounds(test.ours, free=True)}"]
    parts += [plural(test.seeds, "seed")] if test.seeds else []
    if test.word != NOT_TESTED and not math.isnan(test.detectable):
        parts.append(f"80% power from {quantity(test.detectable) if claim.numbers else number(test.detectable, 2)}")
    return ", ".join(parts) + "".join(f"; {part}" for part in (test.why, *test.notes) if part)


def family(verdicts: Sequence[ClaimVerdict], confidence: float) -> str:
    """For how many claims the verdicts of one table are corrected."""
    count = sum(verdict.word != NOT_TESTED for verdict in verdicts)
    over = "seeds" if all(verdict.claim.numbers for verdict in verdicts) else "seeds and rows"
    shared = f"; corrected for {count} claims (Holm)" if count > 1 else ""
    return f"Intervals over {over} at {confidence:.0%}{shared}".replace("-", MINUS) + "." if count else ""
