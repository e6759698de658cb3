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
from regft_core.report.compare import point_of
from regft_core.report.formatting import interval, listed, number, ratio, score, some, unit
from regft_core.report.model import Block, Choice, Comparison, Decision, Row
from regft_core.schema.report import ReportConfig
from regft_core.statistics.arms import Arms
from regft_core.statistics.decision import ASSUMED_SPREAD, beliefs, taken
from regft_core.statistics.verdict import BELOW, GAIN, LOSS, NONE, overall

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
        block: with its opponents, if it has some.
        arms: set -> its primary metric; ``dev`` and what ``report.decide_by`` names.
        seeds: of the grid; the command names the first one.
        without_export: methods whose runs no directory can hold; no command is given for them.
    """
    metric = block.primary
    entered = [row for row in block.rows if not row.failed]
    names, failed = [row.method for row in entered], [row for row in block.rows if row.failed]
    left_out = [(row.method, f"{len(row.failed)} of {plural(row.n_expected, 'seed')} failed") for row in failed]
    left_out += [(name, "no result") for name in block.absent]
    baseline = block.opponents.best if block.opponents is not None else config.reference
    decision = Decision(
        metric=metric,
        confidence=config.confidence,
        tolerance=config.tolerance,
        judges=config.decide_by or ("dev",),
        choices=(),
        left_out=tuple(left_out),
        pick=None,
        baseline=baseline if baseline in names else None,
        baseline_frozen=block.opponents is not None,
        beating=(),
        sentences=(f"On {block.title} no method finished every seed, so there is nothing to take.",),
    )
    if not entered:
        return decision
    tables = [arms[name].table(names) for name in decision.judges]
    point = point_of(metric, np.concatenate([observed.ravel() for observed, _ in tables]))
    groups = _alike(entered, [observed for observed, _ in tables], SAME_SCORES * point)
    leaders = [group[0] for group in groups]
    # The mean over sets; resamples of further sets are shuffled, since sets of one size share theirs.
    rng = np.random.default_rng(0)
    draws = [draws[:, leaders] for _, draws in tables]
    resampled = np.mean([draws[0], *(rng.permutation(values) for values in draws[1:])], axis=0)
    observed = np.mean([scores[leaders] for scores, _ in tables], axis=0)
    held = beliefs(observed, resampled, point=point, higher_is_better=metrics.higher_is_better(metric))
    choices = [
        Choice(row.method, row.scores["dev"][metric].estimate, belief, row.cost.declared, tuple(names[i] for i in same))
        for (row, same), belief in zip(((entered[first], same) for first, *same in groups), held, strict=True)
    ]
    choices.sort(key=lambda c: (c.belief.loss, _or_infinite(c.cost)))
    losses, costs = [c.belief.loss for c in choices], [_or_infinite(c.cost) for c in choices]
    pick = choices[taken(losses, costs, config.tolerance * point)]
    decision = replace(decision, choices=tuple(choices), pick=pick)
    places = {name: place for place, c in enumerate(choices) for name in (c.method, *c.same)}
    claims = {c.method: c for c in _claims(block, decision, "dev") if c.method in places}
    against = dict(sorted(claims.items(), key=lambda item: places[item[0]]))
    decision = replace(decision, beating=tuple(name for name, c in against.items() if c.verdict.word == GAIN))
    sentences = [
        *_taken(decision, block.title),
        *_changing_nothing(pick, arms, SAME_SCORES * point),
        *_instead(decision, {row.method for row in block.rows if row.constant}),
        *_claimed(decision, against),
        *_elsewhere(decision, pick, block),
        *_against_controls(block),
    ]
    # The model of a fold was not trained on the rows that it was evaluated on.
    which = "--refit" if block.folded else f"--seed {seeds[0]}"
    command = f"regft export --method {pick.method} --task {block.task} --size {block.size} {which}"
    if pick.method in without_export:
        sentences.append(f"{pick.method} has no export: its predictions are in work/evaluate.")
    sentences.append(
        f"Left out: {some([f'{method} ({why})' for method, why in left_out])}." if left_out else "No run failed."
    )
    return replace(decision, sentences=tuple(sentences), commands=() if pick.method in without_export else (command,))


def _alike(rows: Sequence[Row], scores: Sequence[np.ndarray], tolerance: float) -> list[list[int]]:
    """Group methods whose ``scores`` ([k, S] of each judging set) agree under every seed; the simplest leads its group.

    Simplest: the fewest declared passes, then the fewest phases and regularisers, then the first in the grid.
    """
    order = sorted(
        range(len(rows)), key=lambda i: (round(_or_infinite(rows[i].cost.declared), 6), rows[i].ingredients, i)
    )
    groups: list[list[int]] = []
    for i in order:
        same = (g for g in groups if all(np.abs(own[i] - own[g[0]]).max() <= tolerance for own in scores))
        if (group := next(same, None)) is not None:
            group.append(i)
        else:
            groups.append([i])
    return sorted(groups)


def _claims(block: Block, decision: Decision, set_name: str) -> list[Comparison]:
    """The comparisons with the baseline on one set."""
    if decision.baseline is None:
        return []
    if block.opponents is not None:
        return block.opponents.on(set_name)
    return [c for row in block.rows for c in row.against("reference", set_name)]


def _or_infinite(value: float | None) -> float:
    return math.inf if value is None else value


# ------------------------------------------------------------------------------------ words


def _taken(decision: Decision, where: str) -> Iterator[str]:
    pick, k = decision.pick, len(decision.choices)
    assert pick is not None
    bounds = f" {interval(pick.score.interval, decision.metric)}" if pick.score.interval else ""
    yield (
        f"On {where}, take {pick.method}: {decision.metric} {score(pick.score.mean, decision.metric)}{bounds}, "
        f"mean of {plural(pick.score.n, 'seed')}."
    )
    if k == 1 and not pick.same:
        yield "No other method finished every seed." if decision.left_out else "The grid has no other method."
    if k == 1:
        return
    basis = "" if decision.judges == ("dev",) else f", by {some(list(decision.judges))}"
    yield (
        f"Expect about {score(pick.belief.expected, decision.metric)} on new data{basis}: the best of several is "
        f"usually a little lucky. With a probability of {number(100 * pick.belief.best, 0)}% it is the best of {k}."
    )
    if pick.score.n == 1:
        assumed = number(ASSUMED_SPREAD, 0)
        yield (
            f"One seed shows no spread; a standard deviation of {assumed} points is assumed. "
            "Add seeds before you rely on it."
        )
    leader = decision.choices[0]
    if leader.method != pick.method:
        yield (
            f"{leader.method} has the best expected score, but {pick.method} takes fewer passes "
            f"({_costs(pick)} against {ratio(leader.cost)}) and loses {_points(pick.belief.loss, decision)}, "
            f"within the tolerance of {number(decision.tolerance, 1)}."
        )


def _changing_nothing(pick: Choice, arms: Mapping[str, Arms], tolerance: float) -> Iterator[str]:
    """Methods with the scores of the pick: they change nothing here, or only on other sets."""
    by_sets: dict[tuple[str, ...], list[str]] = {}
    for name in pick.same:
        tables = {place: own.table([pick.method, name])[0] for place, own in arms.items()}
        differing = tuple(place for place, (a, b) in tables.items() if np.abs(a - b).max() > tolerance)
        by_sets.setdefault(differing, []).append(name)
    for differing, names in by_sets.items():
        verb, change = ("scores", "it changes") if len(names) == 1 else ("score", "they change")
        where = f", but not on {listed(list(differing))}" if differing else f": {change} nothing here"
        yield f"{some(names)} {verb} the same under every seed{where}; {pick.method} is the simplest."


def _instead(decision: Decision, constant: Collection[str]) -> Iterator[str]:
    """The cost of taking the frozen encoder (or the reference) instead, else the next best that is no constant."""
    assert decision.pick is not None
    others = [c for c in decision.choices if c is not decision.pick and c.method not in constant]
    other = next((c for c in others if decision.baseline in (c.method, *c.same)), others[0] if others else None)
    if other is None:
        return
    name = decision.baseline if decision.baseline in other.same else other.method
    lost = other.belief.loss - decision.pick.belief.loss
    change = f"is expected to {'lose' if lost >= 0 else 'gain'} {_points(abs(lost), decision)}"
    cost = f" and takes {_costs(other)} against {ratio(decision.pick.cost)}" if other.cost is not None else ""
    yield f"Taking {name} instead {change}{cost}."


def _points(value: float, decision: Decision) -> str:
    return f"{score(value, decision.metric)} {unit(decision.metric)}"


def _costs(c: Choice) -> str:
    return "an unknown number of passes" if c.cost is None else f"{ratio(c.cost)} the passes of plain fine-tuning"


def _claimed(decision: Decision, against: Mapping[str, Comparison]) -> Iterator[str]:
    if not against:
        return
    role = "the best method that does not train the encoder" if decision.baseline_frozen else "the reference"
    first = next(iter(against.values()))
    level = f"{number(100 * decision.confidence, 0)}%"
    if first.verdict.comparisons > 1:
        level += f", corrected for {first.verdict.comparisons} comparisons"
    if first.look is not None and first.look.number > 1:
        level += f" and {first.look.number} looks"
    if decision.beating:
        verb = "beats" if len(decision.beating) == 1 else "beat"
        yield f"{some(list(decision.beating), 3)} {verb} {decision.baseline}, {role} ({level})."
        return
    basis = first.verdict.why if all(c.verdict.word == NONE for c in against.values()) else level
    yield f"No method is shown to beat {decision.baseline}, {role} ({basis})."


def _against_controls(block: Block) -> Iterator[str]:
    """Which methods beat all of their controls."""
    words = {row.method: overall(c.verdict.word for c in row.against("control")) for row in block.rows}
    judged = {name: word for name, word in words.items() if word not in (None, NONE)}
    winners, having = [name for name, word in judged.items() if word == GAIN], f"{len(judged)} methods with a control"
    if len(judged) == 1:
        yield from (f"{name} against its control: {word}." for name, word in judged.items())
    elif judged and not winners:
        yield f"None of {having} is {GAIN} than its control."
    elif judged:
        verb, whose = ("beats", "its") if len(winners) == 1 else ("beat", "their")
        yield f"{some(winners, 3)} {verb} {whose} control, of {having}."


def _elsewhere(decision: Decision, pick: Choice, block: Block) -> Iterator[str]:
    """Where the pick is no better than a constant answer, or has lost against the baseline."""
    metric, baseline = decision.metric, decision.baseline and block.row(decision.baseline)
    (row,) = (row for row in block.rows if row.method == pick.method)
    no_better = row.no_better(metric)
    below = {name: f"{BELOW}{'' if metric in by else f' by {listed(by)}'}" for name, by in no_better.items()}
    if row.constant:
        yield "No method is better than a constant answer: these rows teach none of them anything."
    if "dev" in below:
        yield f"It is {below['dev']}."
    for name, own in row.scores.items():
        lost = [c for c in _claims(block, decision, name) if c.method == row.method and c.verdict.word == LOSS]
        if name == "dev" or not (lost or name in below):
            continue
        text = f"On {name} it scores {score(own[metric].estimate.mean, metric)}"
        text += f", {below[name]}" if name in below else ""
        if baseline and baseline is not row:
            text += f"; {baseline.method} scores {score(baseline.scores[name][metric].estimate.mean, metric)}"
        yield f"{text}."
