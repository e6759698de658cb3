"""Which method to take in one block: by expected score, with what a cheaper one is expected to lose.

Costs are declared passes. Measured seconds decide nothing, so that a run gives the same decision on every machine.
``statistics.decision`` has the rule. Claims stand beside it and are the verdicts of ``statistics.verdict``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from regft_core import metrics
from regft_core.names import plural
from regft_core.report.compare import point_of
from regft_core.report.model import Block, Choice, Comparison, Decision, Row
from regft_core.report.page.formatting import interval, listed, number, ratio, score, some, unit
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
    """Decide for one block.

    Args:
        block: with its opponents, if it has some.
        arms: set -> its primary metric; ``dev`` and what ``report.decide_by`` names.
        seeds: of the grid; the command names the first one.
        without_export: methods whose runs no directory can hold; no command is given for them.
    """
    metric = block.primary
    entered, left_out = _entering(block)
    names = [row.method for row in entered]
    baseline = block.opponents.best if block.opponents is not None else config.reference
    judges = config.decide_by or ("dev",)
    found = Decision(
        metric=metric,
        confidence=config.confidence,
        tolerance=config.tolerance,
        judges=judges,
        choices=(),
        left_out=left_out,
        pick=None,
        baseline=baseline if baseline in names else None,
        baseline_frozen=block.opponents is not None,
        beating=(),
    )
    if not entered:
        return replace(
            found, sentences=(f"On {block.title} no method finished every seed, so there is nothing to take.",)
        )
    tables = [arms[name].table(names) for name in judges]
    point = point_of(metric, np.concatenate([observed.ravel() for observed, _ in tables]))
    groups = _alike(entered, [observed for observed, _ in tables], SAME_SCORES * point)
    leaders = [group[0] for group in groups]
    observed, resampled = _together([(scores[leaders], draws[:, leaders]) for scores, draws in tables])
    held = beliefs(observed, resampled, point=point, higher_is_better=not metrics.find(metric).lower_is_better)
    choices = [
        Choice(
            entered[leader].method,
            entered[leader].scores["dev"][metric].estimate,
            belief,
            entered[leader].cost.declared,
            tuple(entered[i].method for i in same),
        )
        for (leader, *same), belief in zip(groups, held, strict=True)
    ]
    choices.sort(key=lambda c: (c.belief.loss, _or(c.cost)))
    losses, costs = [c.belief.loss for c in choices], [_or(c.cost) for c in choices]
    pick = choices[taken(losses, costs, config.tolerance * point)]
    found = replace(found, choices=tuple(choices), pick=pick)
    against = {c.method: c for c in sorted(_claims(block, found, "dev"), key=_order(choices)) if c.method in names}
    found = replace(found, beating=tuple(name for name, c in against.items() if c.verdict.word == GAIN))

    def command(name: str) -> str | None:
        if name in without_export:
            return None
        # The model of a fold lacks the rows that judged it.
        which = "--refit" if block.folded else f"--seed {seeds[0]}"
        return f"regft export --method {name} --task {block.task} --size {block.size} {which}"

    exported = command(pick.method)
    sentences = [
        *_taken(found, block.title),
        *_changing_nothing(pick, arms, SAME_SCORES * point),
        *_instead(found, {row.method for row in block.rows if row.constant}),
        *_claimed(found, against),
        *_elsewhere(found, block),
        *_against_controls(block),
    ]
    if exported is None:
        sentences.append(f"{pick.method} has no export: its predictions are in work/evaluate.")
    if not block.absent and all(row.n_ok == row.n_expected for row in block.rows):
        sentences.append("No run failed.")
    if left_out:
        sentences.append(f"Left out: {some([f'{method} ({why})' for method, why in left_out])}.")
    return replace(found, sentences=tuple(sentences), commands=() if exported is None else (exported,))


def _alike(rows: Sequence[Row], scores: Sequence[np.ndarray], tolerance: float) -> list[list[int]]:
    """Group methods whose ``scores`` ([k, S] of each judging set) agree under every seed; the simplest leads its group.

    Simplest: the fewest declared passes, then the fewest phases and regularisers, then the first in the grid.
    """
    order = sorted(range(len(rows)), key=lambda i: (round(_or(rows[i].cost.declared), 6), rows[i].ingredients, i))
    groups: list[list[int]] = []
    for i in order:
        same = (g for g in groups if all(np.abs(one[i] - one[g[0]]).max() <= tolerance for one in scores))
        if (group := next(same, None)) is not None:
            group.append(i)
        else:
            groups.append([i])
    return sorted(groups)


def _together(tables: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """The mean over sets; resamples of further sets are shuffled, since sets of one size share theirs."""
    rng = np.random.default_rng(0)
    mixed = [tables[0][1], *(rng.permutation(values) for _, values in tables[1:])]
    return np.mean([observed for observed, _ in tables], axis=0), np.mean(mixed, axis=0)


def _claims(block: Block, found: Decision, set_name: str) -> list[Comparison]:
    """The comparisons with the baseline on one set."""
    if found.baseline is None:
        return []
    if block.opponents is not None:
        return block.opponents.on(set_name)
    return [c for row in block.rows for c in row.against("reference", set_name)]


def _order(choices: Sequence[Choice]) -> Callable[[Comparison], int]:
    """The place of a comparison's method by expected score."""
    places = {name: place for place, c in enumerate(choices) for name in (c.method, *c.same)}
    return lambda c: places.get(c.method, len(places))


