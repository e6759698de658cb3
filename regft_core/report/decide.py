"""Which method to take in one block: by expected score, with what a cheaper one is expected to lose.

Costs are declared passes. Measured seconds decide nothing, so that a run gives the same decision on every machine.
``statistics.decision`` has the rule. Claims stand beside it and are the verdicts of ``statistics.verdict``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from regft_core import metrics
from regft_core.names import plural
from regft_core.report.formatting import interval, listed, number, point_of, points, ratio, score, some
from regft_core.report.model import Block, Choice, Comparison, Decision, Row
from regft_core.schema.params import ReportConfig
from regft_core.statistics.arms import Arms
from regft_core.statistics.decision import FEWEST_ROWS, Belief, beliefs, of_all_rows, taken
from regft_core.statistics.verdict import BELOW, GAIN, LOSS, NONE, USUAL_SPREAD, overall

#: Points by which scores may differ under each seed and count as the same: 1e-6 of an accuracy.
SAME_SCORES = 1e-4


def decide(
    block: Block,
    arms: Mapping[str, Arms],
    config: ReportConfig,
    seeds: Sequence[int],
    without_export: Collection[str] = (),
) -> Decision:
    """Decide for one block, among the methods that finished every seed.

    A mean over survivors would favour methods that fail often.

    Args:
        block: with its comparisons.
        arms: set -> its primary metric; ``dev`` and what ``report.decide_by`` names.
        seeds: of the grid; the command names the first one.
        without_export: methods whose runs no directory can hold; no command is given for them.
    """
    metric = block.primary
    entered = [row for row in block.rows if not row.failed]
    left_out = tuple(
        (row.method, f"{len(row.failed)} of {plural(len(row.runs), 'seed')} failed") for row in block.rows if row.failed
    )
    left_out += tuple((name, "no result") for name in block.absent)
    if not entered:
        return Decision((f"On {block.title} no method finished every seed, so there is nothing to take.",), left_out)
    names, judges = [row.method for row in entered], config.decide_by or ("dev",)
    large = [name for name, one in arms.items() if name != "dev" and one.count >= FEWEST_ROWS]
    others = () if config.decide_by else tuple(large)
    tables = {name: arms[name].table(names) for name in (*judges, *others)}
    point = point_of(metric, np.concatenate([tables[name][0].ravel() for name in judges]))
    groups = _alike(entered, [observed for observed, _ in tables.values()], SAME_SCORES * point)
    leaders = [group[0] for group in groups]

    def held(sets: Sequence[str]) -> list[Belief]:
        """On the mean over sets; resamples of further sets are shuffled, since sets of one size share theirs."""
        rng, draws = np.random.default_rng(0), [tables[name][1][:, leaders] for name in sets]
        resampled = np.mean([draws[0], *(rng.permutation(values) for values in draws[1:])], axis=0)
        observed = np.mean([tables[name][0][leaders] for name in sets], axis=0)
        upwards, (lowest, highest) = metrics.higher_is_better(metric), metrics.find(metric).range
        found = beliefs(observed, resampled, point=point, confidence=config.confidence, higher_is_better=upwards)
        return [replace(one, low=max(one.low, lowest), high=min(one.high, highest)) for one in found]

    held_here = held(judges)
    grows = block.size == "full" and tuple(judges) == ("dev",)  # the exported model has more rows than those of folds
    share, perfect = arms["dev"].trained if grows else 1.0, metrics.find(metric).range[metrics.higher_is_better(metric)]
    learning = [not entered[first].constant for first in leaders]
    held_here = [of_all_rows(b, share, perfect) if learns else b for b, learns in zip(held_here, learning, strict=True)]
    elsewhere = held(others) if others else [None] * len(leaders)
    choices = [
        Choice(
            row.method,
            row.scores["dev"][metric].estimate,
            belief,
            row.cost.declared,
            tuple(names[i] for i in same),
            beyond,
        )
        for (row, same), belief, beyond in zip(
            ((entered[first], same) for first, *same in groups), held_here, elsewhere, strict=True
        )
    ]
    choices.sort(key=lambda c: (c.belief.loss, _or_infinite(c.cost)))
    constant = {row.method for row in block.rows if row.constant}
    pick, usual = _pick(choices, config.tolerance * point, config.prefer, constant)
    best = block.frozen or config.reference
    baseline = best if best in names else None
    places = {name: place for place, c in enumerate(choices) for name in (c.method, *c.same)}
    against = sorted((c for c in _claims(block, baseline, "dev") if c.method in places), key=lambda c: places[c.method])
    beating = tuple(c.method for c in against if c.verdict.word == GAIN)
    # The model of a fold was not trained on the rows that it was evaluated on.
    which = "--refit" if block.described.folded else f"--seed {seeds[0]}"
    command = f"regft export --method {pick.method} --task {block.task} --size {block.size} {which}"
    exported = pick.method not in without_export
    failed = f"Left out: {some([f'{method} ({why})' for method, why in left_out])}." if left_out else "No run failed."
    sentences = [
        *_taken(block, pick, usual, choices, judges, config, bool(left_out), share),
        *_changing_nothing(pick, arms, SAME_SCORES * point),
        *_elsewhere(block, pick, baseline),
        *_instead(pick, [c for c in choices if c is not pick and c.method not in constant], baseline, metric),
        *_claimed(block, baseline, beating, against, config),
        *_against_controls(block),
        *([] if exported else [f"{pick.method} has no export: its predictions are in work/evaluate."]),
        failed,
    ]
    commands = (command,) if exported else ()
    return Decision(tuple(sentences), left_out, tuple(choices), pick, baseline, beating, commands)


def _pick(
    choices: Sequence[Choice], allowed: float, prefer: str | None = None, constant: Collection[str] = ()
) -> tuple[Choice, Choice]:
    """(the choice to take, what the judging sets alone would take).

    Within the tolerance that is the cheapest, or in its place ``prefer``, where it is better than a constant answer.
    They differ where another choice within the tolerance is better on out-of-distribution sets by more than it; of
    several, the cheapest that is within the tolerance of the best there.
    """
    costs = {c.method: _or_infinite(c.cost) for c in choices}
    losses = [c.belief.loss for c in choices]
    usual = choices[taken(losses, list(costs.values()), 0.0 if prefer else allowed)]
    least = min((c.belief.loss for c in choices if c.method in constant), default=math.inf)
    within = (c for c in choices if c.belief.loss <= allowed and c.belief.loss < least)
    usual = next((c for c in within if prefer in (c.method, *c.same)), usual)
    beyond = {c.method: c.elsewhere.loss for c in choices if c.elsewhere is not None and c.belief.loss <= allowed}
    better = [c for c in choices if c.method in beyond and beyond[usual.method] - beyond[c.method] > allowed]
    near = [c for c in better if beyond[c.method] - min(beyond.values()) <= allowed]
    return min(near, key=lambda c: (costs[c.method], c.belief.loss), default=usual), usual


def _alike(rows: Sequence[Row], scores: Sequence[np.ndarray], tolerance: float) -> list[list[int]]:
    """Group methods whose ``scores`` ([k, S] of each judging set) agree under every seed; the simplest leads its group.

    Simplest: the fewest declared passes, then the fewest phases and regularisers, then the first in the grid.
    """

    def effort(i: int) -> tuple[float, int, int]:
        return (
            round(_or_infinite(rows[i].cost.declared), 6),
            len(rows[i].finetune.phases) + sum(map(len, rows[i].finetune.regularisers.values())),
            i,
        )

    groups: list[list[int]] = []
    for i in sorted(range(len(rows)), key=effort):
        same = (g for g in groups if all(np.abs(own[i] - own[g[0]]).max() <= tolerance for own in scores))
        if (group := next(same, None)) is not None:
            group.append(i)
        else:
            groups.append([i])
    return sorted(groups)


def _claims(block: Block, baseline: str | None, set_name: str) -> list[Comparison]:
    """The comparisons with the baseline on one set; with a frozen encoder those of arms that train theirs."""
    rows = [row for row in block.rows if block.frozen is None or row.finetune.trains_encoder]
    every = (c for row in rows for c in (*row.comparisons, *row.opposed) if c.estimate.n)
    return [c for c in every if (c.other, c.set) == (baseline, set_name)]


def _or_infinite(value: float | None) -> float:
    return math.inf if value is None else value


# ------------------------------------------------------------------------------------ words


def _taken(
    block: Block,
    pick: Choice,
    usual: Choice,
    choices: Sequence[Choice],
    judges: Sequence[str],
    config: ReportConfig,
    failed: bool,
    share: float,
) -> Iterator[str]:
    metric, k, leader = block.primary, len(choices), choices[0]
    mean = f"{metric} {score(pick.score.mean, metric)}, mean of {plural(pick.score.n, 'seed')}"
    yield f"On {block.title}, take {pick.method}: {mean}."
    if k == 1 and not pick.same:
        yield "No other method finished every seed." if failed else "The grid has no other method."
    bounds = f" {interval(pick.interval, metric)}" if pick.interval else ""
    basis = "" if tuple(judges) == ("dev",) else f", by {some(list(judges))}"
    basis += " of a model of all rows" if share < 1 else ""
    expected = f"Expect {score(pick.belief.expected, metric)}{bounds} on new data{basis}"
    if k > 1:
        best = number(100 * pick.belief.best, 0)
        expected += (
            f": the best of several is usually a little lucky. With a probability of {best}% it is the best of {k}"
        )
    yield f"{expected}."
    if pick.score.n == 1:
        assumed = number(USUAL_SPREAD, 1)
        yield (
            f"One seed shows no spread; a standard deviation of about {assumed} points is assumed. "
            "Add seeds before you rely on it."
        )
    within = f"within the tolerance of {number(config.tolerance, 1)}"
    if pick is not usual and pick.elsewhere is not None and usual.elsewhere is not None:
        gained = points(usual.elsewhere.loss - pick.elsewhere.loss, metric)
        yield (
            f"Without out-of-distribution sets it would be {usual.method}: {pick.method} is expected to be {gained} "
            f"better on them, and to lose {points(pick.belief.loss, metric)} to the best here, {within}."
        )
    elif leader is not pick:
        preferred = config.prefer in (pick.method, *pick.same)
        passes = f"takes fewer passes ({_costs(pick)} against {ratio(leader.cost)})"
        yield (
            f"{leader.method} has the best expected score, but {pick.method} "
            f"{'is preferred (report.prefer)' if preferred else passes} and loses "
            f"{points(pick.belief.loss, metric)}, {within}."
        )


def _changing_nothing(pick: Choice, arms: Mapping[str, Arms], tolerance: float) -> Iterator[str]:
    """Methods with the scores of the pick: they change nothing here, or only on other sets."""
    by_sets: dict[tuple[str, ...], list[str]] = {}
    for name in pick.same:
        tables = {place: scores.table([pick.method, name])[0] for place, scores in arms.items()}
        differing = tuple(place for place, (a, b) in tables.items() if np.abs(a - b).max() > tolerance)
        by_sets.setdefault(differing, []).append(name)
    for differing, names in by_sets.items():
        verb, change = ("scores", "it changes") if len(names) == 1 else ("score", "they change")
        where = f", but not on {listed(list(differing))}" if differing else f": {change} nothing here"
        yield f"{some(names)} {verb} the same under every seed{where}; {pick.method} is the simplest."


def _instead(pick: Choice, others: Sequence[Choice], baseline: str | None, metric: str) -> Iterator[str]:
    """The cost of taking the frozen encoder (or the reference) instead, else the next best that is no constant."""
    if not others:
        return
    other = next((c for c in others if baseline in (c.method, *c.same)), others[0])
    name = baseline if baseline in other.same else other.method
    lost = other.belief.loss - pick.belief.loss
    change = f"is expected to {'lose' if lost >= 0 else 'gain'} {points(abs(lost), metric)}"
    differs = other.cost is not None and ratio(other.cost) != ratio(pick.cost)
    cost = f" and takes {_costs(other)} against {ratio(pick.cost)}" if differs else ""
    yield f"Taking {name} instead {change}{cost}."


def _costs(c: Choice) -> str:
    return "an unknown number of passes" if c.cost is None else f"{ratio(c.cost)} the passes of plain fine-tuning"


def _claimed(
    block: Block, baseline: str | None, beating: Sequence[str], against: Sequence[Comparison], config: ReportConfig
) -> Iterator[str]:
    if not against:
        return
    role = "the reference" if block.frozen is None else "the best method that does not train the encoder"
    first = against[0]
    level = f"{number(100 * config.confidence, 0)}%"
    if first.verdict.comparisons > 1:
        level += f", corrected for {first.verdict.comparisons} comparisons"
    if first.look is not None and first.look.number > 1:
        level += f" and {first.look.number} looks"
    if beating:
        yield f"{some(list(beating), 3)} {'beats' if len(beating) == 1 else 'beat'} {baseline}, {role} ({level})."
    else:
        basis = first.verdict.why if all(c.verdict.word == NONE for c in against) else level
        yield f"No method is shown to beat {baseline}, {role} ({basis})."


def _against_controls(block: Block) -> Iterator[str]:
    """Which methods beat all of their controls."""
    words = {row.method: overall(c.verdict.word for c in row.against("control")) for row in block.rows}
    judged = {name: word for name, word in words.items() if word not in (None, NONE)}
    winners, having = [name for name, word in judged.items() if word == GAIN], f"{len(judged)} methods with a control"
    if len(judged) == 1:
        yield from (f"{name} against its control: {word}." for name, word in judged.items())
    elif judged and not winners:
        several = any(len(row.against("control")) > 1 for row in block.rows if row.method in judged)
        yield f"None of {having} is {GAIN} than {'all of its controls' if several else 'its control'}."
    elif judged:
        verb, whose = ("beats", "its") if len(winners) == 1 else ("beat", "their")
        yield f"{some(winners, 3)} {verb} {whose} control, of {having}."


def _elsewhere(block: Block, pick: Choice, name_of_baseline: str | None) -> Iterator[str]:
    """Where the pick is no better than a constant answer, or has lost against the baseline."""
    metric, baseline = block.primary, name_of_baseline and block.row(name_of_baseline)
    (row,) = (row for row in block.rows if row.method == pick.method)
    below = {
        name: f"{BELOW}{'' if metric in by else f' by {listed(by)}'}" for name, by in row.no_better(metric).items()
    }
    if row.constant:
        yield "No method is better than a constant answer: these rows teach none of them anything."
    if "dev" in below:
        yield f"{row.method} is {below['dev']}."
    for name in (name for name in row.scores if name != "dev"):
        claims = [c for c in _claims(block, name_of_baseline, name) if c.method == row.method]
        if name in below or any(c.verdict.word == LOSS for c in claims):
            text = f"On {name} {row.method} scores {score(row.scores[name][metric].estimate.mean, metric)}"
            text += f", {below[name]}" if name in below else ""
            if baseline and baseline is not row:
                text += f"; {baseline.method} scores {score(baseline.scores[name][metric].estimate.mean, metric)}"
            yield f"{text}."
