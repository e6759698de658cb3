"""Which method to take in one block: by expected score (``statistics.decision``), beside the verdicts.

Costs are declared passes, not measured seconds, so that a run gives the same decision on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from regft_core import metrics
from regft_core.data.splits import of_seed
from regft_core.names import plural
from regft_core.report.formatting import interval, listed, number, point_of, points, ratio, score
from regft_core.report.values import Block, Choice, Comparison, Decision
from regft_core.schema.params import ReportConfig
from regft_core.statistics.arms import Arms
from regft_core.statistics.decision import FEWEST_ROWS, Belief, beliefs, of_all_rows
from regft_core.statistics.verdict import GAIN, LOSS, NONE, USUAL_SPREAD, overall

#: A method is called cheaper when it costs less than this share of another; less is not worth a point.
CHEAPER = 0.95


def decide(
    block: Block,
    arms: Mapping[str, Arms],
    config: ReportConfig,
    seeds: Sequence[int],
    without_export: Collection[str] = (),
    fixed: Collection[str] = (),
) -> Decision:
    """Decide for one block, among the methods that finished every seed: a mean over survivors favours failing often.

    Args:
        arms: set -> its primary metric.
        without_export: methods whose runs no directory can hold.
        fixed: methods that more rows would not change.
    """
    # Methods that share their runs are one choice.
    entered = [row for row in block.rows if not row.failed and row.same_runs_as is None]
    if not entered:
        return Decision((f"On {block.title} no method finished every seed, so there is nothing to take.",))
    metric, names, judges = block.primary, [row.method for row in entered], config.decide_by or ("dev",)
    others = [] if config.decide_by else [n for n, own in arms.items() if n != "dev" and own.count >= FEWEST_ROWS]
    tables = {name: arms[name].table(names) for name in (*judges, *others)}
    point = point_of(metric, (row.scores["dev"][metric].estimate.mean for row in block.rows))

    def held(sets: Sequence[str]) -> list[Belief]:
        """On the mean over sets; resamples of further sets are shuffled, since sets of one size share theirs."""
        rng, draws = np.random.default_rng(0), [tables[name][1] for name in sets]
        resampled = np.mean([draws[0], *(rng.permutation(values) for values in draws[1:])], axis=0)
        observed = np.mean([tables[name][0] for name in sets], axis=0)
        upwards, (lowest, highest) = metrics.higher_is_better(metric), metrics.find(metric).range
        constant = [row.constant for row in entered]
        found = beliefs(
            observed, resampled, point=point, confidence=config.confidence, higher_is_better=upwards, constant=constant
        )
        return [replace(one, low=max(one.low, lowest), high=min(one.high, highest)) for one in found]

    grows = block.size == "full" and tuple(judges) == ("dev",)  # the exported model has more rows than those of folds
    share, perfect = 1.0, metrics.find(metric).range[metrics.higher_is_better(metric)]
    if grows and block.described.folded:
        task = block.described.model_dump()
        share = sum(of_seed(task, s)["counts"]["train"] for s in seeds) / len(seeds) / task["counts"]["dev"]
    elsewhere = held(others) if others else [None] * len(entered)
    choices = []
    for row, belief, beyond in zip(entered, held(judges), elsewhere, strict=True):
        grown = belief if row.method in fixed else of_all_rows(belief, share, perfect)
        same = tuple(other.method for other in block.rows if other.same_runs_as == row.method)
        choices.append(Choice(row.method, row.scores["dev"][metric].estimate, grown, row.cost.declared, same, beyond))
    choices.sort(key=lambda c: (c.belief.loss, math.inf if c.cost is None else c.cost))
    constant = {row.method for row in block.rows if row.constant}
    trained = {row.method for row in entered if row.finetune.trains_encoder}
    pick, usual = _pick(choices, config.tolerance * point, config.prefer, constant, trained)
    baseline = best if (best := block.frozen or config.reference) in names else None
    # With a frozen encoder claims are about arms that train theirs.
    arms_of_claims = [row for row in block.rows if block.frozen is None or row.finetune.trains_encoder]
    every = [c for row in arms_of_claims for c in (*row.comparisons, *row.opposed)]
    claims = [c for c in every if c.estimate.n and c.other == baseline]
    places = {name: place for place, c in enumerate(choices) for name in (c.method, *c.same)}
    against = sorted((c for c in claims if c.set == "dev" and c.method in places), key=lambda c: places[c.method])
    beating = tuple(c.method for c in against if c.verdict.word == GAIN)
    # The model of a fold was not trained on the rows that it was evaluated on.
    which = "--refit" if block.described.folded else f"--seed {seeds[0]}"
    command = f"regft export --method {pick.method} --task {block.task} --size {block.size} {which}"
    exported = pick.method not in without_export
    failed = [f"{r.method} ({len(r.failed)} of {plural(len(r.runs), 'seed')} failed)" for r in block.rows if r.failed]
    left_out = [*failed, *(f"{name} (no result)" for name in block.absent)]
    text = (
        *_expected(block, choices, pick, usual, config, share, point),
        *_weak(block, pick, baseline, claims),
        *_instead(pick, [c for c in choices if c is not pick and c.method not in constant], baseline, metric),
        *_claimed(block, baseline, beating, against, config.confidence),
        *([] if exported else [f"{pick.method} has no export: its predictions are in work/evaluate."]),
        f"Left out: {listed(left_out)}. Fix the cause and run again." if left_out else "No run failed.",
    )
    return Decision(text, tuple(choices), pick, baseline, beating, command * exported)


def _pick(
    choices: Sequence[Choice],
    allowed: float,
    prefer: Sequence[str],
    constant: Collection[str],
    trained: Collection[str],
) -> tuple[Choice, Choice]:
    """(the choice to take, what the deciding sets alone would take).

    The second is the cheapest within the tolerance, or the first of ``prefer`` there that is better than a constant
    answer; a method that trains no encoder is not preferred to a best one that is ``trained``. The first differs where
    another within the tolerance is better on out-of-distribution sets by more than it; of several, the cheapest near
    the best.
    """
    costs = {c.method: math.inf if c.cost is None else c.cost for c in choices}
    best, most = choices[0], CHEAPER * costs[choices[0].method]
    cheaper = [c for c in choices if c.belief.loss <= allowed and costs[c.method] < most < math.inf]
    usual = best if prefer else min(cheaper, key=lambda c: costs[c.method], default=best)
    least = min((c.belief.loss for c in choices if c.method in constant), default=math.inf)
    within = [c for c in choices if c.belief.loss <= allowed and c.belief.loss < least]
    alike = [c for c in within if best.method not in trained or c.method in trained]
    usual = next((c for name in prefer for c in alike if name in (c.method, *c.same)), usual)
    beyond = {c.method: c.elsewhere.loss for c in choices if c.elsewhere is not None and c.belief.loss <= allowed}
    better = [c for c in choices if c.method in beyond and beyond[usual.method] - beyond[c.method] > allowed]
    near = [c for c in better if beyond[c.method] - min(beyond.values()) <= allowed]
    return min(near, key=lambda c: (costs[c.method], c.belief.loss), default=usual), usual


def _expected(
    block: Block, choices: Sequence[Choice], pick: Choice, usual: Choice, config: ReportConfig, share: float,
    point: float,
) -> Iterator[str]:  # fmt: skip
    """Which method is taken, what to expect of it, and why it is not the best or the ``usual`` (without other sets)."""
    metric, leader = block.primary, choices[0]
    mean = f"{metric} {score(pick.score.mean, metric)}, mean of {plural(pick.score.n, 'seed')}"
    yield f"On {block.title}, take {pick.method}: {mean}."
    bounds = f" {interval(pick.interval, metric)}" if pick.interval else ""
    basis = f", by {listed(list(config.decide_by))}" if config.decide_by not in (None, (), ("dev",)) else ""
    trained, lucky = " of the model of all rows" if share < 1 else "", ""
    if len(choices) > 1:
        best = number(100 * pick.belief.best, 0)
        lucky = f": the best of several is usually a little lucky. With a probability of {best}% it is the best of "
        lucky += str(len(choices))
    yield f"Expect {score(pick.belief.expected, metric)}{bounds}{trained} on new data{basis}{lucky}."
    if pick.score.n == 1:
        spread = points(USUAL_SPREAD * point, metric)
        yield (
            f"One seed shows no spread; a standard deviation of about {spread} is assumed. "
            "Add seeds before you rely on it."
        )
    lost = f"{points(pick.belief.loss, metric)}, within the tolerance of {points(config.tolerance * point, metric)}"
    if pick is not usual and pick.elsewhere is not None and usual.elsewhere is not None:
        gained = points(usual.elsewhere.loss - pick.elsewhere.loss, metric)
        yield (
            f"Without out-of-distribution sets it would be {usual.method}: {pick.method} is expected to be {gained} "
            f"better on them, and to lose to the best here {lost}."
        )
    elif leader is not pick:
        preferred = not {*config.prefer}.isdisjoint((pick.method, *pick.same))
        why = "is preferred (report.prefer)" if preferred else f"takes {_passes(pick)} against {ratio(leader.cost)}"
        yield f"{leader.method} has the best expected score, but {pick.method} {why} and loses {lost}."
    if pick.same:
        yield f"The same runs as {pick.method}: {listed(list(pick.same))}."


def _passes(c: Choice) -> str:
    return "an unknown number of passes" if c.cost is None else f"{ratio(c.cost)} the passes of plain fine-tuning"


def _weak(block: Block, pick: Choice, baseline: str | None, claims: Sequence[Comparison]) -> Iterator[str]:
    """Where the pick is no better than a constant answer, or has lost against the baseline (by ``claims``)."""
    row, lost = block.row(pick.method), {c.set for c in claims if c.method == pick.method and c.verdict.word == LOSS}
    assert row is not None
    below = row.below(block.primary)
    if row.constant and pick.belief.loss <= 0:  # else one is better, within the tolerance
        yield "No method is better than a constant answer: these rows teach none of them anything."
    if "dev" in below:
        yield f"{row.method} is {below['dev']}."
    for name in (name for name in row.scores if name != "dev" and (name in below or name in lost)):
        means = {r.method: score(r.scores[name][block.primary].estimate.mean, block.primary) for r in block.rows}
        told = [f"{row.method} scores {means[row.method]}", *([below[name]] if name in below else [])]
        beside = f"; {baseline} scores {means[baseline]}" if baseline and baseline != row.method else ""
        yield f"On {name} {', '.join(told)}{beside}."


def _instead(pick: Choice, others: Sequence[Choice], baseline: str | None, metric: str) -> Iterator[str]:
    """The cost of taking the frozen encoder (or the reference) instead, else the next best."""
    if not others:
        return
    other = next((c for c in others if baseline in (c.method, *c.same)), others[0])
    name = baseline if baseline in other.same else other.method
    lost = other.belief.loss - pick.belief.loss
    change = f"is expected to {'lose' if lost >= 0 else 'gain'} {points(abs(lost), metric)}"
    differs = other.cost is not None and ratio(other.cost) != ratio(pick.cost)
    cost = f" and takes {_passes(other)} against {ratio(pick.cost)}" if differs else ""
    yield f"Taking {name} instead {change}{cost}."


def _claimed(
    block: Block, baseline: str | None, beating: Sequence[str], against: Sequence[Comparison], confidence: float
) -> Iterator[str]:
    if against:
        role = "the reference" if block.frozen is None else "the best method that does not train the encoder"
        first, level = against[0], f"{number(100 * confidence, 0)}%"
        if first.verdict.comparisons > 1:
            level += f", corrected for {first.verdict.comparisons} comparisons"
        if first.look is not None and first.look.number > 1:
            level += f" and {first.look.number} looks"
        if beating:
            yield f"{listed(list(beating), 3)} {'beats' if len(beating) == 1 else 'beat'} {baseline}, {role} ({level})."
        else:
            basis = first.verdict.why if all(c.verdict.word == NONE for c in against) else level
            yield f"No method is shown to beat {baseline}, {role} ({basis})."
    words = {row.method: overall(c.verdict.word for c in row.against("control")) for row in block.rows}
    judged = {name: word for name, word in words.items() if word not in (None, NONE)}
    if judged:
        winners = [name for name, word in judged.items() if word == GAIN]
        verb = "beat" if len(winners) > 1 else "beats"
        yield f"Of {plural(len(judged), 'method')} with a control, {listed(winners, 3) or 'none'} {verb} it."