def _or(value: float | None) -> float:
    return math.inf if value is None else value


def _entering(block: Block) -> tuple[list[Row], tuple[tuple[str, str], ...]]:
    """Methods that finished every seed; a mean over survivors would favour methods that fail often."""
    failed = [
        (row.method, f"{len(row.failed)} of {plural(row.n_expected, 'seed')} failed")
        for row in block.rows
        if row.failed
    ]
    left_out = (*failed, *((name, "no result") for name in block.absent))
    return [row for row in block.rows if not row.failed], left_out


# ------------------------------------------------------------------------------------ words


def _taken(found: Decision, where: str) -> list[str]:
    pick, k = found.pick, len(found.choices)
    assert pick is not None
    bounds = f" {interval((pick.score.low, pick.score.high), found.metric)}" if pick.score.n > 1 else ""
    text = (
        f"On {where}, take {pick.method}: {found.metric} {score(pick.score.mean, found.metric)}{bounds}, "
        f"mean of {plural(pick.score.n, 'seed')}."
    )
    if k == 1 and pick.same:
        return [text]
    if k == 1:
        return [text, "No other method finished every seed." if found.left_out else "The grid has no other method."]
    basis = "" if found.judges == ("dev",) else f", by {some(list(found.judges))}"
    sentences = [
        text,
        f"Expect about {score(pick.belief.expected, found.metric)} on new data{basis}: the best of several is usually "
        f"a little lucky. With a probability of {number(100 * pick.belief.best, 0)}% it is the best of {k}.",
    ]
    if pick.score.n == 1:
        assumed = number(ASSUMED_SPREAD, 0)
        sentences.append(
            f"One seed shows no spread; a standard deviation of {assumed} points is assumed. "
            "Add seeds before you rely on it."
        )
    leader = found.choices[0]
    if leader.method != pick.method:
        sentences.append(
            f"{leader.method} has the best expected score, but {pick.method} takes fewer passes "
            f"({_costs(pick)} against {ratio(leader.cost)}) and loses {_points(pick.belief.loss, found)}, "
            f"within the tolerance of {number(found.tolerance, 1)}."
        )
    return sentences


def _changing_nothing(pick: Choice, arms: Mapping[str, Arms], tolerance: float) -> list[str]:
    """Methods with the scores of the pick: they change nothing here, or only on other sets."""
    by_sets: dict[tuple[str, ...], list[str]] = {}
    for name in pick.same:
        tables = {place: one.table([pick.method, name])[0] for place, one in arms.items()}
        differing = tuple(place for place, (a, b) in tables.items() if np.abs(a - b).max() > tolerance)
        by_sets.setdefault(differing, []).append(name)
    sentences = []
    for differing, names in by_sets.items():
        verb, change = ("scores", "it changes") if len(names) == 1 else ("score", "they change")
        where = f", but not on {listed(list(differing))}" if differing else f": {change} nothing here"
        sentences.append(f"{some(names)} {verb} the same under every seed{where}; {pick.method} is the simplest.")
    return sentences


def _instead(found: Decision, constant: Collection[str]) -> list[str]:
    """The cost of taking the frozen encoder (or the reference) instead, else the next best that is no constant."""
    assert found.pick is not None
    others = [c for c in found.choices if c is not found.pick and c.method not in constant]
    other = next((c for c in others if found.baseline in (c.method, *c.same)), others[0] if others else None)
    if other is None:
        return []
    name = found.baseline if found.baseline in other.same else other.method
    lost = other.belief.loss - found.pick.belief.loss
    change = (
        f"is expected to lose {_points(lost, found)}" if lost >= 0 else f"is expected to gain {_points(-lost, found)}"
    )
    cost = f" and takes {_costs(other)} against {ratio(found.pick.cost)}" if other.cost is not None else ""
    return [f"Taking {name} instead {change}{cost}."]


def _points(value: float, found: Decision) -> str:
    return f"{score(value, found.metric)} {unit(found.metric)}"


def _costs(c: Choice) -> str:
    return "an unknown number of passes" if c.cost is None else f"{ratio(c.cost)} the passes of plain fine-tuning"


def _claimed(found: Decision, against: Mapping[str, Comparison]) -> list[str]:
    if found.baseline is None or not against:
        return []
    role = "the best method that does not train the encoder" if found.baseline_frozen else "the reference"
    first = next(iter(against.values()))
    if all(c.verdict.word == NONE for c in against.values()):
        return [f"No method is shown to beat {found.baseline}, {role} ({first.verdict.why})."]
    level = f"{number(100 * found.confidence, 0)}%"
    if first.verdict.comparisons > 1:
        level += f", corrected for {first.verdict.comparisons} comparisons"
    if first.look is not None and first.look.number > 1:
        level += f" and {first.look.number} looks"
    if not found.beating:
        return [f"No method is shown to beat {found.baseline}, {role} ({level})."]
    verb = "beats" if len(found.beating) == 1 else "beat"
    return [f"{some(list(found.beating), 3)} {verb} {found.baseline}, {role} ({level})."]


def _against_controls(block: Block) -> list[str]:
    """Which methods beat all of their controls."""
    words = {row.method: overall(c.verdict.word for c in row.against("control")) for row in block.rows}
    judged = {name: word for name, word in words.items() if word not in (None, NONE)}
    if not judged:
        return []
    winners = [name for name, word in judged.items() if word == GAIN]
    if len(judged) == 1:
        ((name, word),) = judged.items()
        return [f"{name} against its control: {word}."]
    having = f"{len(judged)} methods with a control"
    if not winners:
        return [f"None of {having} is {GAIN} than its control."]
    verb, whose = ("beats", "its") if len(winners) == 1 else ("beat", "their")
    return [f"{some(winners, 3)} {verb} {whose} control, of {having}."]


def _elsewhere(found: Decision, block: Block) -> list[str]:
    """Where the pick is no better than a constant answer, or has lost against the baseline."""
    assert found.pick is not None
    row, baseline = block.row(found.pick.method), found.baseline and block.row(found.baseline)
    assert row is not None
    no_better, sentences = row.no_better(found.metric), []
    if row.constant:
        sentences.append("No method is better than a constant answer: these rows teach none of them anything.")
    if by := no_better.get("dev"):
        sentences.append(f"It is {BELOW}{'' if found.metric in by else f' by {listed(by)}'}.")
    for name, own in row.scores.items():
        lost = [c for c in _claims(block, found, name) if c.method == row.method and c.verdict.word == LOSS]
        if name == "dev" or not (lost or name in no_better):
            continue
        text = f"On {name} it scores {score(own[found.metric].estimate.mean, found.metric)}"
        if by := no_better.get(name):
            text += f", {BELOW}{'' if found.metric in by else f' by {listed(by)}'}"
        if baseline and baseline is not row:
            theirs = baseline.scores[name][found.metric].estimate.mean
            text += f"; {baseline.method} scores {score(theirs, found.metric)}"
        sentences.append(f"{text}.")
    return sentences
